/** How byte-level tokenizers cut text into words before they merge, by the names that GGUF files call them. */

export const CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const SPACES = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** GPT-4's words, with numbers of at most so many digits. */
const gpt4 = (digits: string) =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`;

const UPPER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const LOWER = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";

/** GPT-4o's words, which begin anew at a capital letter. */
const gpt4o = (contractions: string, digits: string) =>
  [
    `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${contractions}`,
    `[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${contractions}`,
    `\\p{N}${digits}`,
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*",
    SPACES,
  ].join("|");

/** Patterns to split by, one after the other. */
export const pretokenizers: Readonly<Record<string, readonly string[]>> = {
  "llama-bpe": [gpt4("{1,3}")],
  llama3: [gpt4("{1,3}")],
  smaug: [gpt4("{1,3}")],
  dbrx: [gpt4("{1,3}")],
  qwen2: [gpt4("")],
  "deepseek-r1-qwen": [gpt4("")],
  stablelm2: [gpt4("")],
  "gpt-2": [gpt2],
  default: [gpt2],
  olmo: [gpt2],
  "phi-2": [gpt2],
  smollm: ["\\p{N}", gpt2],
  starcoder: ["\\p{N}", gpt2],
  refact: ["\\p{N}", gpt2],
  "command-r": ["\\p{N}", gpt2],
  "gpt-4o": [gpt4o(`${CONTRACTIONS}?`, "{1,3}")],
  tekken: [gpt4o("", "")],
};
