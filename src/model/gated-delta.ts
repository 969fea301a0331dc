/**
 * Gated DeltaNet (Yang et al. 2025) as in Qwen3-Next and Qwen3.5: queries, keys and values after a short convolution, a
 * state that each token decays and corrects by the delta rule, and a gated norm of the result.
 */
import type { LayerPass, Mixer, PartActivations, Place } from "./layer.ts";
import { linearSlots, tapsSlot, vectorSlot, type WeightSlot } from "./weight-slot.ts";

export interface GatedDeltaConfig {
  /** Elements of a token's hidden state. */
  readonly hidden: number;
  /** Heads of queries and keys. */
  readonly keyHeads: number;
  /** Heads of values and of the state; each key head serves heads / keyHeads consecutive ones. */
  readonly heads: number;
  /** Elements of a head of queries or keys. */
  readonly keyDim: number;
  /** Elements of a head of values. */
  readonly valueDim: number;
  /** Inputs of the convolution for each result: the token's own and those before it. */
  readonly taps: number;
}

/** Added under the square root of the lengths that queries and keys are divided by. */
const LENGTH_EPS = 1e-6;

/**
 * A layer's gated DeltaNet. Its states are the convolution's last inputs, and a matrix [keyDim, valueDim] for each head.
 */
export class GatedDelta implements Mixer {
  readonly module = "linear_attn";
  readonly cache = null;
  readonly states = 2;
  readonly readsPackedSequences = false;
  readonly config: GatedDeltaConfig;

  constructor(config: GatedDeltaConfig) {
    this.config = config;
  }

  slots(module: string): WeightSlot[] {
    const { hidden, keyHeads, heads, keyDim, valueDim, taps } = this.config;
    const [keys, values] = [keyHeads * keyDim, heads * valueDim];
    const project = (name: string, n: number) => linearSlots(`${module}.${name}`, n, hidden);
    return [
      ...project("in_proj_qkv", 2 * keys + values),
      ...project("in_proj_z", values),
      ...project("in_proj_b", heads),
      ...project("in_proj_a", heads),
      tapsSlot(`${module}.conv1d.weight`, 2 * keys + values, taps),
      vectorSlot(`${module}.dt_bias`, heads),
      vectorSlot(`${module}.A_log`, heads),
      vectorSlot(`${module}.norm.weight`, valueDim),
      ...linearSlots(`${module}.out_proj`, hidden, values),
    ];
  }

  scalable(module: string): PartActivations {
    const { heads, valueDim } = this.config;
    const readers = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"].map((name) => `${module}.${name}.weight`);
    // All heads share the weights of the norm.
    const rows = Int32Array.from({ length: heads * valueDim }, (_, c) => c % valueDim);
    const normed = { source: `${module}.norm.weight`, sourceBias: null, norm: { offset: 0 }, rows, gate: null };
    return { readers, inner: [{ ...normed, readers: [`${module}.out_proj.weight`] }] };
  }

  forward<T>(pass: LayerPass<T>, x: T, { module, firstState }: Place): T {
    const { ops, eps } = pass;
    const { keyHeads, heads, keyDim, valueDim } = this.config;
    const [keys, values] = [keyHeads * keyDim, heads * valueDim];
    const project = (name: string) => pass.linear(x, `${module}.${name}`);
    const weight = (name: string) => pass.weight(`${module}.${name}`);
    const [qkv, z, b, a] = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"].map(project) as [T, T, T, T];
    const mixed = ops.shortConvolution(qkv, weight("conv1d.weight"), null, { state: firstState, silu: true });
    const unit = (first: number) => ops.normalize(ops.columns(mixed, first, first + keys), keyDim, LENGTH_EPS);
    const rates = ops.vector(weight("A_log"), { key: " as decay", of: (log) => -Math.exp(log) });
    const read = ops.linearRecurrence(unit(0), unit(keys), ops.columns(mixed, 2 * keys, 2 * keys + values), {
      state: firstState + 1,
      keyHeads,
      logDecay: ops.softplus(a, ops.vector(weight("dt_bias")), rates),
      beta: ops.sigmoid(b),
      scale: keyDim ** -0.5,
    });
    const normed = ops.rmsNorm(read, weight("norm.weight"), eps);
    return pass.linear(ops.gated("silu", z, normed), `${module}.out_proj`);
  }
}
