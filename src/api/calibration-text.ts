/**
 * A calibration text that the model writes itself, for users who give none (Liu et al. 2023, arXiv 2305.17888): what a
 * model generates is near to what it was trained on.
 */
import { checkOptions, checkWhole } from "../arguments.ts";
import { beginnings, questions } from "../checkpoint/calibration-beginnings.ts";
import { checkModel, type Model } from "../checkpoint/model.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { UnsupportedError } from "../errors.ts";
import type { LanguageModel } from "../language/language-model.ts";
import { int8DynamicActivationIntxWeight } from "../quantize/config.ts";
import { generate } from "../text/generate.ts";
import { WHOLE_TEXT } from "../text/tokenizer.ts";
import { loadCompiled } from "./load-compiled.ts";

/** How much a model writes, and from which seed. */
export interface CalibrationTextOptions {
  /** Tokens that are written. Default 16384. */
  readonly tokens?: number | undefined;
  /** A whole number from 0: with the same seed, a model writes the same text on the same CPU. Default 0. */
  readonly seed?: number | undefined;
  /** Ends the work; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** Called as tokens come. */
  onProgress?(doneTokens: number, totalTokens: number): void;
}

/** What a model wrote. */
export interface CalibrationText {
  /** The texts, one after the other, with the special tokens that are in and between them. */
  readonly text: string;
  /** How many texts of each kind there are: "chat", "code" and languages. */
  readonly kinds: ReadonlyMap<string, number>;
}

const TOKENS_DEFAULT = 16384;
/** Tokens of a part of the whole text: texts are generated one after the other until a part is full. */
const PART = 512;
/** Parts that are generated at the same time, as sequences of a batch. */
const TOGETHER = 32;
/** Most texts of a part, and the distance between the seeds of parts, so that each text has a seed of its own. */
const TEXTS_MAX = 1024;
/** Least and most tokens of a text: no text is begun with fewer tokens left, and none gets more. */
const TEXT_TOKENS = { least: 16, most: 256 } as const;

/** How a text begins, and of which kind it is. */
interface Prompt {
  readonly kind: string;
  readonly ids: readonly number[];
}

/**
 * Lets a model write a text for `calibrate`: plain text in several languages, code, and answers in its chat template where
 * it has one. Tokens are sampled at temperature 1 from the model with 8-bit weights; its configurations stay as they are.
 * UnsupportedError for a model that writes no text, InvalidFileError without a tokenizer, InvalidArgumentError after
 * `calibrate`.
 * @example
 * quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, algorithm: "gptq" })]);
 * await calibrate(model, (await writeCalibrationText(model)).text);
 */
export async function writeCalibrationText(
  model: Model,
  options: CalibrationTextOptions = {},
): Promise<CalibrationText> {
  checkModel(model);
  checkOptions(options);
  if (model.isEncoder)
    throw new UnsupportedError(
      `${model.name}: ${model.network.architecture} writes no text to calibrate with; give it one in a file`,
    );
  const tokens = checkWhole("tokens", options.tokens ?? TOKENS_DEFAULT, 1);
  const seed = checkWhole("seed", options.seed ?? 0, 0, 2 ** 31);
  const { signal } = options;
  const size = Math.min(PART, tokens, model.network.contextLength);
  const llm = await loadIn8Bits(model, size, signal);
  try {
    const prompts = promptsOf(llm);
    const count = Math.ceil(tokens / size);
    const parts: string[] = [];
    const kinds = new Map<string, number>();
    let [done, next] = [0, 0];
    const onToken = () => options.onProgress?.(Math.min(++done, tokens), tokens);
    const onText = (kind: string) => kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    const write = async () => {
      for (let i = next++; i < count; i = next++) {
        const seeds = (seed * count + i) * TEXTS_MAX;
        parts[i] = await writePart(llm, rotated(prompts, i), { size, seeds, signal, onToken, onText });
      }
    };
    await Promise.all(Array.from({ length: Math.min(TOGETHER, count) }, write));
    return { text: parts.join("\n\n"), kinds };
  } finally {
    await llm.dispose();
  }
}

/** The model as a program with 8-bit weights; weights that are kept as stored stay so. */
async function loadIn8Bits(model: Model, contextLength: number, signal?: AbortSignal): Promise<LanguageModel> {
  const { configs, layout } = model;
  const none = () => model.configure(new Map([...configs.keys()].map((name) => [name, null])));
  const slots = model.network.slots.filter(({ role }) => role === "linear");
  model.layout = null;
  try {
    if (slots.every(({ name }) => model.storedFormat(name) === null))
      quantize(model, [int8DynamicActivationIntxWeight({ bits: 8, groupSize: 32, scaleDType: "f16" })]);
    else none();
    return await loadCompiled(model, { contextLength, sequences: TOGETHER, signal });
  } finally {
    model.layout = layout;
    model.configure(new Map(model.network.slots.map(({ name }) => [name, null])));
    model.configure(configs);
  }
}

/** Prompts of all kinds, the kinds mixed. */
function promptsOf(llm: LanguageModel): Prompt[] {
  const { tokenizer } = llm;
  const plain = Object.entries(beginnings).map(([kind, texts]) =>
    texts.map((text) => ({ kind, ids: tokenizer.encode(text, WHOLE_TEXT) })),
  );
  const chats = llm.template
    ? questions.map((content) => ({ kind: "chat", ids: llm.encodeChat([{ role: "user", content }]) }))
    : [];
  const all = [...plain.flat(), ...chats];
  // A step of about the golden section, coprime to the length, visits every prompt and mixes the kinds.
  const step = [...all.keys()].find((i) => i > 0.618 * all.length && isCoprime(i, all.length)) ?? 1;
  return all.map((_, i) => all[(i * step) % all.length]!);
}

function isCoprime(a: number, b: number): boolean {
  return b === 0 ? a === 1 : isCoprime(b, a % b);
}

/** The prompts in the order of a part: each part starts with another. */
function rotated(prompts: readonly Prompt[], part: number): readonly Prompt[] {
  const first = (part * 3) % prompts.length;
  return [...prompts.slice(first), ...prompts.slice(0, first)];
}

interface Part {
  readonly size: number;
  /** Seed of the first text of the part; the text after it has the next seed, and so on. */
  readonly seeds: number;
  readonly signal: AbortSignal | undefined;
  onToken(): void;
  onText(kind: string): void;
}

/** Generates texts one after the other until the part has `size` tokens. */
async function writePart(llm: LanguageModel, prompts: readonly Prompt[], part: Part): Promise<string> {
  const { size, seeds, signal, onToken, onText } = part;
  const { tokenizer, eosIds } = llm;
  const written: number[] = [];
  for (let i = 0; i < TEXTS_MAX && written.length + TEXT_TOKENS.least < size; i++) {
    const { kind, ids } = prompts[i % prompts.length]!;
    const prompt = ids.slice(0, size - written.length - 1);
    const maxTokens = Math.min(TEXT_TOKENS.most, size - written.length - prompt.length);
    const decoder = llm.createDecoder();
    written.push(...prompt);
    onText(kind);
    for (const _ of prompt) onToken();
    try {
      const options = { maxTokens, seed: seeds + i, temperature: 1, eosIds, signal };
      for await (const { id } of generate(decoder, tokenizer, prompt, options)) {
        written.push(id);
        onToken();
      }
    } finally {
      await decoder.dispose();
    }
  }
  return tokenizer.decode(written);
}
