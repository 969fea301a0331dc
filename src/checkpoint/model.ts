/** A checkpoint opened as a model: an architecture, and weights that are read and quantized when needed. */
import { checkInstance, checkOptions, checkString } from "../arguments.ts";
import { InvalidArgumentError, ShapeError, UnsupportedError } from "../errors.ts";
import type { Checkpoint } from "../formats/contract.ts";
import type { LowBitTensor } from "../formats/tensor-source.ts";
import type { Decoder, Network, WeightSlot } from "../model/decoder.ts";
import { isEncoderNetwork } from "../model/encoder.ts";
import { type AffineFormat, type AffineWeight, type EmbeddingFormat, fitsEmbeddingFormat } from "../ops/lowering.ts";
import { withMinima } from "../ops/minima.ts";
import { ofRowRanges } from "../ops/row-ranges.ts";
import { checkWeight, type FloatFormat, type Weight } from "../ops/weight.ts";
import { codebooks } from "../quantize/codebooks.ts";
import { activationsOf, type QuantizationConfig } from "../quantize/config.ts";
import { needsActivations, schemesOfRows, weightSpec } from "../quantize/scheme.ts";
import type { ActivationKind, QuantizedWeights, WeightSpec } from "../quantized.ts";
import { isSameShape } from "../tensor.ts";
import { checkLayers } from "./check-layers.ts";
import { expectedPower } from "./expected-power.ts";
import { networkOf } from "./network.ts";
import { bitnetWeight } from "./stored/bitnet.ts";
import { centered } from "./stored/centered-minima.ts";
import { checkMethod, checkSlot } from "./stored/check-slot.ts";
import { type Correction, correctedBy } from "./stored/corrected-rows.ts";
import { finiteFloats, finiteLowBit } from "./stored/finite.ts";
import { isLearned, learnCodebook, namesOfCodebook, type SharedCodebook } from "./stored/learned-codebooks.ts";
import { orderedColumns } from "./stored/ordered-columns.ts";
import { inParts, joinRows, quantizeRows } from "./stored/quantize-rows.ts";
import {
  asStored,
  checkConfigurable,
  configIn,
  isByText,
  ownWeight,
  type SlotWeight,
  type WeightState,
} from "./stored/slot-weight.ts";
import { findStoredWeight, type StoredWeight } from "./stored/weight-storage.ts";
import { wholeGroups } from "./stored/whole-groups.ts";
import { findUnread } from "./unread-tensors.ts";
import { damped, IMPORTANCE_DAMPING, TABLE_DAMPING, usualPower } from "./usual-power.ts";

/** Weights of experts, which are multiplied as one stack, so that all have the same order of columns. */
const EXPERT = /\.experts\.\d+\./;

/** Options with an abort signal. */
export interface AbortOptions {
  /** Ends the work; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** How a weight is wanted by one use of a model. */
export interface WeightUse extends AbortOptions {
  /** Packed layout that replaces the model's. */
  readonly layout?: string | undefined;
  /** Whether to give the stored values, whatever the configuration. */
  readonly float?: boolean | undefined;
  /** Which stored low-bit weights the destination can hold; others are quantized anew. Default: all. */
  readonly holds?: ((stored: LowBitTensor) => boolean) | undefined;
  /** Activations of weights that are kept as stored, where neither file nor model says them. Default: int8. */
  readonly activations?: ActivationKind | undefined;
  /** Whether weights will not be read, so that those that wait for calibration are given, too. */
  readonly unread?: boolean | undefined;
}

/** Where a quantized weight comes from, and how it is wanted. */
interface QuantizedSource {
  /** Name of the weight in the program, which tied slots share. */
  readonly handle: string;
  /** Name of the checkpoint's tensor. */
  readonly stored: string;
  readonly config: QuantizationConfig;
  readonly use: WeightUse;
}

/** A checkpoint as a model: an architecture, and a weight, with its state, for each of the architecture's slots. */
export class Model {
  /** The architecture with its sizes and weights, as a function over operators: a decoder or an encoder. */
  readonly network: Network;
  /** The files that the model was opened from. */
  readonly checkpoint: Checkpoint;
  /** Name of the packed layout for quantized weights; null lets the CPU decide. */
  layout: string | null = null;
  /**
   * Activations of low-bit weights that are kept as stored, where neither the file nor a configuration says them: quantized
   * to 8 bits in blocks (as llama.cpp does with such files), or by token, or float, which is exact and slower. Null: in
   * blocks for programs, float for files of other libraries.
   */
  activations: ActivationKind | null = null;
  /** Names of the checkpoint's tensors that no slot reads, such as biases that the config does not mention. */
  readonly unreadTensors: readonly string[];
  /** By slot name, in the model's order. */
  readonly #weights: ReadonlyMap<string, { slot: WeightSlot; stored: StoredWeight | null; state: WeightState }>;
  #isClosed = false;
  /** Mean squares of typical inputs by slot, once they were measured. */
  #usual: Promise<ReadonlyMap<string, Float32Array>> | null = null;
  /** Learned codebooks, by the key of the matrices that share one. */
  readonly #levels = new Map<string, Promise<Int8Array>>();
  /** The last quantized weight, since some formats read one weight for several constants in a row. */
  #last: { name: string; config: QuantizationConfig; data: Promise<QuantizedWeights> } | null = null;

