/** A checkpoint opened as a model: an architecture, and weights that are read, and quantized, when they are needed. */
import { basename } from "node:path";
import { checkInstance, checkOptions } from "../arguments.ts";
import { InvalidArgumentError, ShapeError } from "../errors.ts";
import { type Checkpoint, openCheckpoint } from "../formats/checkpoint.ts";
import type { LowBitTensor } from "../formats/tensor-source.ts";
import { type PullOptions, pullModel } from "../hub/snapshot.ts";
import { buildDecoder } from "../model/architectures.ts";
import type { Decoder, WeightSlot } from "../model/decoder.ts";
import { checkPath } from "../node-file.ts";
import { type AffineFormat, type EmbeddingFormat, fitsEmbeddingFormat } from "../ops/lowering.ts";
import type { MinimaFormat } from "../ops/minima.ts";
import type { FloatFormat, Weight } from "../ops/weight.ts";
import type { QuantizationConfig } from "../quantize/config.ts";
import { needsActivations, weightSpec } from "../quantize/scheme.ts";
import { groupCount, type QuantizedWeights, type WeightSpec } from "../quantized.ts";
import { isSameShape } from "../tensor.ts";
import { withModelPrefix } from "./base-names.ts";
import { centered } from "./centered-minima.ts";
import { checkSlot } from "./check-slot.ts";
import { finiteFloats } from "./finite.ts";
import { inParts, joinRows, quantizeRows } from "./quantize-rows.ts";
import { withStoredHead } from "./tied-head.ts";
import { findUnread } from "./unread-tensors.ts";
import { findStoredWeight, type StoredWeight } from "./weight-storage.ts";

/** What loading and quantizing a weight may report and obey. */
export interface ModelHooks {
  readonly signal?: AbortSignal | undefined;
}

/** How one use of a model wants its weights. */
export interface WeightUse extends ModelHooks {
  /** Packed layout, in place of the model's. */
  readonly layout?: string | undefined;
  /** The values that are stored, whatever configuration is set. */
  readonly float?: boolean | undefined;
  /** Which of the checkpoint's low-bit weights its place can hold; others are quantized anew. Default: all. */
  readonly holds?: ((stored: LowBitTensor) => boolean) | undefined;
}

/** Weights that were quantized by the activations of a text, with the configuration that they have. */
interface CalibratedWeight {
  readonly config: QuantizationConfig;
  readonly load: () => Promise<QuantizedWeights>;
}

export class Model {
  readonly decoder: Decoder;
  readonly checkpoint: Checkpoint;
  /** Configurations by slot name, as `quantize` set them; slots that are not here stay float. */
  readonly configs = new Map<string, QuantizationConfig>();
  /** Name of the packed layout for quantized weights; null lets the CPU decide. */
  layout: string | null = null;
  /** Names of the checkpoint's tensors that the model has no place for, such as biases that the config does not say. */
  readonly unreadTensors: readonly string[];
  /** Weights that the checkpoint stores in formats of their own, by slot name. */
  readonly #stored = new Map<string, StoredWeight>();
  /** What `replaceWeight` set, by slot name. */
  readonly #replaced = new Map<string, Weight>();
  /** By slot name. */
  readonly #calibrated = new Map<string, CalibratedWeight>();
  #hasForeignWeights = false;
  /** The last quantized weight: some formats read one weight for several constants in a row. */
  #last: { name: string; config: QuantizationConfig; data: Promise<QuantizedWeights> } | null = null;

