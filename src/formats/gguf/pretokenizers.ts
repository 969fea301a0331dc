/**
 * Pre-tokenization of byte-level tokenizers, which cuts text into words before merges, by the names in GGUF files. Names,
 * patterns and defaults are those of llama.cpp (src/llama-vocab.cpp); where llama.cpp only approximates a pattern, since its
 * engine has no Unicode classes, the pattern of the original tokenizer.json is used.
 */

export const CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const SPACES = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** GPT-4's pattern of words; `digits` is the quantifier of numbers. */
const gpt4 = (digits: string, spaces = SPACES) =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${spaces}`;

const UPPER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const LOWER = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";

/** GPT-4o's pattern of words, which also splits before capital letters. */
const gpt4o = (contractions: string, digits: string) =>
  [
    `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${contractions}`,
    `[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${contractions}`,
    `\\p{N}${digits}`,
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*",
    SPACES,
  ].join("|");

/** Splits numbers into groups of three digits from their end. */
const THREES = "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))";
const CHINESE = "[一-龥ࠀ-一가-\\uD7FF]+";
const KANA = "[一-龥\\u3040-ゟ゠-ヿ]+";
const deepseek = (end: string) =>
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" +
  `| ?[\\p{P}\\p{S}]+${end}|\\s+(?!\\S)|\\s+`;
const CASED =
  "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\\u1F7Dᾀ-ᾴᾶ-ᾼ\\u1FBEῂ-ῄῆ-ῌῐ-\\u1FD3ῖ-\\u1FDBῠ-Ῥῲ-ῴῶ-ῼ" +
  "ℂℇℊ-ℓℕℙ-ℝℤ\\u2126ℨ\\u212A-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const POWERS = [512, 256, 128, 64, 32, 16, 8, 4].map((count) => `\\s{${count}}(?!\\S)`).join("|");
const ASIAN =
  "[一-鿿㐀-䶿豈-\\uFAFF\\u3040-ゟ゠-ヿ･-ﾟ⼀-\\u2FDFเ-\\u0E7F\\u0E80-\\u0EFFក-\\u17FFက-႟ꩠ-ꩿꧠ-\\uA9FF가-\\uD7AFᄀ-ᇿ]+";

export interface PreTokenizer {
  /** Names in files; the first is used for writing. */
  readonly names: readonly string[];
  /** Patterns to split by, applied in order. */
  readonly patterns: readonly string[];
  /** Whether words that are tokens skip the merges (`ignore_merges`). */
  readonly wholeWords?: boolean;
  /** Whether a text begins with BOS where a file does not say; `none`: there is no BOS unless the file names one. */
  readonly bos?: boolean | "none";
}

/** Name for files without a pre-tokenizer. */
export const DEFAULT_PRE = "default";

const PRE_TOKENIZERS: readonly PreTokenizer[] = [
  {
    names: ["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
    patterns: [gpt4("{1,3}")],
    wholeWords: true,
    bos: true,
  },
  { names: ["smaug-bpe", "dbrx"], patterns: [gpt4("{1,3}")] },
  { names: ["glm4", "chatglm-bpe"], patterns: [gpt4("{1,3}")], bos: "none" },
  {
    names: [
      ...["qwen2", "deepseek-r1-qwen", "stablelm2", "kormo", "f2llmv2", "hunyuan", "solar-open", "megrez", "grok-2"],
    ],
    patterns: [gpt4("")],
  },
  {
    names: [
      ...["gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "granite-docling", "exaone4", "gigachat", "a.x-4.0"],
      ...["mellum", "modern-bert", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code"],
      "roberta-bpe",
    ],
    patterns: [gpt2],
  },
  {
    names: ["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
    patterns: ["\\p{N}", gpt2],
  },
  { names: ["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], patterns: [gpt4o(`${CONTRACTIONS}?`, "{1,3}")] },
  { names: ["granite-embed-multi-97m"], patterns: [gpt4o(`${CONTRACTIONS}?`, "{1,3}")], wholeWords: true },
  { names: ["tekken"], patterns: [gpt4o("", "")], wholeWords: true, bos: true },
  { names: [DEFAULT_PRE], patterns: ["[\\p{P}\\$\\+<=>\\^~\\|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"] },
  { names: ["falcon"], patterns: ["[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2, "[0-9][0-9][0-9]"] },
  {
    names: ["deepseek-llm"],
    patterns: ["[\\r\\n]", CASED, "\\s?[!-/:-~！-／：-～‘-‟\\u3000-。]+", "\\s+$", CHINESE, "\\p{N}+"],
  },
  { names: ["deepseek-coder"], patterns: ["[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CHINESE, "\\p{N}"] },
  {
    names: ["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
    patterns: ["\\p{N}{1,3}", KANA, deepseek("[\\r\\n]*|\\s*[\\r\\n]+")],
  },
  { names: ["spark2_5"], patterns: ["\\p{N}{1,3}", KANA, deepseek("|[\\r\\n]"), "\\p{N}"] },
  {
    names: ["youtu"],
    patterns: [`[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|${KANA}`, gpt4o(`${CONTRACTIONS}?`, "")],
    wholeWords: true,
  },
  {
    names: ["qwen35"],
    patterns: [
      `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`,
    ],
  },
  { names: ["poro-chat", "bloom", "gpt3-finnish"], patterns: [" ?[^(\\s|.,!?…。，、।۔،)]+"] },
  { names: ["viking"], patterns: [" ?[^(\\s|.,!?…。，、।۔،)]+", "\\p{N}"] },
  { names: ["minicpm5"], patterns: ["\\p{N}{1,3}", gpt4("+")], wholeWords: true },
  { names: ["jais-2"], patterns: [gpt4("{1,3}", `\\s*[\\r\\n]+|${POWERS}|\\s{1,2}(?!\\S)|\\s{1}`)] },
  { names: ["tiny_aya", "cohere2moe"], patterns: [THREES, gpt4o(`${CONTRACTIONS}?`, "{1,3}")] },
  { names: ["afmoe"], patterns: [THREES, ASIAN, deepseek("[\\r\\n]*|\\s*[\\r\\n]+")] },
  { names: ["laguna"], patterns: ["[^\\n]+|[\\n]+", gpt4("")] },
  {
    names: ["chameleon"],
    patterns: [
      ...["<sentinel:[0-9]+>", "(?:IMGIMG)(?:(?:A|B|C|D|E|F|G|H|I){1,4})Z", "(?:[\\t\\n]|    |  )", "\\p{N}"],
      ...["[\\p{P}!-/:-@\\[-`{-~]", gpt2],
    ],
    bos: true,
  },
  {
    names: ["bailingmoe", "bailingmoe2", "llada-moe"],
    patterns: [
      "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" +
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    ],
  },
  {
    names: ["seed-coder"],
    patterns: [`${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${SPACES}`],
  },
  {
    names: ["ufakzeka"],
    patterns: [`[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`],
  },
  {
    names: ["exaone-moe"],
    patterns: [
      `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}` +
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    ],
  },
];

const byName = new Map(PRE_TOKENIZERS.flatMap((entry) => entry.names.map((name) => [name, entry])));

/** All names, for messages. */
export const preTokenizerNames: readonly string[] = [...byName.keys()];

/** The pre-tokenizer of this name; null for an unknown name. */
export function preTokenizerNamed(name: string): PreTokenizer | null {
  return byName.get(name) ?? null;
}

/** GGUF's name of a pre-tokenizer with these `patterns` and `ignore_merges`; null if there is none. */
export function preTokenizerName(patterns: readonly string[], wholeWords: boolean): string | null {
  const same = (entry: PreTokenizer) =>
    entry.patterns.join("\n") === patterns.join("\n") && (entry.wholeWords ?? false) === wholeWords;
  return PRE_TOKENIZERS.find(same)?.names[0] ?? null;
}
