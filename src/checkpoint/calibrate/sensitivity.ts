/** Sensitivity: how much rounding one matrix alone, with each of several configurations, harms a model's predictions. */
import { logInfo } from "../../log.ts";
import { type Matrix, matrix } from "../../matrix.ts";
import { multiplyTransposed } from "../../ops/product.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import { needsActivations, schemesOfRows } from "../../quantize/scheme.ts";
import { dequantize } from "../../quantized.ts";
import type { Tensor } from "../../tensor.ts";
import type { Model } from "../model.ts";
import { finiteFloats } from "../stored/finite.ts";
import { quantizeTensor } from "../stored/quantize-rows.ts";
import { besideUsual, dividedPower } from "../usual-power.ts";
import { scaleColumns } from "./scaling.ts";
import { calibrationWindows, FloatWalk, type LinearLayer, type WalkOptions } from "./walk.ts";

/**
 * Weights that share one choice of configuration: a matrix, an embedding that is the head, too, or all experts of a call.
 */
export interface Choosable {
  /** Slot names of the weights. */
  readonly names: readonly string[];
  /** The configurations to choose from. */
  readonly configs: readonly QuantizationConfig[];
}

/** Tokens for measuring matrices one by one (`least` to `most`, fewer for larger models), and all together. */
const TOKENS = { least: 128, most: 512, together: 1024 } as const;
/** Budget of tokens times weights, for measuring matrices one by one. */
const WORK = 2 ** 35;
/** Most logits of the float model that are kept. */
const LOGITS_MAX = 2 ** 26;
/** Most rows of weights, and of inputs, on which configurations are compared. */
const ROWS_MAX = 128;
/** Tokens of the vocabulary that are taken from each prediction for measuring matrices one by one. */
const NAMED = 32;

/** Measures how far a model's predictions for the start of a text are from those of the float model. */
export class Sensitivity {
  readonly #model: Model;
  readonly #walk: FloatWalk;
  readonly #expected: readonly Tensor[];
  /** Mean squares of the head's inputs, where the head is the embedding, too; they count for both uses. */
  readonly #headPower: Float32Array | null;

  /** Slot name of the output layer. */
  readonly #head: string;

  private constructor(model: Model, walk: FloatWalk, expected: readonly Tensor[], headPower: Float32Array | null) {
    this.#model = model;
    this.#walk = walk;
    this.#expected = expected;
    this.#headPower = headPower;
    this.#head = model.network.slots.findLast(({ role }) => role === "linear")!.name;
  }

  /**
   * Reads the start of the text with the float weights: few tokens to measure matrices one by one, more to measure all
   * together. Throws as `calibrationWindows`.
   */
  static async of(
    model: Model,
    text: string,
    judged: "one by one" | "together",
    options: WalkOptions = {},
  ): Promise<Sensitivity> {
    const matrices = model.network.slots.filter(({ role }) => role !== "vector");
    const weights = matrices.reduce((sum, { shape }) => sum + shape[0]! * shape[1]!, 0);
    const most = judged === "together" ? TOKENS.together : Math.min(TOKENS.most, WORK / weights);
    const tokens = Math.max(TOKENS.least, Math.floor(Math.min(most, LOGITS_MAX / model.decoder.vocabularySize)));
    const maxTokens = Math.min(options.maxTokens ?? tokens, tokens);
    const walk = new FloatWalk(model, calibrationWindows(model, text, { ...options, maxTokens }), options);
    let headPower: Float32Array | null = null;
    const expected = await walk.run(async (name, layer) => {
      if (layer && model.configOf(name)?.kind === "sharedEmbedding") headPower = layer.power();
      return null;
    });
    return new Sensitivity(model, walk, expected, headPower);
  }

