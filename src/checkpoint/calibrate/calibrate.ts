/** Calibration: quantizes the linear layers of a model by their inputs while it reads a text. */
import { checkOptions, checkString } from "../../arguments.ts";
import { InvalidArgumentError } from "../../errors.ts";
import { logInfo } from "../../log.ts";
import { type Matrix, matrix } from "../../matrix.ts";
import { isEncoderNetwork } from "../../model/encoder.ts";
import type { ScalableActivation } from "../../model/scalable.ts";
import { multiplyTransposed, recycleProduct } from "../../ops/product.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import { divideRows } from "../../quantize/divided-scales.ts";
import { needsActivations, weightSpec } from "../../quantize/scheme.ts";
import { dequantize, type QuantizedWeights } from "../../quantized.ts";
import { type Tensor, toFloat32 } from "../../tensor.ts";
import { newWriterId } from "../../writer-id.ts";
import type { ChannelScaling } from "../channel-factors.ts";
import { checkModel, type Model } from "../model.ts";
import { resumeKey } from "../resume-key.ts";
import { type Correction, correctedRows } from "../stored/corrected-rows.ts";
import { checkFiniteInputs, finiteFloats } from "../stored/finite.ts";
import { isLearned } from "../stored/learned-codebooks.ts";
import { quantizeTensor } from "../stored/quantize-rows.ts";
import { besideUsual, damped, dividedPower, IMPORTANCE_DAMPING, TABLE_DAMPING } from "../usual-power.ts";
import { HELD_OUT } from "./layer-inputs.ts";
import { LayerStore, type LoadLayer } from "./layer-store.ts";
import { powerFactors, type Reader, scaleColumns, smoothFactors } from "./scaling.ts";
import { calibrationIds, calibrationWindows, FloatWalk, type LinearLayer, type WalkOptions } from "./walk.ts";

/** Options of `calibrate`: SmoothQuant's strength, damping, and how many tokens are read. */
export interface CalibrateOptions extends WalkOptions {
  /**
   * SmoothQuant's strength alpha, 0 to 1 (0.5 in the paper): how much of the range of activations moves to the weights.
   * Absent: no SmoothQuant. For activations quantized to 8 bits; not together with AWQ, which scales the same channels.
   */
  readonly smoothQuant?: number | undefined;
  /**
   * Damping, by which the text counts less. For GPTQ, this share of the squares of inputs is added to them, so that products
   * of different inputs count less; default 0.2. For "imatrix", this share of the mean is added to the inputs' mean squares;
   * default 0.01.
   */
  readonly damping?: number | undefined;
  /**
   * Gives another text of about this many tokens, such as one of `writeCalibrationText`. GPTQ reads it beside the text, a
   * third as much of it, so that weights stay good for inputs that the text lacks. Other algorithms do not call it.
   */
  readonly otherText?: ((tokens: number) => Promise<string>) | undefined;
  /**
   * Folder that keeps calibrated layers, a file a layer, until the model is exported; without it, they stay in memory, a
   * byte a weight. The caller removes it. Layers that an interrupted run of the same call left there are used again, except
   * with AWQ and SmoothQuant.
   */
  readonly folder?: string | undefined;
  /** Called as layers are quantized, with weights done and weights in all. */
  onProgress?(doneWeights: number, totalWeights: number): void;
}

/**
 * Quantizes all linear layers that have a configuration of algorithm "imatrix", "gptq", "awq" or "awq+gptq", with
 * `smoothQuant` all that have any. Layers are quantized in order: the inputs of each are those that the quantized layers
 * before give it, and GPTQ approximates the outputs of the float layers. A layer is rounded as by "imatrix" where GPTQ does
 * not reduce its error on held-out parts of the text, too. Set configurations (`quantize`) before and export after; the
 * model is unchanged when this fails. InvalidArgumentError when no configuration needs it, options do not go together, the
 * text is too short, or the model is calibrated already.
 */
