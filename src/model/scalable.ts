/**
 * Activations whose channels may be scaled without a change of what the model computes: whatever makes them gives less,
 * and the linear layers that read them take more. Quantizers move what is hard to round from one side to the other.
 */
import type { TransformerConfig } from "./transformer-config.ts";

export interface ScalableActivation {
  /** Weight of the norm or of the linear layer that makes it. */
  readonly source: string;
  /** Bias of that linear layer, in proportion to which it gives its output too. */
  readonly sourceBias: string | null;
  /** Whether the source is a norm; what is then added to its stored weights. */
  readonly norm: { readonly offset: number } | null;
  /** Element or row of the source for each channel of the activation. */
  readonly rows: Int32Array;
  /** Weights of the linear layers that read it, and nothing else does. */
  readonly readers: readonly string[];
}

/** In the order in which the model computes them. */
export function scalableActivations(config: TransformerConfig): ScalableActivation[] {
  return config.layers.flatMap((_, i) => layerActivations(config, `model.layers.${i}`));
}

function layerActivations(config: TransformerConfig, layer: string): ScalableActivation[] {
  const { norms, hidden, intermediate, heads, kvHeads, headDim, biases, fused } = config;
  const [attention, mlp] = [`${layer}.self_attn`, `${layer}.mlp`];
  const norm = (name: string | null, readers: string[]): ScalableActivation[] =>
    name === null
      ? []
      : [
          {
            source: `${layer}.${name}.weight`,
            sourceBias: null,
            norm: { offset: norms.offset },
            rows: Int32Array.from({ length: hidden }, (_, c) => c),
            readers,
          },
        ];
  const linear = (module: string, bias: boolean, rows: Int32Array, reader: string): ScalableActivation => ({
    source: `${module}.weight`,
    sourceBias: bias ? `${module}.bias` : null,
    norm: null,
    rows,
    readers: [`${reader}.weight`],
  });
  const projections = fused ? ["qkv_proj"] : ["q_proj", "k_proj", "v_proj"];
  const gates = fused ? ["gate_up_proj"] : ["gate_proj", "up_proj"];
  // Queries of several heads read the values of one.
  const firstValue = fused ? (heads + kvHeads) * headDim : 0;
  const valueRow = (c: number) => {
    const head = Math.floor(Math.floor(c / headDim) / (heads / kvHeads));
    return firstValue + head * headDim + (c % headDim);
  };
  const values = Int32Array.from({ length: heads * headDim }, (_, c) => valueRow(c));
  const ups = Int32Array.from({ length: intermediate }, (_, c) => (fused ? intermediate : 0) + c);
  return [
    ...norm(
      norms.beforeAttention,
      projections.map((name) => `${attention}.${name}.weight`),
    ),
    linear(`${attention}.${projections.at(-1)}`, biases.qkv, values, `${attention}.o_proj`),
    ...norm(
      norms.beforeMlp,
      gates.map((name) => `${mlp}.${name}.weight`),
    ),
    linear(`${mlp}.${gates.at(-1)}`, biases.mlp, ups, `${mlp}.down_proj`),
  ];
}
