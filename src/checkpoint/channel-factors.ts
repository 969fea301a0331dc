/**
 * Factors of channels, chosen by typical inputs: what goes into linear layers is divided by them, and weights that read it
 * are multiplied, which changes no result of the float model. Weights and activations lose less when they are rounded.
 */
import type { Checkpoint } from "../formats/contract.ts";
import type { LowBitTensor, TensorSource } from "../formats/tensor-source.ts";
import { type Matrix, matrix } from "../matrix.ts";
import type { Network } from "../model/decoder.ts";
import type { ScalableActivation } from "../model/scalable.ts";
import type { QuantizationConfig } from "../quantize/config.ts";
import type { Algorithm } from "../quantize/scheme.ts";
import { type Tensor, toFloat32 } from "../tensor.ts";
import { powerFactors, type Reader } from "./calibrate/scaling.ts";
import type { LinearLayer } from "./calibrate/walk.ts";
import type { SlotWeight } from "./stored/slot-weight.ts";

/** What choosing factors needs of a model. */
export interface ScaledModel {
  /** The network, which knows the activations that can be scaled. */
  readonly network: Network;
  /** The float weights, and the tokenizer of the typical inputs. */
  readonly checkpoint: Checkpoint;
  /** The configuration of a slot's weight; undefined for float weights. */
  configOf(name: string): QuantizationConfig | undefined;
  /** Slot and stored name of a weight. */
  slotWeight(name: string): SlotWeight;
  /** The quantized format in which a weight is stored; null for floats. */
  storedFormat(name: string): string | null;
  /** A weight that is kept in the bits in which it is stored; null for others. */
  keptAsStored(name: string): LowBitTensor | null;
}

/** Factors by activation. */
export type ChannelFactors = ReadonlyMap<ScalableActivation, Float32Array>;

/** How a weight [n, k], or a vector [n], is scaled: w[r][c] * columns[c] / rows[r]; null for factors of 1. */
export interface ChannelScaling {
  /** Factors of columns [k]. */
  readonly columns: Float32Array | null;
  /** Divisors of rows [n]. */
  readonly rows: Float32Array | null;
}

export const unscaled: ChannelScaling = { columns: null, rows: null };

/** Algorithms that take factors of typical inputs: not those that compute TorchAO's integers, nor AWQ, which has its own. */
const scaled: ReadonlySet<Algorithm> = new Set(["mse", "imatrix", "gptq"]);
/** Rows of a matrix on which exponents are compared, in parts of neighbours, which are read at once. */
const SAMPLE = { parts: 4, rows: 8 } as const;

/** The activations of a model that are scaled, by the weights that make and read them. */
export class ScaledChannels {
  readonly #model: ScaledModel;
  #known: Record<"made" | "read", ReadonlyMap<string, ScalableActivation>> | null = null;

  constructor(model: ScaledModel) {
    this.#model = model;
  }

  /** Whether a slot's weight makes or reads an activation that is scaled. */
  concerns(name: string): boolean {
    return this.#makes(name) !== null || this.#reads(name) !== null;
  }

