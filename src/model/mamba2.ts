/**
 * Mamba 2 (Dao & Gu 2024): a short convolution, then a state that each token decays, updates and reads, and a gated norm of
 * the result. The papers' B and C are keys and queries here.
 */
import type { LayerPass, Mixer, PartActivations, Place } from "./layer.ts";
import { linearSlots, tapsSlot, vectorSlot, type WeightSlot } from "./weight-slot.ts";

export interface Mamba2Config {
  /** Elements of a token's hidden state. */
  readonly hidden: number;
  /** Heads of the state. */
  readonly heads: number;
  /** Elements of a head's input. */
  readonly headDim: number;
  /** Heads of keys and queries (groups), each of which serves heads / groups consecutive heads. */
  readonly groups: number;
  /** Elements of a key or query. */
  readonly stateDim: number;
  /** Inputs of the convolution for each result: the token's own and those before it. */
  readonly taps: number;
  /** Which layers have a bias: the convolution, and the linear layers. */
  readonly biases: { readonly convolution: boolean; readonly linear: boolean };
}

/** A layer's Mamba 2. Its states are the convolution's last inputs, and a matrix [stateDim, headDim] for each head. */
export class Mamba2 implements Mixer {
  readonly module = "mamba";
  readonly cache = null;
  readonly states = 2;
  readonly readsPackedSequences = false;
  readonly config: Mamba2Config;

  constructor(config: Mamba2Config) {
    this.config = config;
  }

  /** Elements of all heads' inputs, and of all keys. */
  get #sizes() {
    const { heads, headDim, groups, stateDim } = this.config;
    return { inner: heads * headDim, keys: groups * stateDim };
  }

  slots(module: string): WeightSlot[] {
    const { hidden, heads, taps, biases } = this.config;
    const { inner, keys } = this.#sizes;
    const channels = inner + 2 * keys;
    return [
      ...linearSlots(`${module}.in_proj`, inner + channels + heads, hidden, biases.linear),
      tapsSlot(`${module}.conv1d.weight`, channels, taps),
      ...(biases.convolution ? [vectorSlot(`${module}.conv1d.bias`, channels)] : []),
      vectorSlot(`${module}.dt_bias`, heads),
      vectorSlot(`${module}.A_log`, heads),
      vectorSlot(`${module}.D`, heads),
      vectorSlot(`${module}.norm.weight`, inner),
      ...linearSlots(`${module}.out_proj`, hidden, inner, biases.linear),
    ];
  }

  scalable(module: string): PartActivations {
    const rows = Int32Array.from({ length: this.#sizes.inner }, (_, c) => c);
    const normed = { source: `${module}.norm.weight`, sourceBias: null, norm: { offset: 0 }, rows, gate: null };
    return {
      readers: [`${module}.in_proj.weight`],
      inner: [{ ...normed, readers: [`${module}.out_proj.weight`] }],
    };
  }

  forward<T>(pass: LayerPass<T>, x: T, { module, firstState }: Place): T {
    const { ops } = pass;
    const { heads, groups, biases } = this.config;
    const { inner, keys } = this.#sizes;
    const weight = (name: string) => pass.weight(`${module}.${name}`);
    const all = pass.linear(x, `${module}.in_proj`, biases.linear);
    const behindGate = 2 * inner + 2 * keys;
    const convolved = ops.shortConvolution(
      ops.columns(all, inner, behindGate),
      weight("conv1d.weight"),
      biases.convolution ? weight("conv1d.bias") : null,
      { state: firstState, silu: true },
    );
    const input = ops.columns(convolved, 0, inner);
    const steps = ops.columns(all, behindGate, behindGate + heads);
    const bias = ops.vector(weight("dt_bias"));
    const step = ops.softplus(steps, bias, ops.literal(`ones_${heads}`, new Float32Array(heads).fill(1)));
    const rates = ops.vector(weight("A_log"), { key: " as decay", of: (log) => -Math.exp(log) });
    const part = (first: number) => ops.columns(convolved, first, first + keys);
    const read = ops.linearRecurrence(part(inner + keys), part(inner), ops.scaleParts(input, step), {
      state: firstState + 1,
      keyHeads: groups,
      logDecay: ops.softplus(steps, bias, rates),
    });
    const skipped = ops.add(read, ops.scaleParts(input, ops.vector(weight("D"))));
    const gated = ops.gated("silu", ops.columns(all, 0, inner), skipped);
    return pass.linear(this.#normed(pass, gated, module), `${module}.out_proj`, biases.linear);
  }

  /** Applies the norm to each group's values. */
  #normed<T>(pass: LayerPass<T>, x: T, module: string): T {
    const { ops, eps } = pass;
    const { groups } = this.config;
    const size = this.#sizes.inner / groups;
    const factors = pass.weight(`${module}.norm.weight`);
    if (groups === 1) return ops.rmsNorm(x, factors, eps);
    const ones = ops.literal(`ones_${size}`, new Float32Array(size).fill(1));
    return ops.scaleParts(ops.call("lowbit::rms_norm.out", x, ones, eps), ops.vector(factors));
  }
}