  /** How likely each token of the vocabulary is in the float model's predictions, on average: [V]. */
  tokenShares(): Float64Array {
    const shares = new Float64Array(this.#model.decoder.vocabularySize);
    let count = 0;
    for (const { weights, total } of predictionsOf(this.#expected)) {
      for (const [token, weight] of weights.entries()) shares[token]! += weight / total;
      count++;
    }
    return shares.map((share) => share / count);
  }

  /**
   * Costs of each item's configurations, in the items' order: divergence in nats a token. Measured for the configuration at
   * index `probe`; costs of others are estimated from their squared errors relative to its.
   */
  async costs(
    items: readonly Choosable[],
    probe: number,
    onProgress: (doneWeights: number, totalWeights: number) => void = () => {},
  ): Promise<number[][]> {
    const costs = items.map(({ configs }) => new Array<number>(configs.length).fill(0));
    const sizeOf = (name: string) => {
      const { shape } = this.#model.slotWeight(name).slot;
      return shape[0]! * shape[1]!;
    };
    const weightsIn = (names: readonly string[]) => names.reduce((sum, name) => sum + sizeOf(name), 0);
    const total = items.reduce((sum, { names }) => sum + weightsIn(names), 0);
    let done = 0;
    const named = namedTokens(this.#expected);
    const expected = this.#expected.map((logits) => logitsOf(logits, named));
    const head = this.#head;
    const weightsOf = async (name: string) => {
      const weights = await this.#floats(name);
      return name === head ? rowsAt(weights, named) : weights;
    };
    await this.#walk.runForked(named, async (names, fork) => {
      for (const [index, item] of items.entries()) {
        if (!item.names.includes(names[0]!)) continue;
        const { configs } = item;
        const errors = new Array<number>(configs.length).fill(0);
        const found = await fork(async (name, layer) => {
          const weights = await weightsOf(name);
          for (const [i, error] of (await this.#errors(name, weights, layer, configs)).entries()) errors[i]! += error;
          return this.#roundedRows(name, weights, layer, configs[probe]!);
        });
        const measured = meanDivergence(expected, found);
        for (const [i, error] of errors.entries())
          costs[index]![i]! += errors[probe]! > 0 ? (measured * error) / errors[probe]! : 0;
        done += weightsIn(names);
        logInfo(() => `${names[0]}: ${measured.toPrecision(3)} nats a token in ${configs[probe]!.bits} bits`);
        onProgress(done, total);
      }
    });
    return costs;
  }

  /** Mean divergence, in nats a token, of the model with these configurations by slot name; other weights are float. */
  async divergence(configs: ReadonlyMap<string, QuantizationConfig>): Promise<number> {
    const found = await this.#walk.run(async (name, layer) => {
      const config = configs.get(name);
      return config ? this.#rounded(name, await this.#floats(name), layer, config) : null;
    });
    return meanDivergence(this.#expected, found);
  }

  /** All rows of a weight, each rounded by its configuration. */
  async #rounded(
    name: string,
    weights: Matrix,
    layer: LinearLayer | null,
    config: QuantizationConfig,
  ): Promise<Float32Array> {
    const parts = schemesOfRows(weights.rows, config);
    if (parts.length === 1) return this.#roundedRows(name, weights, layer, config);
    const whole = new Float32Array(weights.data.length);
    for (const { first, rows, scheme } of parts) {
      const own = rowSpan(weights, first, first + rows);
      whole.set(await this.#roundedRows(name, own, layer, scheme), first * weights.columns);
    }
    return whole;
  }

  async #roundedRows(
    name: string,
    weights: Matrix,
    layer: LinearLayer | null,
    config: QuantizationConfig,
  ): Promise<Float32Array> {
    const { columns: factors } = await this.#model.usual.scaling(name);
    const { rows, columns: k, data } = factors ? scaleColumns(weights, factors) : weights;
    const tensor: Tensor = { dtype: "f32", shape: [rows, k], data };
    const power = needsActivations(config.algorithm) && (await this.#power(name, layer, config));
    const importance = power ? dividedPower(power, factors) : await this.#model.importanceOf(name);
    const values = dequantize(await quantizeTensor(tensor, config, importance));
    if (factors) for (let i = 0; i < values.length; i++) values[i]! /= factors[i % k]!;
    return values;
  }

  /** Mean squares of a layer's inputs, as `calibrate` counts them; null where the text has none. */
  async #power(name: string, layer: LinearLayer | null, { kind }: QuantizationConfig): Promise<Float32Array | null> {
    const isTable = kind === "sharedEmbedding";
    const power = isTable ? this.#headPower : layer && layer.tokens > 0 ? layer.power() : null;
    return power && besideUsual(power, (await this.#model.usual.power()).get(isTable ? this.#head : name));
  }

  /** Squared errors with each configuration on a sample: of a layer's outputs, or of an embedding's rows. */
  async #errors(
    name: string,
    weights: Matrix,
    layer: LinearLayer | null,
    configs: readonly QuantizationConfig[],
  ): Promise<number[]> {
    const sample = someRows(weights);
    const inputs = layer && someRows(layer.inputs());
    const errors: number[] = [];
    for (const config of configs) {
      const changes = await this.#roundedRows(name, sample, layer, config);
      for (let i = 0; i < changes.length; i++) changes[i]! -= sample.data[i]!;
      const found = inputs ? multiplyTransposed(inputs, matrix(sample.rows, sample.columns, changes)).data : changes;
      errors.push(found.reduce((sum, value) => sum + value * value, 0));
    }
    return errors;
  }

  async #floats(name: string): Promise<Matrix> {
    const { shape, load } = this.#model.weight(name, { float: true });
    const { folder } = this.#model.checkpoint;
    const values = finiteFloats(folder, name, (await load()) as Tensor, "weights to quantize");
    return matrix(shape[0]!, shape[1]!, values);
  }
}

/** Rows first .. end - 1, in the matrix's memory. */
function rowSpan({ columns, data }: Matrix, first: number, end: number): Matrix {
  return matrix(end - first, columns, data.subarray(first * columns, end * columns));
}

/** At most `ROWS_MAX` rows, evenly from all. */
function someRows(all: Matrix): Matrix {
  const count = Math.min(all.rows, ROWS_MAX);
  return rowsAt(
    all,
    Array.from({ length: count }, (_, i) => Math.floor((i * all.rows) / count)),
  );
}

function rowsAt({ columns, data }: Matrix, rows: readonly number[]): Matrix {
  const found = matrix(rows.length, columns);
  for (const [i, row] of rows.entries()) found.data.set(data.subarray(row * columns, (row + 1) * columns), i * columns);
  return found;
}

/** Weights of all tokens in each prediction, in proportion to their probabilities, and their sum. `expected`: logits [1, T, V]. */
function* predictionsOf(expected: readonly Tensor[]): Generator<{ weights: Float32Array; total: number }> {
  for (const { shape, data } of expected) {
    const vocabulary = shape.at(-1)!;
    for (let start = 0; start < data.length; start += vocabulary) {
      const logits = (data as Float32Array).subarray(start, start + vocabulary);
      const peak = peakOf(logits);
      const weights = logits.map((logit) => Math.exp(logit - peak));
      yield { weights, total: weights.reduce((sum, weight) => sum + weight, 0) };
    }
  }
}

/**
 * Token ids that say most about changes of predictions, ascending: for each prediction, those at `NAMED` evenly spaced
 * quantiles of its distribution, which are all likely tokens and some others. `expected`: logits [1, T, V].
 */
function namedTokens(expected: readonly Tensor[]): number[] {
  const named = new Set<number>();
  for (const { weights, total } of predictionsOf(expected)) {
    const step = total / NAMED;
    let [sum, next] = [0, step / 2];
    for (let token = 0; token < weights.length; token++) {
      sum += weights[token]!;
      if (sum <= next) continue;
      named.add(token);
      while (next < sum) next += step;
    }
  }
  return [...named].sort((a, b) => a - b);
}

/** The logits [1, T, tokens] of some tokens. */
function logitsOf({ shape, data }: Tensor, tokens: readonly number[]): Tensor {
  const vocabulary = shape.at(-1)!;
  const rows = data.length / vocabulary;
  const found = new Float32Array(rows * tokens.length);
  for (let row = 0, i = 0; row < rows; row++)
    for (const token of tokens) found[i++] = (data as Float32Array)[row * vocabulary + token]!;
  return { dtype: "f32", shape: [1, rows, tokens.length], data: found };
}

/** Mean Kullback-Leibler divergence, in nats, of the found from the expected predictions; logits [1, T, V]. */
export function meanDivergence(expected: readonly Tensor[], found: readonly Tensor[]): number {
  let sum = 0;
  let count = 0;
  for (const [w, { shape, data }] of expected.entries()) {
    const vocabulary = shape.at(-1)!;
    for (let start = 0; start < data.length; start += vocabulary, count++)
      sum += divergence(
        (data as Float32Array).subarray(start, start + vocabulary),
        (found[w]!.data as Float32Array).subarray(start, start + vocabulary),
      );
  }
  return sum / count;
}

function divergence(expected: Float32Array, found: Float32Array): number {
  const [peak, foundPeak] = [peakOf(expected), peakOf(found)];
  let [sum, foundSum, difference] = [0, 0, 0];
  for (let i = 0; i < expected.length; i++) {
    const weight = Math.exp(expected[i]! - peak);
    sum += weight;
    foundSum += Math.exp(found[i]! - foundPeak);
    difference += weight * (expected[i]! - peak - (found[i]! - foundPeak));
  }
  return Math.max(0, difference / sum + Math.log(foundSum / sum));
}

function peakOf(logits: Float32Array): number {
  let peak = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) if (logits[i]! > peak) peak = logits[i]!;
  return peak;
}
