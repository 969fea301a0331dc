/** Fill-in-the-middle prompts: they ask for the text between two others, for models trained to write it. */
import { type Tokenizer, WHOLE_TEXT } from "./tokenizer.ts";

/**
 * Prompt format of a family of models; in `prompt`, "P" is the prefix (the text before) and "S" the suffix (the text after).
 */
interface PromptForm {
  readonly prompt: readonly string[];
  /** Tokens that end the middle, beside the model's own end tokens. */
  readonly ends: readonly string[];
}

/** Tokens that separate or end files in the training data of code models. */
const FILE_ENDS = ["<|file_sep|>", "<|repo_name|>", "<|fim_pad|>", "<|endoftext|>", "<file_sep>", "<fim_pad>"];

const FAMILIES: readonly PromptForm[] = [
  // Qwen2.5-Coder, Qwen3-Coder, CodeGemma, Granite 4, Seed-Coder's relatives.
  { prompt: ["<|fim_prefix|>", "P", "<|fim_suffix|>", "S", "<|fim_middle|>"], ends: FILE_ENDS },
  // StarCoder, Granite Code, SmolLM.
  { prompt: ["<fim_prefix>", "P", "<fim_suffix>", "S", "<fim_middle>"], ends: [...FILE_ENDS, "<|endoftext|>"] },
  { prompt: ["<fim-prefix>", "P", "<fim-suffix>", "S", "<fim-middle>"], ends: ["<|endoftext|>"] },
  // Seed-Coder puts the suffix first.
  { prompt: ["<[fim-suffix]>", "S", "<[fim-prefix]>", "P", "<[fim-middle]>"], ends: [] },
  // GLM-4.
  { prompt: ["<|code_prefix|>", "P", "<|code_suffix|>", "S", "<|code_middle|>"], ends: [] },
  // DeepSeek-Coder.
  { prompt: ["<｜fim▁begin｜>", "P", "<｜fim▁hole｜>", "S", "<｜fim▁end｜>"], ends: [] },
  // Code Llama.
  { prompt: ["▁<PRE>", "P", "▁<SUF>", "S", "▁<MID>"], ends: ["▁<EOT>"] },
  // Codestral and other Mistral models put the suffix first.
  { prompt: ["[SUFFIX]", "S", "[PREFIX]", "P"], ends: [] },
];

/** A fill-in-the-middle prompt, and the tokens that end the answer. */
export interface FillInMiddle {
  readonly ids: readonly number[];
  readonly stopTokens: readonly number[];
}

/**
 * Makes a fill-in-the-middle prompt; null for a model whose tokenizer has no tokens for it. Texts are ids, or strings, which
 * are encoded without special tokens; `addBos` begins the prompt with BOS, where the tokenizer has it.
 */
export function fillInMiddle(
  tokenizer: Tokenizer,
  before: string | readonly number[],
  behind: string,
  { addBos = true }: { readonly addBos?: boolean } = {},
): FillInMiddle | null {
  const isToken = (part: string) => part !== "P" && part !== "S";
  const family = FAMILIES.find(({ prompt }) =>
    prompt.every((part) => !isToken(part) || tokenizer.tokenToId(part) !== undefined),
  );
  if (!family) return null;
  const encode = (text: string | readonly number[]) =>
    typeof text === "string" ? tokenizer.encode(text, { ...WHOLE_TEXT, addSpecialTokens: false }) : text;
  const parts = family.prompt.map((part) =>
    isToken(part) ? [tokenizer.tokenToId(part)!] : encode(part === "P" ? before : behind),
  );
  const [first] = tokenizer.encode("", { ...WHOLE_TEXT });
  const bos = addBos && tokenizer.bos !== null && first === tokenizer.bos.id ? [first] : [];
  return { ids: [...bos, ...parts.flat()], stopTokens: family.ends.flatMap((text) => tokenizer.tokenToId(text) ?? []) };
}
