/** How far a model's predictions are from those of a reference, token by token of a text: the error of quantization. */
import { checkList, checkOptions } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { checkLanguageModel, type LanguageModel } from "./language-model.ts";
import type { ProgramDecoder } from "./program-decoder.ts";
import { checkNumber, type PerplexityOptions, readText, scoredRows, windowsOf } from "./scored-rows.ts";

/** Mean, error and quantiles of a figure that is measured for each token. */
export interface Distribution {
  /** The mean over all tokens. */
  readonly mean: number;
  /** Standard error of the mean, taking tokens as independent: standard deviation / sqrt(tokens). */
  readonly standardError: number;
  /** The median: half of the tokens have less. */
  readonly median: number;
  /** The 99th percentile: 99 of 100 tokens have less. */
  readonly percentile99: number;
  /** The largest of all tokens. */
  readonly largest: number;
}

/**
 * What `compareModels` measures: Kullback-Leibler divergence, agreement about the most likely token, and both perplexities.
 */
export interface Comparison {
  /** Tokens of a window. */
  readonly window: number;
  /** Tokens from the start of a window to the start of the next. */
  readonly stride: number;
  /** Number of tokens that were scored. */
  readonly tokens: number;
  /** Kullback-Leibler divergence of the model from the reference, `sum p_ref ln(p_ref / p)`, in nats a token. */
  readonly divergence: Distribution;
  /** Share of the tokens, 0 to 1, for which model and reference find the same token most likely. */
  readonly topAgreement: number;
  /** Standard error of `topAgreement`. */
  readonly topAgreementError: number;
  /** Perplexity of the text under the model. */
  readonly perplexity: number;
  /** Perplexity of the text under the reference. */
  readonly referencePerplexity: number;
  /** Perplexity under the model divided by that under the reference: 1 where both predict the text equally well. */
  readonly perplexityRatio: number;
  /** Standard error of the ratio: much less than that of each perplexity, since both are measured on the same tokens. */
  readonly perplexityRatioError: number;
}

/**
 * Runs a text through a model and a reference, such as the same model in floats, window by window as `evaluatePerplexity`
 * does, and compares their predictions after each token. InvalidArgumentError when their vocabularies differ, and for sizes
 * out of range.
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
  return (await compareEach([model], reference, text, options))[0]!;
}

/** Compares several models with a reference, as `compareModels` does one; the reference runs once for all of them. */
export async function compareEach(
  models: readonly LanguageModel[],
  reference: LanguageModel,
  text: string | readonly number[],
  options: PerplexityOptions = {},
): Promise<Comparison[]> {
  checkLanguageModel(reference, "reference");
  checkList("models", models, ["createDecoder"], "loaded models");
  checkOptions(options);
  const referenceDecoder = reference.createDecoder();
  const decoders = models.map((model) => model.createDecoder());
  try {
    const contextLength = Math.min(...[referenceDecoder, ...decoders].map((decoder) => decoder.contextLength));
    const { ids, window, stride } = readText(reference, text, contextLength, options);
    for (const [i, model] of models.entries())
      checkTokens(decoders[i]!, referenceDecoder, readText(model, text, contextLength, options).ids, ids);
    const found = await compareWindows(decoders, referenceDecoder, ids, { ...options, window, stride });
    return found.map((figures) => ({ window, stride, ...figures }));
  } finally {
    for (const decoder of [referenceDecoder, ...decoders]) await decoder.dispose();
  }
}

