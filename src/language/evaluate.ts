/** Perplexity of a text under a model, by sliding windows: every token but the first is scored exactly once. */
import { checkOptions, checkWhole, unexpected } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { WHOLE_TEXT } from "../text/tokenizer.ts";
import { checkLanguageModel, type LanguageModel } from "./language-model.ts";
import { logitRows } from "./logit-rows.ts";

/** How `evaluatePerplexity` reads a text: window and stride in tokens, a limit of tokens, progress, and an abort signal. */
export interface PerplexityOptions {
  /** Tokens of a window. Default: the context length, at most 2048. */
  readonly window?: number | undefined;
  /** Tokens from the start of a window to the start of the next, less than `window`. Default: half of it. */
  readonly stride?: number | undefined;
  /** Most tokens of the text that are used, from its start. Default: all. */
  readonly maxTokens?: number | undefined;
  /** Called after each window, with tokens scored and tokens in all. */
  readonly onProgress?: ((scoredTokens: number, totalTokens: number) => void) | undefined;
  /** Ends the evaluation; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** What `evaluatePerplexity` measures: the perplexity of a text's tokens, how many were scored, and in which windows. */
export interface Perplexity {
  /** Tokens of a window. */
  readonly window: number;
  /** Tokens from the start of a window to the start of the next. */
  readonly stride: number;
  /** Number of windows. */
  readonly windows: number;
  /** Tokens that were scored. */
  readonly tokens: number;
  /** UTF-8 bytes of the scored tokens' text; null when ids were given. */
  readonly bytes: number | null;
  /** Mean negative log-likelihood of a token. */
  readonly natsPerToken: number;
  /** Exponential of the mean negative log likelihood of a token, in nats. */
  readonly perplexity: number;
  /** Bits that a byte of the text takes, whatever the tokenizer; null when ids were given. */
  readonly bitsPerByte: number | null;
}

const WINDOW_DEFAULT_MAX = 2048;

/** One window: tokens start .. end-1, of which those from `from` on are scored. */
interface Window {
  readonly start: number;
  readonly from: number;
  readonly end: number;
}

/**
 * Scores each token in the first window that holds it, so with at least `window - stride` tokens before it (fewer at
 * the start of the text). Programs that give logits of the last token only, such as those for ExecuTorch, are run token
 * by token, which gives the same and takes longer. InvalidArgumentError for sizes out of range.
 */
export async function evaluatePerplexity(
  model: LanguageModel,
  text: string | readonly number[],
  options: PerplexityOptions = {},
): Promise<Perplexity> {
  checkLanguageModel(model);
  checkOptions(options);
  const { signal, onProgress } = options;
  const decoder = model.createDecoder();
  const window = options.window ?? Math.min(decoder.contextLength, WINDOW_DEFAULT_MAX);
  checkWhole("window", window, 2, decoder.contextLength);
  const stride = options.stride ?? Math.floor(window / 2);
  checkWhole("stride", stride, 1, window - 1);
  const maxTokens = options.maxTokens ?? Number.MAX_SAFE_INTEGER;
  checkWhole("maxTokens", maxTokens, 2, Number.MAX_SAFE_INTEGER);
  if (typeof text !== "string" && !Array.isArray(text))
    throw unexpected("text", "a string or a list of token ids", text);
  const ids = (typeof text === "string" ? model.tokenizer.encode(text, WHOLE_TEXT) : text).slice(0, maxTokens);
  if (ids.length < 2)
    throw new InvalidArgumentError(`perplexity: expected a text of at least 2 tokens but found ${ids.length}`);

  let windows = 0;
  let nats = 0;
  for (const { start, from, end } of windowsOf(ids.length, window, stride)) {
    windows++;
    decoder.rewind(0);
    let next = from;
    for await (const row of logitRows(decoder, ids.slice(start, end - 1), from - start - 1, signal))
      nats += negativeLogLikelihood(row, ids[next++]!);
    if (Number.isNaN(nats))
      throw new InvalidArgumentError(
        `logits: expected numbers but found NaN in the window of tokens ${start} to ${end}`,
      );
    onProgress?.(end - 1, ids.length - 1);
  }
  const tokens = ids.length - 1;
  const bytes = typeof text === "string" ? byteCount(model, ids) - byteCount(model, ids.slice(0, 1)) : null;
  return {
    window,
    stride,
    windows,
    tokens,
    bytes,
    natsPerToken: nats / tokens,
    perplexity: Math.exp(nats / tokens),
    bitsPerByte: bytes === null ? null : nats / Math.LN2 / bytes,
  };
}

function* windowsOf(length: number, window: number, stride: number): Generator<Window> {
  let done = 1; // the first token has nothing before it
  for (let start = 0; done < length; start += stride) {
    const end = Math.min(start + window, length);
    yield { start, from: done, end };
    done = end;
  }
}

/** -log softmax(logits)[id], in double precision. */
function negativeLogLikelihood(logits: Float32Array, id: number): number {
  let max = Number.NEGATIVE_INFINITY;
  for (const logit of logits) if (logit > max) max = logit;
  let total = 0;
  for (const logit of logits) total += Math.exp(logit - max);
  return max + Math.log(total) - logits[id]!;
}

function byteCount({ tokenizer }: LanguageModel, ids: readonly number[]): number {
  return new TextEncoder().encode(tokenizer.decode(ids, { skipSpecialTokens: true })).length;
}
