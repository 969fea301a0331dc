/** Sliding windows over a text, and the logits that score each token in the first window that holds it. */
import { checkWhole, unexpected } from "../arguments.ts";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import { WHOLE_TEXT } from "../text/tokenizer.ts";
import type { LanguageModel } from "./language-model.ts";
import { logitRows } from "./logit-rows.ts";
import type { ProgramDecoder } from "./program-decoder.ts";

const WINDOW_DEFAULT_MAX = 2048;

/**
 * How `evaluatePerplexity` and `compareModels` read a text: window and stride in tokens, most tokens, progress, and an
 * abort signal.
 */
export interface PerplexityOptions {
  /** Tokens of a window. Default: the context length, at most 2048. */
  readonly window?: number | undefined;
  /** Tokens from the start of a window to the start of the next, less than `window`. Default: half of `window`. */
  readonly stride?: number | undefined;
  /** Most tokens of the text that are used, from its start. Default: all. */
  readonly maxTokens?: number | undefined;
  /** Called after each window, with tokens scored and tokens in all. */
  readonly onProgress?: ((scoredTokens: number, totalTokens: number) => void) | undefined;
  /** Ends the evaluation; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** One window: tokens start .. end-1, of which tokens from .. end-1 are scored. */
export interface Window {
  readonly start: number;
  readonly from: number;
  readonly end: number;
}

/** Ids of a text, and the sizes of windows. InvalidArgumentError for sizes out of range and too short a text. */
export function readText(
  model: LanguageModel,
  text: string | readonly number[],
  contextLength: number,
  options: PerplexityOptions,
): { ids: readonly number[]; window: number; stride: number } {
  const window = options.window ?? Math.min(contextLength, WINDOW_DEFAULT_MAX);
  checkWhole("window", window, 2, contextLength);
  const stride = options.stride ?? Math.floor(window / 2);
  checkWhole("stride", stride, 1, window - 1);
  const maxTokens = options.maxTokens ?? Number.MAX_SAFE_INTEGER;
  checkWhole("maxTokens", maxTokens, 2, Number.MAX_SAFE_INTEGER);
  if (typeof text !== "string" && !Array.isArray(text))
    throw unexpected("text", "a string or a list of token ids", text);
  const ids = (typeof text === "string" ? model.tokenizer.encode(text, WHOLE_TEXT) : text).slice(0, maxTokens);
  if (ids.length < 2)
    throw new InvalidArgumentError(`perplexity: expected a text of at least 2 tokens but found ${ids.length}`);
  return { ids, window, stride };
}

export function* windowsOf(length: number, window: number, stride: number): Generator<Window> {
  let done = 1; // the first token has nothing before it
  for (let start = 0; done < length; start += stride) {
    const end = Math.min(start + window, length);
    yield { start, from: done, end };
    done = end;
  }
}

/**
 * Gives the logits [V] that score each of a window's tokens from `from` on. Each array is valid until the next is asked
 * for.
 */
export async function* scoredRows(
  decoder: ProgramDecoder,
  ids: readonly number[],
  { start, from, end }: Window,
  signal: AbortSignal | undefined,
): AsyncGenerator<Float32Array> {
  decoder.rewind(0);
  yield* logitRows(decoder, ids.slice(start, end - 1), from - start - 1, signal);
}

/** InvalidFileError, naming the program's file, for a NaN that was computed from a window's logits. */
export function checkNumber({ file }: ProgramDecoder, value: number, { start, end }: Window): void {
  if (!Number.isNaN(value)) return;
  throw new InvalidFileError(file, `logits: expected numbers but found NaN in the window of tokens ${start} to ${end}`);
}