function checkTokens(
  model: ProgramDecoder,
  reference: ProgramDecoder,
  ids: readonly number[],
  others: readonly number[],
): void {
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

/** Sums of what is measured of one model. */
class Measured {
  readonly #divergences: Float64Array;
  /** Negative log likelihood of each token minus the reference's, in nats. */
  readonly #more: Float64Array;
  nats = 0;
  #agreed = 0;

  constructor(tokens: number) {
    this.#divergences = new Float64Array(tokens);
    this.#more = new Float64Array(tokens);
  }

  add(place: number, { divergence, nats, agrees }: ReturnType<typeof compareRows>, referenceNats: number): void {
    this.#divergences[place] = divergence;
    this.#more[place] = nats - referenceNats;
    this.nats += nats;
    if (agrees) this.#agreed++;
  }

  figures(referenceNats: number): Omit<Comparison, "window" | "stride"> {
    const tokens = this.#more.length;
    const topAgreement = this.#agreed / tokens;
    const perplexityRatio = Math.exp((this.nats - referenceNats) / tokens);
    return {
      tokens,
      divergence: distribution(this.#divergences),
      topAgreement,
      topAgreementError: Math.sqrt((topAgreement * (1 - topAgreement)) / tokens),
      perplexity: Math.exp(this.nats / tokens),
      referencePerplexity: Math.exp(referenceNats / tokens),
      perplexityRatio,
      perplexityRatioError: perplexityRatio * standardError(this.#more),
    };
  }
}

async function compareWindows(
  decoders: readonly ProgramDecoder[],
  referenceDecoder: ProgramDecoder,
  ids: readonly number[],
  options: PerplexityOptions & { readonly window: number; readonly stride: number },
): Promise<Omit<Comparison, "window" | "stride">[]> {
  const { window, stride, signal, onProgress } = options;
  const tokens = ids.length - 1;
  const measured = decoders.map(() => new Measured(tokens));
  const reference = new ReferenceRow(referenceDecoder.vocabularySize);
  let referenceNats = 0;
  for (const part of windowsOf(ids.length, window, stride)) {
    const references = scoredRows(referenceDecoder, ids, part, signal);
    const rows = decoders.map((decoder) => scoredRows(decoder, ids, part, signal));
    for (let at = part.from; at < part.end; at++) {
      reference.use((await references.next()).value as Float32Array);
      const nats = reference.nats(ids[at]!);
      referenceNats += nats;
      for (const [i, row] of rows.entries()) {
        const found = compareRows((await row.next()).value as Float32Array, reference, ids[at]!);
        measured[i]!.add(at - 1, found, nats);
      }
    }
    for (const [i, { nats }] of measured.entries()) checkNumber(decoders[i]!, nats, part);
    checkNumber(referenceDecoder, referenceNats, part);
    onProgress?.(part.end - 1, tokens);
  }
  return measured.map((each) => each.figures(referenceNats));
}

/** One prediction of the reference, in double precision: what comparing each model with it needs. */
class ReferenceRow {
  row: Float32Array = new Float32Array(0);
  /** Unnormalized probabilities, exp(logit - max); `total` is their sum. */
  readonly weights: Float64Array;
  total = 0;
  top = 0;
  /** ln(sum(exp(logits))). */
  norm = 0;

  constructor(vocabularySize: number) {
    this.weights = new Float64Array(vocabularySize);
  }

  use(row: Float32Array): void {
    this.row = row;
    this.top = largestOf(row);
    const most = row[this.top]!;
    this.total = 0;
    for (let i = 0; i < row.length; i++) this.total += this.weights[i] = Math.exp(row[i]! - most);
    this.norm = most + Math.log(this.total);
  }

  nats(id: number): number {
    return this.norm - this.row[id]!;
  }
}

/** Divergence and likelihood of one prediction [V]. Tokens of probability 0 under the reference add nothing. */
function compareRows(row: Float32Array, { row: expected, weights, total, norm, top }: ReferenceRow, id: number) {
  const found = largestOf(row);
  const most = row[found]!;
  let sum = 0;
  let difference = 0;
  for (let i = 0; i < row.length; i++) {
    sum += Math.exp(row[i]! - most);
    const weight = weights[i]!;
    if (weight !== 0) difference += weight * (expected[i]! - row[i]!);
  }
  const foundNorm = most + Math.log(sum);
  return {
    // Rounding makes the divergence of equal distributions slightly negative.
    divergence: Math.max(0, difference / total - (norm - foundNorm)),
    nats: foundNorm - row[id]!,
    agrees: found === top,
  };
}

/** Index of the largest value, the first of several equal ones. */
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

/** Standard error of the mean of independent values; 0 for a single value. */
function standardError(values: Float64Array): number {
  const mean = meanOf(values);
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return Math.sqrt(squares / Math.max(1, values.length - 1) / values.length);
}
