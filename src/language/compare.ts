/** How far a model's predictions are from those of another, token by token of a text: what quantization costs. */
import { checkOptions } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { checkLanguageModel, type LanguageModel } from "./language-model.ts";
import type { ProgramDecoder } from "./program-decoder.ts";
import { checkNumber, type PerplexityOptions, readText, scoredRows, windowsOf } from "./scored-rows.ts";

/** Figures of a list of numbers, one a token. */
export interface Distribution {
  /** Mean over all tokens. */
  readonly mean: number;
  /** Standard error of the mean, of tokens that do not depend on each other: the deviation over the root of their number. */
  readonly standardError: number;
  /** Half of the tokens have less. */
  readonly median: number;
  /** 99 of 100 tokens have less. */
  readonly percentile99: number;
  /** The largest of all tokens. */
  readonly largest: number;
}

/** What `compareModels` measures: Kullback-Leibler divergence, agreement about the likeliest token, and both perplexities. */
export interface Comparison {
  /** Tokens of a window. */
  readonly window: number;
  /** Tokens from the start of a window to the start of the next. */
  readonly stride: number;
  /** Tokens that were scored. */
  readonly tokens: number;
  /** Divergence of the model's probabilities from the reference's, `sum p_ref ln(p_ref / p)`, in nats a token. */
  readonly divergence: Distribution;
  /** Share of the tokens, 0 to 1, for which both find the same token likeliest. */
  readonly topAgreement: number;
  /** Standard error of that share. */
  readonly topAgreementError: number;
  /** Perplexity of the text under the model. */
  readonly perplexity: number;
  /** Perplexity of the text under the reference. */
  readonly referencePerplexity: number;
  /** The one over the other: 1 where the model predicts the text as well as the reference. */
  readonly perplexityRatio: number;
  /** Standard error of the ratio: much less than that of each perplexity, as both are of the same tokens. */
  readonly perplexityRatioError: number;
}

/**
 * Runs a text through a model and a reference, such as the same model in floats, window by window as `evaluatePerplexity`
 * does, and compares what they predict after each token. InvalidArgumentError when their tokens differ, and for sizes out
 * of range.
 * @example
 * const { divergence, topAgreement } = await compareModels(quantized, original, text, { maxTokens: 4000 });
 */
export async function compareModels(
  model: LanguageModel,
  reference: LanguageModel,
  text: string | readonly number[],
  options: PerplexityOptions = {},
): Promise<Comparison> {
  checkLanguageModel(model);
  checkLanguageModel(reference, "reference");
  checkOptions(options);
  const decoders = [model.createDecoder(), reference.createDecoder()] as const;
  try {
    const contextLength = Math.min(...decoders.map((decoder) => decoder.contextLength));
    const { ids, window, stride } = readText(model, text, contextLength, options);
    checkTokens(decoders, ids, readText(reference, text, contextLength, options).ids);
    return { window, stride, ...(await compareWindows(decoders, ids, { ...options, window, stride })) };
  } finally {
    for (const decoder of decoders) await decoder.dispose();
  }
}

type Decoders = readonly [model: ProgramDecoder, reference: ProgramDecoder];

function checkTokens([model, reference]: Decoders, ids: readonly number[], others: readonly number[]): void {
  if (model.vocabularySize !== reference.vocabularySize)
    throw new InvalidArgumentError(
      `reference: expected a vocabulary of ${model.vocabularySize} tokens but found ${reference.vocabularySize}`,
    );
  const at = ids.findIndex((id, i) => id !== others[i]);
  if (at >= 0 || others.length !== ids.length)
    throw new InvalidArgumentError(
      `reference: expected the tokens of the model but found others for the text, from token ${at < 0 ? ids.length : at} on`,
    );
}

async function compareWindows(
  decoders: Decoders,
  ids: readonly number[],
  options: PerplexityOptions & { readonly window: number; readonly stride: number },
): Promise<Omit<Comparison, "window" | "stride">> {
  const { window, stride, signal, onProgress } = options;
  const tokens = ids.length - 1;
  const divergences = new Float64Array(tokens);
  const more = new Float64Array(tokens);
  const nats = { model: 0, reference: 0 };
  let agreed = 0;
  for (const part of windowsOf(ids.length, window, stride)) {
    const [rows, references] = decoders.map((decoder) => scoredRows(decoder, ids, part, signal));
    for (let at = part.from; at < part.end; at++) {
      const [row, reference] = [await rows!.next(), await references!.next()];
      const found = compareRows(row.value as Float32Array, reference.value as Float32Array, ids[at]!);
      divergences[at - 1] = found.divergence;
      more[at - 1] = found.nats - found.referenceNats;
      nats.model += found.nats;
      nats.reference += found.referenceNats;
      if (found.agrees) agreed++;
    }
    checkNumber(decoders[0], nats.model, part);
    checkNumber(decoders[1], nats.reference, part);
    onProgress?.(part.end - 1, tokens);
  }
  const perplexityRatio = Math.exp((nats.model - nats.reference) / tokens);
  return {
    tokens,
    divergence: distribution(divergences),
    topAgreement: agreed / tokens,
    topAgreementError: Math.sqrt(((agreed / tokens) * (1 - agreed / tokens)) / tokens),
    perplexity: Math.exp(nats.model / tokens),
    referencePerplexity: Math.exp(nats.reference / tokens),
    perplexityRatio,
    perplexityRatioError: perplexityRatio * standardError(more),
  };
}

/** In double precision. Tokens that the reference holds for impossible add nothing. */
function compareRows(row: Float32Array, reference: Float32Array, id: number) {
  const [top, referenceTop] = [largestOf(row), largestOf(reference)];
  const [most, referenceMost] = [row[top]!, reference[referenceTop]!];
  let total = 0;
  let referenceTotal = 0;
  let difference = 0;
  for (let i = 0; i < row.length; i++) {
    total += Math.exp(row[i]! - most);
    const weight = Math.exp(reference[i]! - referenceMost);
    if (weight === 0) continue;
    referenceTotal += weight;
    difference += weight * (reference[i]! - row[i]!);
  }
  const [norm, referenceNorm] = [most + Math.log(total), referenceMost + Math.log(referenceTotal)];
  return {
    // Rounding makes a little less than 0 of distributions that are the same.
    divergence: Math.max(0, difference / referenceTotal - (referenceNorm - norm)),
    nats: norm - row[id]!,
    referenceNats: referenceNorm - reference[id]!,
    agrees: top === referenceTop,
  };
}

/** Where the largest value is, the first of several. */
function largestOf(values: Float32Array): number {
  let at = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[at]!) at = i;
  return at;
}

function distribution(values: Float64Array): Distribution {
  const sorted = values.slice().sort();
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
  return {
    mean: meanOf(values),
    standardError: standardError(values),
    median: at(0.5),
    percentile99: at(0.99),
    largest: sorted.at(-1)!,
  };
}

const meanOf = (values: Float64Array) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Of the mean of independent values. 0 of a single one, which says nothing of it. */
function standardError(values: Float64Array): number {
  const mean = meanOf(values);
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return Math.sqrt(squares / Math.max(1, values.length - 1) / values.length);
}