  constructor(checkpoint: Checkpoint) {
    this.checkpoint = checkpoint;
    this.decoder = buildDecoder(checkpoint.configFile, checkpoint.config);
    for (const slot of this.decoder.slots) {
      const stored = slot.tiedTo ? null : findStoredWeight(checkpoint, slot);
      if (stored) this.#stored.set(slot.name, stored);
      else if (!slot.tiedTo) checkSlot(checkpoint, slot);
    }
    this.unreadTensors = findUnread(checkpoint, this.decoder.slots, ({ name }) => this.#stored.has(name));
  }

  /** Folder name of the checkpoint. */
  get name(): string {
    return basename(this.checkpoint.folder);
  }

  /** Gives a slot a weight of any registered format, which is not quantized further. ShapeError for one of another shape. */
  replaceWeight(name: string, weight: Weight): void {
    const slot = this.decoder.slots.find((candidate) => candidate.name === name) ?? this.#unknown(name);
    if (!isSameShape(weight.shape, slot.shape))
      throw new ShapeError(`${name}: expected a weight of shape [${slot.shape}] but found [${weight.shape}]`);
    this.configs.delete(name);
    this.#replaced.set(name, weight);
    this.#hasForeignWeights = true;
  }

  /** Whether weights were replaced or calibrated: what they are does not follow from the checkpoint alone. */
  get hasForeignWeights(): boolean {
    return this.#hasForeignWeights;
  }

  /** Format of a slot's weight when it has one of its own, "aqlm"; null for a plain float tensor. */
  storedFormat(name: string): string | null {
    const kind = this.#ownWeight(name)?.format.kind ?? null;
    return kind === "float" ? null : kind;
  }

  /** Format of its own in which the checkpoint stores a slot, whatever replaces it; null for a plain tensor. */
  checkpointFormat(name: string): string | null {
    return this.#stored.get(name)?.format.kind ?? null;
  }

  /** Whether `replaceWeight` gave a slot its weight. */
  isReplaced(name: string): boolean {
    return this.#replaced.has(name);
  }

  #ownWeight(name: string): Weight | undefined {
    return this.#replaced.get(name) ?? this.#stored.get(name);
  }

  /** Gives a slot quantized weights of a configuration, which count until it gets another one. */
  setCalibrated(name: string, config: QuantizationConfig, load: () => Promise<QuantizedWeights>): void {
    this.configs.set(name, config);
    this.#calibrated.set(name, { config, load });
    this.#hasForeignWeights = true;
  }

