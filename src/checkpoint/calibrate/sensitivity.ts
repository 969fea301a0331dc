/**
 * Different bits for different layers: how much the model's predictions suffer from rounding one layer alone is
 * measured once a layer, and what other numbers of bits would do to its outputs is measured beside it.
 */
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import { type Matrix, matrix } from "../../matrix.ts";
import { expertStacks } from "../../model/layer.ts";
import { multiplyTransposed } from "../../ops/product.ts";
import { type BudgetItem, spendBits } from "../../quantize/budget.ts";
import { atBits } from "../../quantize/codebooks.ts";
import { makeConfig, type QuantizationConfig } from "../../quantize/config.ts";
import { quantizeWeights } from "../../quantize/mse.ts";
import { needsActivations } from "../../quantize/scheme.ts";
import { dequantize } from "../../quantized.ts";
import { type Tensor, toFloat32 } from "../../tensor.ts";
import type { Model } from "../model.ts";
import { calibrationWindows, FloatWalk, type LinearLayer, type WalkOptions } from "./walk.ts";

export interface BudgetOptions extends WalkOptions {
  /** Mean bits of a weight. */
  readonly budget: number;
  onProgress?(doneWeights: number, totalWeights: number): void;
}

/** Tokens by which layers are judged: the fewer, the larger the model. */
const TOKENS = { least: 256, most: 1024 } as const;
/** Tokens times weights of the linear layers. */
const WORK = 2 ** 38;
/** Rows of weights, and of inputs, by which numbers of bits are compared, at most. */
const ROWS_MAX = 256;
const BITS_MAX = 8;
/** Fewer are tried only when the budget asks for them. */
const BITS_MIN = 2;

/** Replaces the configurations of `names`, but for the head, by those with the bits that suit each best. */
export async function spendBudget(
  model: Model,
  names: readonly string[],
  text: string,
  options: BudgetOptions,
): Promise<void> {
  const { budget } = options;
  if (expertStacks(model.network.transformer).length > 0)
    throw new UnsupportedError(
      `budget: ${model.decoder.architecture} has mixtures of experts, which take the same bits; give configurations by a recipe`,
    );
  if (!(budget >= 1 && budget <= BITS_MAX))
    throw new InvalidArgumentError(`budget: expected 1 to ${BITS_MAX} bits a weight but found ${budget}`);
  const head = model.decoder.slots.findLast(({ role }) => role === "linear")!.name;
  const layers = new Set(names.filter((name) => name !== head));
  if (layers.size === 0) throw new InvalidArgumentError("budget: expected linear layers to quantize but found none");
  const least = budget < BITS_MIN ? 1 : BITS_MIN;
  const choices = Array.from({ length: BITS_MAX - least + 1 }, (_, i) => least + i);
  const items = await measure(model, layers, text, choices, options);
  const chosen = spendBits([...items.values()], choices, budget);
  const configs = [...items.keys()].map((name, i): [string, QuantizationConfig] => {
    const { kind, ...scheme } = model.configOf(name)!;
    return [name, makeConfig(kind, atBits(scheme, choices[chosen[i]!]!))];
  });
  model.configure(new Map(configs));
}

/** Costs of all choices by layer: nats a token that the predictions are off. */
async function measure(
  model: Model,
  layers: ReadonlySet<string>,
  text: string,
  choices: readonly number[],
  options: BudgetOptions,
): Promise<Map<string, BudgetItem>> {
  const { budget, maxTokens = TOKENS.most } = options;
  const total = model.decoder.slots.reduce(
    (sum, { name, shape }) => sum + (layers.has(name) ? shape[0]! * shape[1]! : 0),
    0,
  );
  const tokens = Math.max(TOKENS.least, Math.min(TOKENS.most, Math.floor(WORK / total)));
  const windows = calibrationWindows(model, text, { ...options, maxTokens: Math.min(maxTokens, tokens) });
  const walk = new FloatWalk(model, windows, options);
  const expected = await walk.run(async () => null);
  const near = choices.map((bits, i) => (Math.abs(bits - Math.floor(budget)) <= 1 ? i : -1)).filter((i) => i >= 0);
  const items = new Map<string, BudgetItem>();
  let done = 0;
  await walk.runForked(async (layer, fork) => {
    const { name } = layer;
    if (!layers.has(name)) return;
    const { shape, load } = model.weight(name, { float: true });
    const weights = matrix(shape[0]!, shape[1]!, toFloat32((await load()) as Tensor));
    const config = model.configOf(name)!;
    const errors = outputErrors(weights, layer, config, choices);
    const measured = new Map<number, number>();
    for (const i of near) {
      const rounded = round(weights, layer, atBits(config, choices[i]!));
      measured.set(i, meanDivergence(expected, await fork(rounded)));
    }
    const costs = errors.map((error, i) => {
      const nearest = Math.min(near.at(-1)!, Math.max(near[0]!, i));
      return errors[nearest]! > 0 ? (measured.get(nearest)! * error) / errors[nearest]! : 0;
    });
    items.set(name, { weights: weights.data.length, costs });
    done += weights.data.length;
    options.onProgress?.(done, total);
  });
  return items;
}

function round(weights: Matrix, layer: LinearLayer, config: QuantizationConfig): Float32Array {
  const { rows: n, columns: k, data } = weights;
  const importance = needsActivations(config.algorithm) ? layer.power() : null;
  return dequantize(quantizeWeights(data, { ...config, n, k }, importance));
}

/** Squared errors of a sample of the outputs, for each choice of bits. */
function outputErrors(
  weights: Matrix,
  layer: LinearLayer,
  config: QuantizationConfig,
  choices: readonly number[],
): number[] {
  const sample = firstRows(weights);
  const inputs = firstRows(layer.inputs());
  return choices.map((bits) => {
    const values = round(sample, layer, atBits(config, bits));
    const changes = matrix(
      sample.rows,
      sample.columns,
      values.map((value, i) => value - sample.data[i]!),
    );
    return multiplyTransposed(inputs, changes).data.reduce((sum, value) => sum + value * value, 0);
  });
}

function firstRows({ rows, columns, data }: Matrix): Matrix {
  const count = Math.min(rows, ROWS_MAX);
  return matrix(count, columns, data.subarray(0, count * columns));
}

/** Mean Kullback-Leibler divergence, in nats, of predictions from those expected; logits [1, T, V]. */
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
  const [p, q] = [logSum(expected), logSum(found)];
  let sum = 0;
  for (let i = 0; i < expected.length; i++) {
    const logP = expected[i]! - p;
    sum += Math.exp(logP) * (logP - (found[i]! - q));
  }
  return Math.max(0, sum);
}

/** log of the sum of exponentials. */
function logSum(logits: Float32Array): number {
  let peak = Number.NEGATIVE_INFINITY;
  for (const logit of logits) if (logit > peak) peak = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - peak);
  return peak + Math.log(sum);
}
