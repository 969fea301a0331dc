/** Perplexity of a text under a model, by sliding windows: every token but the first is scored exactly once. */
import { checkOptions } from "../arguments.ts";
import { checkLanguageModel, type LanguageModel } from "./language-model.ts";
import { checkNumber, type PerplexityOptions, readText, scoredRows, windowsOf } from "./scored-rows.ts";

/** What `evaluatePerplexity` measures: perplexity, the number of scored tokens, and the windows they were scored in. */
export interface Perplexity {
  /** Tokens of a window. */
  readonly window: number;
  /** Tokens from the start of a window to the start of the next. */
  readonly stride: number;
  /** Number of windows. */
  readonly windows: number;
  /** Number of tokens that were scored. */
  readonly tokens: number;
  /** UTF-8 bytes of the scored tokens' text; null when ids were given. */
  readonly bytes: number | null;
  /** Mean negative log likelihood of a token, in nats. */
  readonly natsPerToken: number;
  /** Perplexity: e to the power of `natsPerToken`. */
  readonly perplexity: number;
  /**
   * Mean negative log likelihood of a byte of the text, in bits, which compares models with different tokenizers; null when
   * ids were given.
   */
  readonly bitsPerByte: number | null;
}

/**
 * Computes the perplexity of a text. Each token is scored in the first window that holds it, so after at least `window -
 * stride` tokens (fewer at the start of the text). Programs that give logits of the last token only, such as those for
 * ExecuTorch, run token by token, which takes longer and gives the same. InvalidArgumentError for sizes out of range.
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
  const { ids, window, stride } = readText(model, text, decoder.contextLength, options);
  let windows = 0;
  let nats = 0;
  try {
    for (const part of windowsOf(ids.length, window, stride)) {
      windows++;
      let next = part.from;
      for await (const row of scoredRows(decoder, ids, part, signal)) nats += negativeLogLikelihood(row, ids[next++]!);
      checkNumber(decoder, nats, part);
      onProgress?.(part.end - 1, ids.length - 1);
    }
  } finally {
    await decoder.dispose();
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