  #unknown(name: string): never {
    throw new InvalidArgumentError(`weight ${name}: ${this.decoder.architecture} has none of that name`);
  }

  /** The weight of a slot in the format it runs in. A tied slot of the same format is its source's very buffer. */
  weight(name: string, hooks: WeightUse = {}): Weight {
    const slot = this.decoder.slots.find((candidate) => candidate.name === name);
    if (!slot) return this.#unknown(name);
    const own = this.#ownWeight(name);
    if (own) return own;
    const calibrated = this.#calibrated.get(name);
    if (calibrated && (hooks.float || calibrated.config !== this.configs.get(name)))
      throw new InvalidArgumentError(
        `${name}: is calibrated with the configuration it had; load the checkpoint again for another`,
      );
    const carried = this.carriedOver(name, hooks.holds);
    if (hooks.float) return this.#floatWeight(slot.tiedTo ?? name, slot.tiedTo ?? name, slot.shape);
    if (carried) return this.#carriedWeight(slot, carried, hooks);
    const config = this.configs.get(name);
    const sharesBuffer = slot.tiedTo && (!config || config.kind === "sharedEmbedding");
    const handle = sharesBuffer ? slot.tiedTo! : name;
    const stored = slot.tiedTo ?? name;
    if (!config) return this.#floatWeight(handle, stored, slot.shape);
    return this.#quantizedWeight({ handle, stored, config, hooks }, slot);
  }

  /**
   * The low-bit weights that the checkpoint stores for a slot when they are kept as they are: no configuration is set,
   * or one of as many bits, and `holds` accepts them. Null for weights that are float or quantized anew.
   */
  carriedOver(name: string, holds: WeightUse["holds"] = () => true): LowBitTensor | null {
    const slot = this.decoder.slots.find((candidate) => candidate.name === name);
    if (!slot || slot.role === "vector" || this.#ownWeight(name)) return null;
    const stored = this.checkpoint.tensors.lowBit?.(slot.tiedTo ?? name) ?? null;
    const config = this.configs.get(name);
    return stored && (!config || config.bits === stored.spec.bits) && holds(stored) ? stored : null;
  }

  /** Checks norms, biases, and what can be of weights in formats of their own without reading them whole; errors name the tensor. */
  async checkTensors(): Promise<void> {
    for (const weight of this.#stored.values()) await weight.verify?.();
    const { folder, tensors } = this.checkpoint;
    for (const { name, role } of this.decoder.slots)
      if (role === "vector") finiteFloats(folder, name, await tensors.read(name), "numbers");
  }

  /** Closes the weight files. */
  close(): Promise<void> {
    return this.checkpoint.close();
  }

  #carriedWeight({ name: slot, tiedTo }: WeightSlot, found: LowBitTensor, { layout }: WeightUse): Weight {
    const name = tiedTo ?? slot;
    const config = this.configs.get(slot);
    const kept = found.activations ?? "float";
    const activations = !config ? kept : config.kind === "intxWeightOnly" ? "float" : "int8";
    const { rows, minima, ...stored } = activations === "int8" ? centered(found) : found;
    // Layouts that a use names are of others, whose scales are float32.
    const spec: WeightSpec = layout === undefined ? stored.spec : { ...stored.spec, scaleDType: "f32" };
    const affine: AffineFormat = { kind: "affine", spec, activations, layout: layout ?? this.layout };
    const shape = [spec.n, spec.k] as const;
    const load = () => rows(0, spec.n);
    const weights = { name, shape, format: affine, load, loadRows: () => inParts(shape, rows) };
    if (!minima) return weights;
    const sizes = [spec.n, groupCount(spec)] as const;
    const loadMinima = () => minima.rows(0, spec.n);
    const format: MinimaFormat = {
      kind: "minima",
      weights,
      minima: {
        name: `${name}.minima`,
        shape: sizes,
        format: { kind: "float", dtype: minima.dtype },
        load: loadMinima,
      },
    };
    return { name, shape, format, load };
  }

  #floatWeight(name: string, stored: string, shape: readonly number[]): Weight {
    const { tensors } = this.checkpoint;
    const format: FloatFormat = { kind: "float", dtype: tensors.info(stored).dtype as FloatFormat["dtype"] };
    const load = () => tensors.read(stored);
    if (shape.length !== 2) return { name, shape, format, load };
    const rows = (first: number, count: number) => tensors.readRows(stored, first, count);
    return { name, shape, format, load, loadRows: () => inParts(shape as [number, number], rows) };
  }

  #quantizedWeight(
    source: { handle: string; stored: string; config: QuantizationConfig; hooks: WeightUse },
    slot: WeightSlot,
  ): Weight {
    const { handle, stored, config, hooks } = source;
    const [n, k] = slot.shape as [number, number];
    const spec = weightSpec(n, k, config);
    const affine: AffineFormat = {
      kind: "affine",
      spec,
      activations: config.kind === "intxWeightOnly" ? "float" : "int8",
      layout: hooks.layout ?? this.layout,
    };
    const rows: EmbeddingFormat = { kind: "embedding", spec };
    const format = config.kind === "embedding" && fitsEmbeddingFormat(spec) ? rows : affine;
    const weight = { name: handle, shape: slot.shape, format };
    const calibrated = this.#calibrated.get(slot.name);
    if (calibrated) return { ...weight, load: calibrated.load };
    return {
      ...weight,
      load: () => this.#quantized(slot.name, stored, config, hooks),
      loadRows: () => this.#quantizedRows(slot.name, stored, config, hooks),
    };
  }

  #quantizedRows(
    slot: string,
    name: string,
    config: QuantizationConfig,
    { signal }: ModelHooks,
  ): AsyncIterable<QuantizedWeights> {
    if (needsActivations(config.algorithm))
      throw new InvalidArgumentError(
        `${slot}: algorithm "${config.algorithm}" looks at activations; calibrate the model with a text first`,
      );
    return quantizeRows(this.checkpoint.tensors, name, config, signal);
  }

  async #quantized(
    slot: string,
    name: string,
    config: QuantizationConfig,
    hooks: ModelHooks,
  ): Promise<QuantizedWeights> {
    if (this.#last?.name !== name || this.#last.config !== config) {
      const rows = this.checkpoint.tensors.info(name).shape[0]!;
      this.#last = { name, config, data: joinRows(rows, this.#quantizedRows(slot, name, config, hooks)) };
    }
    return this.#last.data;
  }
}

/** InvalidArgumentError for what is no model. */
export function checkModel(model: Model): void {
  checkInstance("model", model, Model, "one of loadCheckpoint()");
}

/** Whether a path names a model on the hub: "hf:org/name". */
export function isHubName(path: string): boolean {
  return path.startsWith("hf:");
}

/** Opens a Hugging Face checkpoint folder, a .safetensors file in one, or a GGUF file, or downloads "hf:org/name[@revision]", and checks its tensors against its config. */
export async function loadCheckpoint(path: string, options: PullOptions = {}): Promise<Model> {
  checkPath(path);
  checkOptions(options);
  const checkpoint = await openCheckpoint(isHubName(path) ? await pullModel(path, options) : path);
  try {
    const model = new Model(await withStoredHead(withModelPrefix(checkpoint)));
    await model.checkTensors();
    return model;
  } catch (error) {
    await checkpoint.close();
    throw error;
  }
}
