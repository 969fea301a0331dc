/** Matrices of 4-bit floats (e2m1), two in a byte, the first in the low bits, with a scale for each group: MXFP4 and NVFP4. */
import { dequantize, type QuantizedWeights, type WeightSpec } from "../../quantized.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import { e2m1Doubled } from "./small-floats.ts";

/** How a matrix of 4-bit floats is stored. */
export interface Float4Source {
  readonly name: string;
  readonly shape: readonly [number, number];
  readonly groupSize: number;
  readonly stored: string;
  readonly parts: readonly string[];
  /** Reads codes of rows as bytes [count, k / 2]. */
  bytes(first: number, count: number): Promise<Uint8Array>;
  /** Reads scales of rows [count, groups], without the matrix's factor. */
  scales(first: number, count: number): Promise<Float32Array>;
  /** Whether scales are e4m3 numbers. */
  readonly hasE4m3Scales: boolean;
  /** Factor of all scales; absent for 1. */
  readonly factor?: WholeFactor;
}

/** A number that multiplies, or divides, all scales of a matrix. */
interface WholeFactor {
  /** Whether it divides. */
  readonly divides: boolean;
  /** Reads the number. */
  read(): Promise<number>;
}

/**
 * Makes the matrix. Low-bit, it has the codes as stored with a codebook of doubled values, which are integers, and halved
 * scales; e4m3 scales also as stored.
 */
export function float4Matrix(source: Float4Source): ComputedMatrix {
  const { name, shape, groupSize, stored, parts, hasE4m3Scales, factor } = source;
  const [n, k] = shape;
  const spec: WeightSpec = { bits: 4, n, k, groupSize, hasZeros: false, hasLevels: true, scaleDType: "f32" };
  const read = async (first: number, count: number): Promise<QuantizedWeights> => {
    const bytes = await source.bytes(first, count);
    const stored = await source.scales(first, count);
    const by = (await factor?.read()) ?? 1;
    const scales = stored.map((scale) => (factor?.divides ? scale / by : scale * by));
    const qvals = new Int8Array(count * k);
    for (let i = 0; i < bytes.length; i++) {
      qvals[2 * i] = (bytes[i]! & 15) - 8;
      qvals[2 * i + 1] = (bytes[i]! >> 4) - 8;
    }
    const weights = { ...spec, n: count, qvals, scales: scales.map((scale) => scale / 2), zeros: null };
    const superScales = new Float32Array(count).fill((factor?.divides ? 1 / by : by) / 2);
    return { ...weights, levels: e2m1Doubled, ...(hasE4m3Scales && { superScales }) };
  };
  return {
    ...{ name, shape, stored, parts },
    lowBit: { stored, spec, levels: e2m1Doubled, rows: read, ...(hasE4m3Scales && { factored: "e4m3" as const }) },
    rows: async (first, count) => dequantize(await read(first, count)),
  };
}