export async function calibrate(model: Model, text: string, options: CalibrateOptions = {}): Promise<void> {
  checkModel(model);
  checkString("text", text);
  checkOptions(options);
  const { damping, smoothQuant: strength, signal } = options;
  if (damping !== undefined && !(damping > 0 && damping <= DAMPING_MAX))
    throw new InvalidArgumentError(`damping: expected a number above 0, at most ${DAMPING_MAX}, but found ${damping}`);
  if (strength !== undefined && !(strength >= 0 && strength <= 1))
    throw new InvalidArgumentError(`smoothQuant: expected a number from 0 to 1 but found ${strength}`);
  model.checkOpen();
  if (model.isCalibrated)
    throw new InvalidArgumentError(
      `calibrate: ${model.name} is calibrated already; load the checkpoint again to calibrate it for other configurations or by another text`,
    );
  const slots = quantizable(model);
  if (strength !== undefined && slots.some((name) => scales(model.configOf(name)!)))
    throw new InvalidArgumentError("smoothQuant and AWQ scale the same channels; choose one of the two");
  const inRanges = slots.find((name) => {
    const { kind, ranges } = model.configOf(name)!;
    return strength !== undefined && ranges && kind !== "sharedEmbedding";
  });
  if (inRanges !== undefined)
    throw new InvalidArgumentError(
      `${inRanges}: ranges: smoothQuant changes layers whose rows have one number of bits`,
    );
  const wanted = slots.filter((name) => {
    const { kind, algorithm } = model.configOf(name)!;
    return needsActivations(algorithm) || (strength !== undefined && kind !== "sharedEmbedding");
  });
  if (wanted.length === 0)
    throw new InvalidArgumentError(
      'calibrate: expected linear layers of algorithm "imatrix", "gptq", "awq" or "awq+gptq" or smoothQuant but found none',
    );
  await model.usual.power(signal);
  const isGptq = wanted.some((name) => correctsErrors(model.configOf(name)!));
  const otherText = isGptq ? await otherTextFor(model, text, options) : null;
  await model.atomically(async () => {
    if (strength !== undefined) model.usual.scales = false;
    const isScaled = strength !== undefined || wanted.some((name) => scales(model.configOf(name)!));
    const key = isScaled ? null : await resumeKey(model, [text, otherText, options.maxTokens, options.window, damping]);
    const calibration = new Calibration(model, wanted, { ...options, key: key ?? newWriterId() });
    const windows = isGptq ? gptqWindows(model, text, otherText, options) : calibrationWindows(model, text, options);
    const walk = new FloatWalk(model, windows, { signal });
    await walk.visit((layer) => calibration.visit(layer), { float: isGptq });
  });
}

/** Largest damping: with more, all inputs count nearly alike. */
const DAMPING_MAX = 100;
/** Default number of tokens that GPTQ is fitted to and checked on. */
const GPTQ_TOKENS = 16384;
const GPTQ_TOKENS_LEAST = 64;
/** Share of these tokens that is from the other text, where there is one. */
const OTHER_TOKENS_PART = 0.25;
/** Rows of a head on which GPTQ is checked. */
const SAMPLE_ROWS = 256;

/** Linear layers that are to be quantized from floats, in the model's order. */
function quantizable(model: Model): string[] {
  const isLinear = (config: QuantizationConfig | undefined) => config !== undefined && config.kind !== "embedding";
  return model.network.slots
    .filter(({ name, role }) => role === "linear" && isLinear(model.configOf(name)))
    .map(({ name }) => name)
    .filter((name) => model.storedFormat(name) === null && !model.keptAsStored(name));
}

function scales({ algorithm }: QuantizationConfig): boolean {
  return algorithm === "awq" || algorithm === "awq+gptq";
}

/** Whether the algorithm (GPTQ) lets weights compensate for rounding errors of others and of earlier layers. */
function correctsErrors({ algorithm }: QuantizationConfig): boolean {
  return algorithm === "gptq" || algorithm === "awq+gptq";
}