  /** Whether a norm makes what a tied head reads. */
  isForTied(name: string): boolean {
    const readers = this.#makes(name)?.readers ?? [];
    return readers.some((reader) => this.#model.slotWeight(reader).slot.tiedTo !== null);
  }

  /** What is added to a slot's stored values, where it is a norm's. */
  normOffset(name: string): number {
    const activation = this.#makes(name);
    return activation?.source === name ? (activation.norm?.offset ?? 0) : 0;
  }

  /** How a slot's weight is scaled by these factors. */
  scaling(name: string, factors: ChannelFactors): ChannelScaling {
    const [made, read] = [this.#makes(name), this.#reads(name)];
    const columns = (read && factors.get(read)) ?? null;
    const divisors = made && factors.get(made);
    if (!made || !divisors) return { columns, rows: null };
    const rows = new Float32Array(this.#model.slotWeight(name).slot.shape[0]!).fill(1);
    for (const [c, row] of made.rows.entries()) rows[row] = divisors[c]!;
    return { columns, rows };
  }

  /** Chooses factors of an activation when the first of its readers is about to run; adds them to `factors`. */
  async choose(layer: LinearLayer, factors: Map<ScalableActivation, Float32Array>): Promise<void> {
    const activation = this.#reads(layer.name);
    if (!activation || factors.has(activation) || layer.tokens === 0) return;
    if (!layer.power().every((value) => value < Number.POSITIVE_INFINITY)) return;
    const readers: Reader[] = [];
    for (const name of activation.readers)
      readers.push({ weights: await this.#sampleRows(name), config: this.#model.configOf(name)! });
    // Whoever reads all rows says which weight is not finite.
    if (!readers.every(({ weights }) => weights.data.every(Number.isFinite))) return;
    factors.set(activation, await powerFactors(activation, layer.inputs(), readers));
  }

  #makes(name: string): ScalableActivation | null {
    return this.#ifScaled(this.#index().made.get(name));
  }

  #reads(name: string): ScalableActivation | null {
    return this.#ifScaled(this.#index().read.get(name));
  }

  /** Activations by the weights that make and read them. */
  #index() {
    if (this.#known) return this.#known;
    const [made, read] = [new Map<string, ScalableActivation>(), new Map<string, ScalableActivation>()];
    for (const activation of this.#model.network.scalable) {
      const { source, sourceBias, readers } = activation;
      for (const name of sourceBias === null ? [source] : [source, sourceBias]) made.set(name, activation);
      for (const name of readers) read.set(name, activation);
    }
    this.#known = { made, read };
    return this.#known;
  }

  #ifScaled(activation: ScalableActivation | undefined): ScalableActivation | null {
    return activation && this.#isScaled(activation) ? activation : null;
  }

  #isScaled({ source, norm, readers }: ScalableActivation): boolean {
    if (!this.#model.checkpoint.tokenizerJson || !readers.every((name) => this.#isQuantized(name))) return false;
    return norm ? this.#model.storedFormat(source) === null : this.#isQuantized(source);
  }

  /** Whether a slot's weight is quantized from floats that may be scaled. */
  #isQuantized(name: string): boolean {
    const model = this.#model;
    const config = model.configOf(name);
    if (!config || !scaled.has(config.algorithm) || config.activationGranularity === "per_token") return false;
    if (config.kind === "sharedEmbedding" || config.kind === "embedding") return false;
    return model.storedFormat(name) === null && model.keptAsStored(name) === null;
  }

  async #sampleRows(name: string): Promise<Matrix> {
    const { tiedTo, shape } = this.#model.slotWeight(name).slot;
    const [n, k] = shape as [number, number];
    const rows = Math.min(SAMPLE.rows, n);
    const parts = Math.min(SAMPLE.parts, Math.floor(n / rows));
    const sample = matrix(parts * rows, k);
    for (let i = 0; i < parts; i++) {
      const part = await this.#model.checkpoint.tensors.readRows(tiedTo ?? name, Math.floor((i * n) / parts), rows);
      sample.data.set(toFloat32(part), i * rows * k);
    }
    return sample;
  }
}

/** Floats of a weight's rows from `first` on, scaled. */
export function scaledFloats(tensor: Tensor, { columns, rows }: ChannelScaling, first = 0): Tensor {
  if (!columns && !rows) return tensor;
  const { dtype, shape } = tensor;
  const values = toFloat32(tensor);
  const data = dtype === "f32" ? values.slice() : values;
  const n = shape[0]!;
  const k = data.length / n;
  for (let r = 0, i = 0; r < n; r++) {
    const factor = rows ? 1 / rows[first + r]! : 1;
    if (columns) for (let c = 0; c < k; c++, i++) data[i]! *= columns[c]! * factor;
    else for (let c = 0; c < k; c++, i++) data[i]! *= factor;
  }
  return { dtype: "f32", shape, data };
}

/** Tensors whose rows are scaled as `scalingOf` says, by name. */
export function scaledRows(
  tensors: TensorSource,
  scalingOf: (name: string) => Promise<ChannelScaling>,
): Pick<TensorSource, "info" | "readRows"> {
  return {
    info: (name) => tensors.info(name),
    async readRows(name, first, count) {
      const [tensor, scaling] = await Promise.all([tensors.readRows(name, first, count), scalingOf(name)]);
      return scaledFloats(tensor, scaling, first);
    },
  };
}
