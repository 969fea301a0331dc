/** What packed weights hold, for tests to compare. */
import type { PackedWeights } from "../../src/kernels/contract.ts";
import { weightRow } from "../../src/kernels/layout/packed.ts";
import { groupCount, type QuantizedWeights } from "../../src/quantized.ts";

/** The inverse of `packWeights`, but for the factors of integer scales. */
export function unpackWeights(packed: PackedWeights): { weights: QuantizedWeights; bias: Float32Array | null } {
  const { spec, layout, levels } = packed;
  const { n, k } = spec;
  const groups = groupCount(spec);
  const qvals = new Int8Array(n * k);
  const scales = new Float32Array(n * groups);
  const zeros = spec.hasZeros ? new Int8Array(n * groups) : null;
  const minima = spec.hasMinima ? new Float32Array(n * groups) : undefined;
  const bias = packed.hasBias ? new Float32Array(n) : null;
  const row = weightRow(spec);
  for (let r = 0; r < n; r++) {
    layout.readRow(packed, r, row);
    qvals.set(row.qvals, r * k);
    scales.set(row.scales, r * groups);
    zeros?.set(row.zeros, r * groups);
    minima?.set(row.minima, r * groups);
    if (bias) bias[r] = layout.readBias(packed, r);
  }
  return { weights: { ...spec, qvals, scales, zeros, levels, ...(minima && { minima }) }, bias };
}