const tokensOf = ({ maxTokens = GPTQ_TOKENS }: WalkOptions) => maxTokens;
const otherTokens = (options: WalkOptions) => Math.floor(tokensOf(options) * OTHER_TOKENS_PART);

/** The other text that GPTQ reads; null for none, and where both texts together are too short. */
async function otherTextFor(model: Model, text: string, options: CalibrateOptions): Promise<string | null> {
  const { length } = calibrationIds(model, text, tokensOf(options) - otherTokens(options));
  const tokens = Math.min(otherTokens(options), Math.floor((length * OTHER_TOKENS_PART) / (1 - OTHER_TOKENS_PART)));
  return length + tokens >= GPTQ_TOKENS_LEAST && options.otherText ? options.otherText(tokens) : null;
}

/** Windows, some of them held out. InvalidArgumentError for a text of too few. */
function gptqWindows(model: Model, text: string, otherText: string | null, options: WalkOptions): readonly number[][] {
  const others = otherText ? otherTokens(options) : 0;
  const read = (text: string, maxTokens: number) =>
    calibrationWindows(model, text, { ...options, maxTokens }, HELD_OUT);
  const windows = [...read(text, tokensOf(options) - others), ...(otherText ? read(otherText, others) : [])];
  const tokens = windows.reduce((sum, { length }) => sum + length, 0);
  if (tokens >= GPTQ_TOKENS_LEAST && windows.length >= HELD_OUT) return windows;
  const lines = model.isEncoder ? `${HELD_OUT} lines with ` : "";
  const found = model.isEncoder ? `${windows.length} with ${tokens}` : `${tokens}`;
  throw new InvalidArgumentError(
    `the text to calibrate with: GPTQ needs at least ${lines}${GPTQ_TOKENS_LEAST} tokens, of which a part is held out, but found ${found}; choose algorithm "imatrix", or a longer text`,
  );
}

class Calibration {
  readonly #model: Model;
  readonly #options: CalibrateOptions;
  readonly #wanted: ReadonlySet<string>;
  /** Activations that can be scaled, by the layers that read them. */
  readonly #activations = new Map<string, ScalableActivation>();
  readonly #factors = new Map<ScalableActivation, Float32Array>();
  readonly #store: LayerStore;
  readonly #done = new Map<string, LoadLayer>();
  readonly #head: string | undefined;
  #doneWeights = 0;
  readonly #totalWeights: number;

