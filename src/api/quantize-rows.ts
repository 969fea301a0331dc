/** Quantizes a stored matrix some rows at a time, so that its float32 form is never whole in memory. */
import { nextMacrotask } from "../event-loop.ts";
import type { TensorSource } from "../formats/tensor-source.ts";
import { quantizeAffine } from "../quantize/affine.ts";
import type { QuantizationConfig } from "../quantize/config.ts";
import { weightSpec } from "../quantize/scheme.ts";
import { groupCount, type QuantizedWeights } from "../quantized.ts";
import { toFloat32 } from "../tensor.ts";

/** Weights in float32 at a time: 16 MiB. */
const CHUNK_WEIGHTS = 1 << 22;

/** Reads and quantizes tensor `name` [n, k]; the event loop gets a turn after each chunk. */
export async function quantizeRows(
  tensors: TensorSource,
  name: string,
  config: QuantizationConfig,
  signal?: AbortSignal,
): Promise<QuantizedWeights> {
  const [n, k] = tensors.info(name).shape as [number, number];
  const spec = weightSpec(n, k, config);
  const groups = groupCount(spec);
  const qvals = new Int8Array(n * k);
  const scales = new Float32Array(n * groups);
  const zeros = spec.hasZeros ? new Int8Array(n * groups) : null;
  let levels: Int8Array | null = null;
  const rowStep = Math.max(1, Math.floor(CHUNK_WEIGHTS / k));
  for (let row = 0; row < n; row += rowStep) {
    signal?.throwIfAborted();
    const count = Math.min(rowStep, n - row);
    const values = toFloat32(await tensors.readRows(name, row, count));
    const part = quantizeAffine(values, { ...config, n: count, k });
    qvals.set(part.qvals, row * k);
    scales.set(part.scales, row * groups);
    if (part.zeros) zeros?.set(part.zeros, row * groups);
    levels = part.levels;
    await nextMacrotask();
  }
  return { ...spec, qvals, scales, zeros, levels };
}
