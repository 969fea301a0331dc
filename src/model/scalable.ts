/**
 * Activations whose channels can be scaled without changing the model's function: their source's weights are divided by
 * factors, and the weights that read them multiplied. Quantizers thus move rounding difficulty from one side to the other.
 */

export interface ScalableActivation {
  /** Weight of the norm or linear layer that computes it. */
  readonly source: string;
  /** Bias of that linear layer, which is scaled with the weight; null for none. */
  readonly sourceBias: string | null;
  /** Set where the source is a norm; `offset` is added to its stored weights. */
  readonly norm: { readonly offset: number } | null;
  /** Element (norm) or row (linear layer) of the source for each channel of the activation. */
  readonly rows: Int32Array;
  /** Weights of the linear layers that read it; nothing else does. */
  readonly readers: readonly string[];
  /** The linear layer that gates it, channel by channel, after an activation function; null for none. */
  readonly gate: { readonly source: string; readonly rows: Int32Array } | null;
}

/** The row of a linear layer that computes each of `size` channels. */
interface RowsOf {
  readonly size: number;
  rowOf(channel: number): number;
}

const rowsOf = ({ size, rowOf }: RowsOf) => Int32Array.from({ length: size }, (_, c) => rowOf(c));

/** The activation that a norm of `size` values computes. */
export function madeByNorm(
  module: string,
  size: number,
  offset: number,
  readers: readonly string[],
): ScalableActivation {
  const rows = Int32Array.from({ length: size }, (_, c) => c);
  return { source: `${module}.weight`, sourceBias: null, norm: { offset }, rows, readers, gate: null };
}

/** The activation that a linear layer computes, and the layer that gates it, if one does. */
export function madeByLinear(
  module: string,
  hasBias: boolean,
  made: RowsOf & { readonly gate?: RowsOf & { readonly module: string } },
  reader: string,
): ScalableActivation {
  const { gate } = made;
  return {
    source: `${module}.weight`,
    sourceBias: hasBias ? `${module}.bias` : null,
    norm: null,
    rows: rowsOf(made),
    readers: [`${reader}.weight`],
    gate: gate ? { source: `${gate.module}.weight`, rows: rowsOf(gate) } : null,
  };
}
