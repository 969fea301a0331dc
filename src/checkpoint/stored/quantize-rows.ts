/** Quantizes a stored matrix some rows at a time, so that neither its floats nor its integers are whole in memory. */
import { InvalidArgumentError } from "../../errors.ts";
import { nextMacrotask } from "../../event-loop.ts";
import type { TensorSource } from "../../formats/tensor-source.ts";
import { canRoundNatively, roundNatively } from "../../kernels/families/packing/quantizer.ts";
import { PANEL_ROWS_MAX } from "../../kernels/layout/packed.ts";
import { codebooks } from "../../quantize/codebooks.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import { trialsOf } from "../../quantize/group-fit.ts";
import { quantizeWeights } from "../../quantize/mse.ts";
import { weightSpec } from "../../quantize/scheme.ts";
import { groupCount, hasFactors, type QuantizedWeights, superGroupCount } from "../../quantized.ts";
import { type Tensor, toFloat32 } from "../../tensor.ts";

/** Weights that are quantized at a time: integers and sources stay in the caches of most processors. */
const CHUNK_WEIGHTS = 1 << 20;

/**
 * The rows of a matrix [n, k] in parts, in order, as `read` gives them; all but the last are whole panels of any layout.
 */
export async function* inParts<P>(
  [n, k]: readonly [number, number],
  read: (first: number, count: number) => Promise<P>,
  signal?: AbortSignal,
): AsyncGenerator<P> {
  const rowStep = PANEL_ROWS_MAX * Math.max(1, Math.floor(CHUNK_WEIGHTS / k / PANEL_ROWS_MAX));
  const readFrom = (first: number) => {
    const part = first < n ? read(first, Math.min(rowStep, n - first)) : null;
    part?.catch(() => {}); // An error is thrown when the part is awaited.
    return part;
  };
  // While the caller uses a part, the next one is made and the one after that is read.
  const ahead = [readFrom(0), readFrom(rowStep)];
  for (let row = 2 * rowStep; ahead[0]; row += rowStep) {
    signal?.throwIfAborted();
    const part = await ahead.shift()!;
    ahead.push(readFrom(row));
    yield part;
    await nextMacrotask();
  }
}

/** How the rows of a tensor are quantized. */
export interface RowsOptions {
  readonly config: QuantizationConfig;
  /** How much errors of each column count, for algorithms that use it; without it, all count alike. */
  readonly importance?: () => Promise<Float32Array | null>;
  /** Quantizes rows. Default: `quantizeTensor`. */
  readonly quantize?: typeof quantizeTensor | undefined;
  /** Index of the first row, and number of rows. Default: all. */
  readonly range?: { readonly first: number; readonly rows: number };
  /** The codebook, where it is not the fixed one for the number of bits. */
  readonly levels?: (() => Promise<Int8Array>) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Reads and quantizes tensor `name` [n, k], or a range of its rows, in parts. */
export function quantizeRows(
  tensors: Pick<TensorSource, "info" | "readRows">,
  name: string,
  { config, range, importance, levels, quantize = quantizeTensor, signal }: RowsOptions,
): AsyncGenerator<QuantizedWeights> {
  const [n, k] = tensors.info(name).shape as [number, number];
  const { first: start, rows } = range ?? { first: 0, rows: n };
  let known: Promise<Float32Array | null> | undefined;
  const read = async (at: number, count: number) => {
    const first = start + at;
    try {
      const values = await tensors.readRows(name, first, count);
      known ??= importance?.();
      return await quantize(values, config, (await known) ?? null, await levels?.());
    } catch (cause) {
      if (!(cause instanceof InvalidArgumentError)) throw cause;
      const place = `${name}, rows ${first} to ${first + count}`;
      throw new InvalidArgumentError(`${place}: ${cause.message}`, { cause });
    }
  };
  return inParts([rows, k], read, signal);
}

/**
 * Quantizes a float matrix [n, k], each weight by itself, on all cores where there is native code. `codebook`: levels,
 * where they are not the fixed ones for the number of bits.
 */
export async function quantizeTensor(
  values: Tensor,
  config: QuantizationConfig,
  importance: Float32Array | null,
  codebook?: Int8Array | null,
): Promise<QuantizedWeights> {
  const [n, k] = values.shape as [number, number];
  const spec = weightSpec(n, k, config);
  const { bits, groupSize, hasZeros, oddZero = 0 } = spec;
  const { dtype, data: weights } = values;
  if (canRoundNatively(dtype)) {
    const count = n * groupCount(spec);
    const zeros = new Int8Array(hasZeros ? count : 0);
    const { algorithm, mappingType } = config;
    const isSearched = algorithm !== "affine" && algorithm !== "hqq_scale_only";
    const trials = trialsOf(config, codebook ?? undefined);
    const superScales = new Float32Array(hasFactors(spec) ? n * superGroupCount(spec) : 0);
    const result = { qvals: new Int8Array(n * k), scales: new Float32Array(count) };
    const form = {
      ...{ n, k, bits, groupSize, dtype, mappingType, oddZero, scaleType: config.scaleDType },
      algorithm: isSearched ? "mse" : algorithm,
      importance: (isSearched && importance) || new Float32Array(0),
      trials: trials.factors,
      levels: trials.levels ?? new Int8Array(0),
    } as const;
    if (await roundNatively({ ...form, weights, ...result, superScales, zeros }))
      return {
        ...spec,
        ...result,
        zeros: hasZeros ? zeros : null,
        levels: spec.hasLevels ? (codebook ?? codebooks[bits]!) : null,
        ...(hasFactors(spec) && { superScales }),
      };
    // A weight is not finite: the plain implementation's error says which.
  }
  return quantizeWeights(toFloat32(values), { ...config, n, k }, importance, codebook);
}

/** Joins the parts of a matrix. */
export async function joinRows(n: number, parts: AsyncIterable<QuantizedWeights>): Promise<QuantizedWeights> {
  let row = 0;
  let whole: QuantizedWeights | undefined;
  for await (const part of parts) {
    const groups = groupCount(part);
    whole ??= {
      ...part,
      n,
      qvals: new Int8Array(n * part.k),
      scales: new Float32Array(n * groups),
      zeros: part.zeros && new Int8Array(n * groups),
      ...(part.superScales && { superScales: new Float32Array(n * superGroupCount(part)) }),
    };
    whole.qvals.set(part.qvals, row * part.k);
    whole.scales.set(part.scales, row * groups);
    if (part.zeros) whole.zeros?.set(part.zeros, row * groups);
    if (part.superScales) whole.superScales?.set(part.superScales, row * superGroupCount(part));
    row += part.n;
  }
  return whole!;
}