  constructor(model: Model, wanted: readonly string[], options: CalibrateOptions & { readonly key: string }) {
    this.#model = model;
    this.#options = options;
    this.#store = new LayerStore(options.folder, options.key);
    this.#wanted = new Set(wanted);
    this.#head = isEncoderNetwork(model.network)
      ? undefined
      : model.network.slots.findLast(({ role }) => role === "linear")?.name;
    for (const activation of model.network.scalable) {
      const { readers, norm, source } = activation;
      const scaled = (name: string) =>
        this.#wanted.has(name) && (options.smoothQuant !== undefined || scales(model.configOf(name)!));
      if (readers.every(scaled) && (norm || this.#wanted.has(source)))
        for (const reader of readers) this.#activations.set(reader, activation);
    }
    this.#totalWeights = model.network.slots.reduce(
      (sum, { name, shape }) => sum + (this.#wanted.has(name) ? shape[0]! * shape[1]! : 0),
      0,
    );
  }

  async visit(layer: LinearLayer): Promise<Float32Array | null> {
    const { name } = layer;
    if (!this.#wanted.has(name)) return null;
    const config = this.#model.configOf(name)!;
    if (this.#isReadLater(name)) return this.#weighHead(layer, config);
    const [n, k] = this.#model.slotWeight(name).slot.shape as [number, number];
    const { columns, rows } = await this.#scalingOf(layer);
    const found = await this.#store.find(name, weightSpec(n, k, config));
    const quantized = found ? await found() : await this.#quantizeFloats(layer, { columns, rows }, config);
    if (found) this.#use(name, found);
    else await this.#keep(name, quantized);
    this.#doneWeights += n * k;
    this.#options.onProgress?.(this.#doneWeights, this.#totalWeights);
    const values = dequantize(quantized);
    if (columns || rows)
      for (let r = 0, i = 0; r < n; r++)
        for (let c = 0; c < k; c++, i++) values[i] = (values[i]! * (rows?.[r] ?? 1)) / (columns?.[c] ?? 1);
    return values;
  }

  /** How a layer is scaled: by factors of the text, or else of typical inputs. */
  async #scalingOf(layer: LinearLayer): Promise<ChannelScaling> {
    const columns = await this.#factorsOf(layer);
    return columns ? { columns, rows: null } : this.#model.usual.scaling(layer.name, this.#options.signal);
  }

  async #quantizeFloats(layer: LinearLayer, { columns, rows }: ChannelScaling, config: QuantizationConfig) {
    const plain = await this.#floats(layer.name);
    const found = await this.#quantize(columns ? scaleColumns(plain, columns) : plain, layer, columns, config);
    return rows ? divideRows(found, (row) => rows[row]!) : found;
  }

  /**
   * Whether a weight is quantized later, some rows at a time, when it is read, since it is large: the head, or an embedding
   * that is the head, too.
   */
  #isReadLater(name: string): boolean {
    const config = this.#model.configOf(name)!;
    if (config.kind === "sharedEmbedding") return true;
    return name === this.#head && !scales(config) && this.#options.smoothQuant === undefined;
  }

  async #weighHead(layer: LinearLayer, config: QuantizationConfig): Promise<null> {
    const { name } = layer;
    const { tiedTo, shape } = this.#model.slotWeight(name).slot;
    const isTable = config.kind === "sharedEmbedding";
    const power = await this.#powerOf(layer);
    const { columns } = await this.#model.usual.scaling(name, this.#options.signal);
    const importance = this.#importance(power, columns, isTable ? TABLE_DAMPING : 0);
    const correction = correctsErrors(config) ? this.#correctionOf(layer, columns, isTable) : null;
    const sample = correction && (await this.#rowsOf(tiedTo ?? name, shape));
    const scaled = sample && columns ? scaleColumns(sample, columns) : sample;
    const isBetter = scaled && (await this.#gains(scaled, layer, columns, correction!, { config, importance }));
    for (const slot of isTable ? [name, tiedTo!] : [name])
      this.#model.setImportance(slot, importance, isBetter ? correction : null);
    this.#doneWeights += shape[0]! * shape[1]!;
    this.#options.onProgress?.(this.#doneWeights, this.#totalWeights);
    return null;
  }

  /**
   * The sums by which GPTQ chooses the head's weights. Where the head is the embedding, too, errors of the embedding's rows
   * count beside those of the logits, in all columns alike.
   */
  #correctionOf(layer: LinearLayer, factors: Float32Array | null, isTable: boolean): Correction {
    const { damping, signal } = this.#options;
    const sums = (found: Matrix) => dividedSums(found, factors);
    const hessian = sums(layer.hessian("fitted"));
    const drift = layer.drift("fitted");
    if (!isTable) return { hessian, drift: drift && sums(drift), damping, signal };
    const { rows: k, data } = hessian;
    const own = matrix(k, k, data.slice());
    let trace = 0;
    for (let i = 0; i < k; i++) trace += data[i * k + i]!;
    for (let i = 0; i < k; i++) own.data[i * k + i]! += (TABLE_DAMPING * trace) / k;
    return { hessian: own, drift: null, damping, signal };
  }

  /** Whether GPTQ has a smaller held-out error than rounding, on a sample of rows. */
  async #gains(
    sample: Matrix,
    layer: LinearLayer,
    factors: Float32Array | null,
    correction: Correction,
    { config, importance }: { readonly config: QuantizationConfig; readonly importance: Float32Array },
  ): Promise<boolean> {
    const loss = heldOutLoss(sample, layer, factors);
    if (!loss) return false;
    const levels = await this.#levels(layer.name, config, importance);
    const { rows, columns, data } = sample;
    const rounded = await quantizeTensor({ dtype: "f32", shape: [rows, columns], data }, config, importance, levels);
    return loss(await correctedRows(sample, correction, { ...config, levels })) < loss(rounded);
  }

