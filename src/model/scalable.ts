/**
 * Activations whose channels may be scaled without a change of what the model computes: whatever makes them gives less,
 * and the linear layers that read them take more. Quantizers move what is hard to round from one side to the other.
 */

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
  /** The linear layer whose rows, after the activation function, it is multiplied with, channel by channel; null for none. */
  readonly gate: { readonly source: string; readonly rows: Int32Array } | null;
}

/** Which row of a linear layer makes each of `size` channels. */
interface RowsOf {
  readonly size: number;
  rowOf(channel: number): number;
}

const rowsOf = ({ size, rowOf }: RowsOf) => Int32Array.from({ length: size }, (_, c) => rowOf(c));

/** What a norm of `size` values makes. */
export function madeByNorm(
  module: string,
  size: number,
  offset: number,
  readers: readonly string[],
): ScalableActivation {
  const rows = Int32Array.from({ length: size }, (_, c) => c);
  return { source: `${module}.weight`, sourceBias: null, norm: { offset }, rows, readers, gate: null };
}

/** What a linear layer makes, and the layer that gates it, if one does. */
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
