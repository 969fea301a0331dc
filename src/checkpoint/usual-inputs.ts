/** Typical inputs of a model that is quantized: measured once for its configurations, when they are first needed. */
import type { WeightSlot } from "../model/decoder.ts";
import type { ScalableActivation } from "../model/scalable.ts";
import type { FloatWeight } from "../ops/weight.ts";
import type { QuantizationConfig } from "../quantize/config.ts";
import { toFloat32 } from "../tensor.ts";
import type { LinearLayer, WalkedModel } from "./calibrate/walk.ts";
import {
  type ChannelFactors,
  type ChannelScaling,
  ScaledChannels,
  type ScaledModel,
  scaledFloats,
  unscaled,
} from "./channel-factors.ts";
import { usualPower } from "./usual-power.ts";

/** What typical inputs need of a model. */
interface ConfiguredModel extends ScaledModel, WalkedModel {
  /** Configurations by slot name. */
  readonly configs: ReadonlyMap<string, QuantizationConfig>;
}

/** How a vector is wanted, as in `WeightUse`. */
interface VectorUse {
  /** Aborts measuring; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** Whether the tied embedding and head share one table, which is not scaled. */
  readonly sharesTied?: boolean | undefined;
}

/** What was measured. */
interface Measured {
  /** Mean squares of inputs by slot name. */
  readonly power: ReadonlyMap<string, Float32Array>;
  /** Factors of their channels. */
  readonly factors: ChannelFactors;
}

const nothing: Measured = { power: new Map(), factors: new Map() };

export class UsualInputs {
  readonly #model: ConfiguredModel;
  readonly #channels: ScaledChannels;
  #measured: Promise<Measured> | null = null;
  /** Whether channels are scaled by factors of typical inputs; false where they are scaled in another way. */
  scales = true;
  #isHeld = false;

  constructor(model: ConfiguredModel) {
    this.#model = model;
    this.#channels = new ScaledChannels(model);
  }

  /** Forgets what was measured, since factors depend on configurations; does nothing while a search holds it. */
  forget(): void {
    if (!this.#isHeld) this.#measured = null;
  }

  /** Runs a search among configurations, all of which are tried with the factors of the present ones. */
  async held<T>(search: () => Promise<T>): Promise<T> {
    this.#isHeld = true;
    try {
      return await search();
    } finally {
      this.#isHeld = false;
      this.forget();
    }
  }

  /** Mean squares by slot name; empty where no configuration uses them, and without a tokenizer. */
  async power(signal?: AbortSignal): Promise<ReadonlyMap<string, Float32Array>> {
    return (await this.#measure(signal)).power;
  }

  /** How a slot's weight is scaled before it is quantized. */
  async scaling(name: string, signal?: AbortSignal): Promise<ChannelScaling> {
    if (!this.scales || !this.#channels.concerns(name)) return unscaled;
    return this.#channels.scaling(name, (await this.#measure(signal)).factors);
  }

  /** A norm's factors or a bias, divided by factors of channels; null for those that are not. */
  scaledVector({ name, role, shape }: WeightSlot, { signal, sharesTied = false }: VectorUse): FloatWeight | null {
    if (role !== "vector" || !this.scales || !this.#channels.concerns(name)) return null;
    if (sharesTied && this.#channels.isForTied(name)) return null;
    const { tensors } = this.#model.checkpoint;
    const offset = this.#channels.normOffset(name);
    const load = async () => {
      const [values, scaling] = await Promise.all([tensors.read(name), this.scaling(name, signal)]);
      const moved = toFloat32(values).map((value) => value + offset);
      const { data } = scaledFloats({ dtype: "f32", shape, data: moved }, scaling);
      return { dtype: "f32", shape, data: (data as Float32Array).map((value) => value - offset) } as const;
    };
    return { name, shape, format: { kind: "float", dtype: "f32" }, load };
  }

  #measure(signal?: AbortSignal): Promise<Measured> {
    const isSearched = [...this.#model.configs.values()].some(
      ({ kind, algorithm }) => kind !== "embedding" && algorithm !== "affine" && algorithm !== "hqq_scale_only",
    );
    if (!isSearched) return Promise.resolve(nothing);
    const measured = this.#measured ?? this.#read(signal);
    measured.catch(() => {
      if (this.#measured === measured) this.#measured = null;
    });
    this.#measured = measured;
    return measured;
  }

  async #read(signal?: AbortSignal): Promise<Measured> {
    const factors = new Map<ScalableActivation, Float32Array>();
    const visit = async (layer: LinearLayer) => {
      if (this.scales) await this.#channels.choose(layer, factors);
    };
    return { power: await usualPower(this.#model, { signal, visit }), factors };
  }
}