  /** A sample of evenly spaced rows of a stored matrix. */
  async #rowsOf(stored: string, [n = 0, k = 0]: readonly number[]): Promise<Matrix> {
    const { tensors, folder } = this.#model.checkpoint;
    const sample = matrix(Math.min(n, SAMPLE_ROWS), k);
    for (let i = 0; i < sample.rows; i++) {
      const row = await tensors.readRows(stored, Math.floor((i * n) / sample.rows), 1);
      sample.data.set(finiteFloats(folder, stored, row, "weights to quantize"), i * k);
    }
    return sample;
  }

  async #quantize(
    weights: Matrix,
    layer: LinearLayer,
    factors: Float32Array | null,
    config: QuantizationConfig,
  ): Promise<QuantizedWeights> {
    const { rows: n, columns: k, data } = weights;
    const tensor: Tensor = { dtype: "f32", shape: [n, k], data };
    const alike = async () => quantizeTensor(tensor, config, null, await this.#levels(layer.name, config, null));
    if (!needsActivations(config.algorithm)) return alike();
    if (layer.tokens === 0) {
      logInfo(() => `${layer.name}: the text reaches this expert with no token; all errors of its weights count alike`);
      return alike();
    }
    const importance = this.#importance(await this.#powerOf(layer), factors);
    const hasOwnFactors = this.#activations.has(layer.name);
    const levels = await this.#levels(layer.name, config, hasOwnFactors ? null : importance);
    const rounded = await quantizeTensor(tensor, config, importance, levels);
    if (config.algorithm === "awq" || config.algorithm === "imatrix") return rounded;
    const loss = heldOutLoss(weights, layer, factors);
    const found = loss && (await this.#quantizeGptq(weights, layer, factors, { ...config, levels }));
    if (found && loss(found) < loss(rounded)) return found;
    logInfo(() => `${layer.name}: GPTQ gains nothing on the part of the text that is held out; rounded by importance`);
    return rounded;
  }

  /** Levels of a layer's codebook where it is learned from the checkpoint's weights; else null. */
  async #levels(name: string, config: QuantizationConfig, importance: Float32Array | null): Promise<Int8Array | null> {
    return isLearned(name, config) ? this.#model.levelsOf(name, config, async () => importance) : null;
  }

  /** Mean squares of a layer's inputs in the text, and of typical ones, for which weights stay good. */
  async #powerOf(layer: LinearLayer): Promise<Float32Array> {
    const power = layer.power();
    checkFiniteInputs(layer.name, power);
    return besideUsual(power, (await this.#model.usual.power(this.#options.signal)).get(layer.name));
  }

  /** How much errors of each column count: mean squares of the inputs, with at least this damping. */
  #importance(power: Float32Array, factors: Float32Array | null, least = 0): Float32Array {
    return damped(dividedPower(power, factors), Math.max(this.#options.damping ?? IMPORTANCE_DAMPING, least));
  }

  async #quantizeGptq(
    weights: Matrix,
    layer: LinearLayer,
    factors: Float32Array | null,
    scheme: Parameters<typeof correctedRows>[2],
  ): Promise<QuantizedWeights> {
    const drift = layer.drift("fitted");
    const correction = {
      hessian: dividedSums(layer.hessian("fitted"), factors),
      drift: drift && dividedSums(drift, factors),
    };
    return correctedRows(weights, { ...this.#options, ...correction }, scheme);
  }

  /**
   * Scale factors of a layer's inputs; null when they are not scaled. The first reader of an activation changes its source.
   */
  async #factorsOf(layer: LinearLayer): Promise<Float32Array | null> {
    const activation = this.#activations.get(layer.name);
    if (!activation) return null;
    const known = this.#factors.get(activation);
    if (known) return known;
    const readers: Reader[] = [];
    for (const name of activation.readers)
      readers.push({ weights: await this.#floats(name), config: this.#model.configOf(name)! });
    const { smoothQuant: strength } = this.#options;
    if (layer.tokens > 0) checkFiniteInputs(layer.name, layer.power());
    const factors =
      strength === undefined
        ? await powerFactors(activation, layer.inputs(), readers)
        : smoothFactors(activation, layer.inputs(), readers, strength);
    this.#factors.set(activation, factors);
    await this.#divideSource(activation, factors);
    return factors;
  }

  /** Divides an activation by changing its source: a norm's weights, or the rows of a linear layer. */
  async #divideSource({ source, sourceBias, norm, rows }: ScalableActivation, factors: Float32Array): Promise<void> {
    const divisors = new Map([...rows].map((row, c) => [row, factors[c]!]));
    const divide = (values: Float32Array, offset: number) =>
      values.map((value, row) => (value + offset) / (divisors.get(row) ?? 1) - offset);
    if (norm) return this.#replaceVector(source, (values) => divide(values, norm.offset));
    if (sourceBias) await this.#replaceVector(sourceBias, (values) => divide(values, 0));
    const quantized = await this.#done.get(source)!();
    await this.#keep(
      source,
      divideRows(quantized, (row) => divisors.get(row) ?? 1),
    );
  }

  async #replaceVector(name: string, change: (values: Float32Array) => Float32Array): Promise<void> {
    const weight = this.#model.weight(name);
    const data = change(toFloat32((await weight.load()) as Tensor));
    const tensor: Tensor = { dtype: "f32", shape: weight.shape, data };
    const format = { kind: "float", dtype: "f32" } as const;
    this.#model.replaceWeight(name, { name, shape: weight.shape, format, load: async () => tensor });
  }

  async #keep(name: string, quantized: QuantizedWeights): Promise<void> {
    this.#use(name, await this.#store.keep(name, quantized));
  }

  #use(name: string, load: LoadLayer): void {
    this.#done.set(name, load);
    this.#model.setCalibrated(name, load);
  }

  async #floats(name: string): Promise<Matrix> {
    const { shape, load } = this.#model.weight(name, { float: true });
    const values = finiteFloats(this.#model.checkpoint.folder, name, (await load()) as Tensor, "weights to quantize");
    return matrix(shape[0]!, shape[1]!, values);
  }
}