  /**
   * Makes a model of a checkpoint and the network of its config. Throws for a checkpoint that lacks weights of the network.
   */
  constructor(checkpoint: Checkpoint, network: Network) {
    this.checkpoint = checkpoint;
    this.network = network;
    const weights = network.slots.map((slot) => {
      const stored = slot.tiedTo ? null : (findStoredWeight(checkpoint, slot) ?? bitnetWeight(checkpoint, slot));
      if (!stored && !slot.tiedTo) checkSlot(checkpoint, slot);
      if (stored && slot.pairs)
        throw new UnsupportedError(
          `${slot.name}: rows of heads that are pairs of neighbours are not supported in format ${stored.format.kind}`,
        );
      return [slot.name, { slot, stored, state: asStored }] as const;
    });
    checkMethod(checkpoint);
    this.#weights = new Map(weights);
    this.unreadTensors = findUnread(checkpoint, network, ({ name }) => this.#of(name).stored !== null);
  }

  /** The network as a decoder. UnsupportedError for a model that makes embeddings or scores. */
  get decoder(): Decoder {
    const { network } = this;
    if (!isEncoderNetwork(network)) return network as Decoder;
    const made = network.task === "embed" ? "embeddings" : "scores";
    throw new UnsupportedError(`${this.name}: ${network.architecture} gives ${made} of texts; it generates none`);
  }

  /** Whether it makes embeddings or scores of texts, rather than generating text. */
  get isEncoder(): boolean {
    return isEncoderNetwork(this.network);
  }

  /** Name of the checkpoint's folder or file, without the path before it. */
  get name(): string {
    return this.checkpoint.folder.match(/[^\\/]+(?=[\\/]*$)/)?.[0] ?? "";
  }

  /** The present weight of a slot: its stored form and its state. InvalidArgumentError for an unknown slot. */
  slotWeight(name: string): SlotWeight {
    return { ...this.#of(name) };
  }

  #of(name: string) {
    checkString("name", name);
    const weight = this.#weights.get(name);
    if (weight) return weight;
    throw new InvalidArgumentError(`weight ${name}: ${this.network.architecture} has none of that name`);
  }

  /** Configurations by slot name, as `quantize` set them; other slots keep their stored weights. */
  get configs(): ReadonlyMap<string, QuantizationConfig> {
    const set = [...this.#weights].map(([name, { state }]) => [name, configIn(state)] as const);
    return new Map(set.filter((entry): entry is [string, QuantizationConfig] => entry[1] !== undefined));
  }

  /** The configuration of a slot; undefined for none. */
  configOf(name: string): QuantizationConfig | undefined {
    return configIn(this.#of(name).state);
  }

  /**
   * Sets configurations of slots, or removes them where null is given; all of them, or none when one is refused.
   * InvalidArgumentError for slots whose weights cannot be quantized again, and after calibration, which belongs to the
   * configurations at that time.
   */
  configure(configs: ReadonlyMap<string, QuantizationConfig | null>): void {
    checkInstance("configs", configs, Map, "a Map of configurations");
    this.checkOpen();
    if (this.isCalibrated)
      throw new InvalidArgumentError(
        `${this.name}: is calibrated already, for the configurations that it had; load the checkpoint again, set all configurations, then calibrate`,
      );
    for (const [name, config] of configs) if (config) checkConfigurable(this.#ofSource(name));
    for (const [name, config] of configs) {
      const weight = this.#of(name);
      if (config) weight.state = { kind: "configured", config };
      else if (weight.state.kind === "configured") weight.state = asStored;
    }
  }

  /**
   * Replaces the weight of a slot, and of those tied to it, by one of any registered format, which is not quantized
   * further. ShapeError for another shape.
   */
  replaceWeight(name: string, weight: Weight): void {
    this.checkOpen();
    const replaced = this.#of(name);
    checkWeight(weight);
    const { shape } = replaced.slot;
    if (!isSameShape(weight.shape, shape))
      throw new ShapeError(`${name}: expected a weight of shape [${shape}] but found [${weight.shape}]`);
    for (const other of this.#weights.values()) if (other.slot.tiedTo === name) other.state = asStored;
    replaced.state = { kind: "replaced", weight };
  }

  /** Sets the calibrated weights of a slot. InvalidArgumentError for a slot without a configuration. */
  setCalibrated(name: string, load: () => Promise<QuantizedWeights>): void {
    checkInstance("load", load, Function, "a function");
    const weight = this.#of(name);
    const config = configIn(weight.state);
    if (!config) throw new InvalidArgumentError(`${name}: expected a configuration to calibrate for; quantize first`);
    weight.state = { kind: "calibrated", config, load };
  }

  /**
   * Sets, from a text, how much errors of each column of a slot's weight count when it is quantized, and with `correction`
   * the sums by which GPTQ chooses its weights. InvalidArgumentError for a slot without a configuration.
   */
  setImportance(name: string, importance: Float32Array, correction: Correction | null = null): void {
    checkInstance("importance", importance, Float32Array, "a Float32Array");
    const weight = this.#of(name);
    const config = configIn(weight.state);
    if (!config) throw new InvalidArgumentError(`${name}: expected a configuration to calibrate for; quantize first`);
    weight.state = { kind: "configured", config, importance, correction };
  }

  /** Whether weights were calibrated, so that no configuration can be set any more. */
  get isCalibrated(): boolean {
    return [...this.#weights.values()].some(({ state }) => isByText(state));
  }

  /** Whether weights were replaced or calibrated, so that they do not follow from the checkpoint alone. */
  get hasForeignWeights(): boolean {
    return [...this.#weights.values()].some(({ state }) => isByText(state) || state.kind === "replaced");
  }

  /** Runs work that changes weights; when it fails, all weights are as before. */
  async atomically<R>(work: () => Promise<R>): Promise<R> {
    checkInstance("work", work, Function, "a function");
    const before = [...this.#weights.values()].map((weight) => [weight, weight.state] as const);
    try {
      return await work();
    } catch (error) {
      for (const [weight, state] of before) weight.state = state;
      throw error;
    }
  }

  /**
   * Kind of a slot's stored or replaced weight where it has a format of its own, such as "aqlm"; null for a plain float
   * tensor.
   */
  storedFormat(name: string): string | null {
    const kind = ownWeight(this.#ofSource(name))?.format.kind ?? null;
    return kind === "float" ? null : kind;
  }

  /** The weight of a slot, or of the slot that it is tied to. */
  #ofSource(name: string) {
    const weight = this.#of(name);
    const { slot, state } = weight;
    return slot.tiedTo === null || state.kind === "replaced" ? weight : this.#of(slot.tiedTo);
  }

  /** InvalidArgumentError after `close`. */
  checkOpen(): void {
    if (this.#isClosed) throw new InvalidArgumentError(`${this.name}: the model is closed; load the checkpoint again`);
  }

  /**
   * The weight of a slot in the format it runs in. A tied slot with the same format gets the same buffer as its source.
   * InvalidArgumentError for a slot that waits for calibration, and for the float values of a calibrated one.
   */
  weight(name: string, use: WeightUse = {}): Weight {
    checkOptions(use);
    this.checkOpen();
    const { slot, state } = this.#of(name);
    const own = ownWeight(this.#ofSource(name));
    if (own) return own;
    if (use.float && state.kind === "calibrated")
      throw new InvalidArgumentError(`${name}: is calibrated; load the checkpoint again for its float weights`);
    const stored = slot.tiedTo ?? name;
    if (use.float) return this.#floatWeight(stored, slot.shape);
    const kept = this.keptAsStored(name, use.holds);
    if (kept) return this.#keptWeight(slot, kept, use);
    const config = configIn(state);
    if (!config) return this.#floatWeight(stored, slot.shape);
    const handle = config.kind === "sharedEmbedding" ? stored : name;
    return this.#quantizedWeight({ handle, stored, config, use }, slot);
  }

  /**
   * The stored low-bit weights of a slot that is kept as stored: without a configuration, or with one of as many bits, and
   * accepted by `holds`. Null for weights that are float or quantized anew.
   */
  keptAsStored(name: string, holds: WeightUse["holds"] = () => true): LowBitTensor | null {
    const { slot, state } = this.#of(name);
    if (slot.role === "vector" || state.kind === "calibrated" || ownWeight(this.#ofSource(name))) return null;
    const stored = this.checkpoint.tensors.lowBit?.(slot.tiedTo ?? name) ?? null;
    const config = configIn(state);
    if (!stored || (config && (config.ranges || config.bits !== stored.spec.bits)) || !holds(stored)) return null;
    return stored.order && EXPERT.test(name) ? null : stored;
  }

  /** The activations of a weight that `keptAsStored` gives; null where it gives none. */
  keptActivations(name: string, { holds, activations }: WeightUse = {}): ActivationKind | null {
    const kept = this.keptAsStored(name, holds);
    return kept && this.#activationsFor(name, kept, activations);
  }

  #activationsFor(name: string, found: LowBitTensor, otherwise: ActivationKind = "int8"): ActivationKind {
    const config = this.configOf(name);
    if (!config) return found.activations ?? this.activations ?? otherwise;
    return activationsOf(config);
  }

  /**
   * Checks norms, biases, and weights in formats of their own as far as possible without reading them whole; errors name
   * the tensor.
   */
  async checkTensors(): Promise<void> {
    for (const { stored } of this.#weights.values()) await stored?.verify?.();
    const { folder, tensors } = this.checkpoint;
    for (const { name, role } of this.network.slots)
      if (role === "vector") finiteFloats(folder, name, await tensors.read(name), "numbers");
  }

  /** Closes the weight files. Programs made of the model that were not written or loaded yet become unusable. */
  close(): Promise<void> {
    this.#isClosed = true;
    return this.checkpoint.close();
  }

  #keptWeight({ name: slot, tiedTo }: WeightSlot, found: LowBitTensor, use: WeightUse): Weight {
    const name = tiedTo ?? slot;
    const { layout } = use;
    const activations = this.#activationsFor(slot, found, use.activations);
    const checked = finiteLowBit(this.checkpoint.folder, name, found);
    const { rows, minima, order, ...stored } =
      activations !== "float" ? centered(layout === undefined ? wholeGroups(checked, this.layout) : checked) : checked;
    // A use names a layout for ExecuTorch only, whose scales are float32.
    const spec: WeightSpec = layout === undefined ? stored.spec : { ...stored.spec, scaleDType: "f32" };
    const { levels } = stored;
    const kept = { layout: layout ?? this.layout, ...(levels && { levels }) };
    const affine: AffineFormat = { kind: "affine", spec, activations, ...kept };
    const shape = [spec.n, spec.k] as const;
    const load = () => rows(0, spec.n);
    const weights = { name, shape, format: affine, load, loadRows: () => inParts(shape, rows) };
    const whole = minima ? withMinima(weights, minima) : weights;
    return order ? orderedColumns(whole, order) : whole;
  }

  #floatWeight(name: string, shape: readonly number[]): Weight {
    const { tensors } = this.checkpoint;
    const format: FloatFormat = { kind: "float", dtype: tensors.info(name).dtype as FloatFormat["dtype"] };
    const load = () => tensors.read(name);
    if (shape.length !== 2) return { name, shape, format, load };
    const rows = (first: number, count: number) => tensors.readRows(name, first, count);
    return { name, shape, format, load, loadRows: () => inParts(shape as [number, number], rows) };
  }

  #quantizedWeight(source: QuantizedSource, slot: WeightSlot): Weight {
    const { handle, config, use } = source;
    const [n] = slot.shape as [number, number];
    if (!config.ranges) return this.#quantizedRows(source, slot);
    if (use.layout !== undefined)
      throw new UnsupportedError(`${slot.name}: ranges: layout ${use.layout} has one number of bits for all rows`);
    const parts = schemesOfRows(n, config).map(({ first, rows, scheme }) => {
      const of = { ...source, handle: `${handle}[${first}:${first + rows}]`, config: scheme };
      return this.#quantizedRows(of, slot, { first, rows }) as AffineWeight;
    });
    return ofRowRanges(handle, parts);
  }

  #quantizedRows(source: QuantizedSource, slot: WeightSlot, range?: { first: number; rows: number }): Weight {
    const { handle, stored, config, use } = source;
    const k = slot.shape[1]!;
    const n = range?.rows ?? slot.shape[0]!;
    const spec = weightSpec(n, k, config);
    const affine: AffineFormat = {
      kind: "affine",
      spec,
      activations: activationsOf(config),
      layout: use.layout ?? this.layout,
      ...this.#codebookOf(stored, config, spec),
    };
    const rows: EmbeddingFormat = { kind: "embedding", spec };
    const format = config.kind === "embedding" && !range && fitsEmbeddingFormat(spec) ? rows : affine;
    const weight = { name: handle, shape: [n, k], format };
    const { state } = this.#of(slot.name);
    if (state.kind === "calibrated") return { ...weight, load: state.load };
    if (needsActivations(config.algorithm) && !isByText(state) && !use.unread)
      throw new InvalidArgumentError(
        `${slot.name}: algorithm "${config.algorithm}" looks at activations; calibrate the model with a text first`,
      );
    const importance = (of = slot.name) => this.importanceOf(of, use.signal);
    const levels = isLearned(stored, config) ? () => this.levelsOf(stored, config, importance) : undefined;
    const correction = state.kind === "configured" && state.correction;
    const quantize = correction ? correctedBy(correction) : undefined;
    const options = { config, ...(range && { range }), importance, levels, quantize, signal: use.signal };
    const loadRows = () => quantizeRows(this.checkpoint.tensors, stored, options);
    return { ...weight, load: () => this.#quantized(handle, n, config, loadRows), loadRows };
  }

  /**
   * How much errors of each column of a slot's weight count: by the calibration text, else by typical or expected inputs
   * where its algorithm uses them; null where all count alike.
   */
  async importanceOf(name: string, signal?: AbortSignal): Promise<Float32Array | null> {
    const { slot, state } = this.#of(name);
    const config = configIn(state);
    if (state.kind === "configured" && state.importance) return state.importance;
    if (config?.algorithm !== "mse" || config.kind === "embedding") return null;
    const isTable = config.kind === "sharedEmbedding";
    const head = isTable ? this.network.slots.find(({ tiedTo }) => tiedTo === (slot.tiedTo ?? name)) : slot;
    const power = (await this.readUsual(signal)).get(head?.name ?? name);
    return power ? damped(power, isTable ? TABLE_DAMPING : IMPORTANCE_DAMPING) : expectedPower(this, name);
  }

  /**
   * Mean squares of typical inputs by slot, measured once with the float weights, if any configuration's algorithm uses
   * them.
   */
  readUsual(signal?: AbortSignal): Promise<ReadonlyMap<string, Float32Array>> {
    const asking = [...this.configs.values()].some(
      ({ kind, algorithm }) => kind !== "embedding" && algorithm === "mse",
    );
    if (!asking) return Promise.resolve(new Map());
    this.#usual ??= usualPower(this, { signal });
    this.#usual.catch(() => {
      this.#usual = null;
    });
    return this.#usual;
  }

  /** The codebook of a slot, or its key, before its weights are read. */
  #codebookOf(name: string, config: QuantizationConfig, spec: WeightSpec): Pick<AffineFormat, "levels" | "codebook"> {
    if (!spec.hasLevels) return {};
    if (!isLearned(name, config)) return { levels: codebooks[spec.bits]! };
    return { codebook: codebookKey(namesOfCodebook(this, name, config), config) };
  }

  /**
   * The levels of a slot with mapping "kmeans", learned once for all matrices that share its codebook; `importance`: how
   * much errors of the columns of a matrix count.
   */
  levelsOf(name: string, config: QuantizationConfig, importance: SharedCodebook["importance"]): Promise<Int8Array> {
    const names = namesOfCodebook(this, name, config);
    const key = codebookKey(names, config);
    const stored = (slot: string) => this.slotWeight(slot).slot.tiedTo ?? slot;
    const known =
      this.#levels.get(key) ?? learnCodebook(this.checkpoint.tensors, { names, stored, importance }, config);
    this.#levels.set(key, known);
    return known;
  }

  async #quantized(
    name: string,
    rows: number,
    config: QuantizationConfig,
    loadRows: () => AsyncIterable<QuantizedWeights>,
  ): Promise<QuantizedWeights> {
    if (this.#last?.name !== name || this.#last.config !== config)
      this.#last = { name, config, data: joinRows(rows, loadRows()) };
    return this.#last.data;
  }
}

function codebookKey(names: readonly string[], config: QuantizationConfig): string {
  return `${names.join()} ${JSON.stringify(config)}`;
}

/** Makes a model of a checkpoint, and checks its norms, biases and formats. Errors are those of the checkpoint's files. */
export async function modelOf(checkpoint: Checkpoint): Promise<Model> {
  checkLayers(checkpoint);
  const model = new Model(...(await networkOf(checkpoint)));
  await model.checkTensors();
  return model;
}

/** InvalidArgumentError for anything but a model. */
export function checkModel(model: Model): void {
  checkInstance("model", model, Model, "one of loadCheckpoint()");
}