/**
 * A function that gives the squared error of held-out outputs, compared with float weights on float inputs; null without
 * held-out windows.
 */
function heldOutLoss(
  weights: Matrix,
  layer: LinearLayer,
  factors: Float32Array | null,
): ((quantized: QuantizedWeights) => number) | null {
  const inputs = divided(layer.inputs("held out"), factors);
  if (inputs.rows === 0) return null;
  const floats = layer.floatInputs("held out");
  const wanted = multiplyTransposed(floats ? divided(floats, factors) : inputs, weights).data;
  return (quantized) => {
    const outputs = multiplyTransposed(inputs, matrix(weights.rows, weights.columns, dequantize(quantized)));
    const found = outputs.data;
    let sum = 0;
    for (let i = 0; i < found.length; i++) {
      const difference = found[i]! - wanted[i]!;
      sum += difference * difference;
    }
    recycleProduct(outputs);
    return sum;
  };
}

/** The inputs with columns divided by factors. */
function divided(inputs: Matrix, factors: Float32Array | null): Matrix {
  if (!factors) return inputs;
  return scaleColumns(
    inputs,
    factors.map((factor) => 1 / factor),
  );
}

/** Sums of products of inputs that are divided by factors. */
function dividedSums(sums: Matrix, factors: Float32Array | null): Matrix {
  if (!factors) return sums;
  const { rows: k, data } = sums;
  const result = matrix(k, k, data.slice());
  for (let r = 0; r < k; r++) for (let c = 0; c < k; c++) result.data[r * k + c]! /= factors[r]! * factors[c]!;
  return result;
}
