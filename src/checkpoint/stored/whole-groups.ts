/** Low-bit weights with minima, and scales with their factors, in one packed buffer. */

import { e4m3Code, e4m3Table } from "../../float8.ts";
import type { LowBitTensor } from "../../formats/tensor-source.ts";
import { layouts } from "../../kernels/layout/packed.ts";
import type { QuantizedWeights, WeightSpec } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";

/**
 * The weights of `stored` with their minima inside, and with 8-bit scales as stored, for linear layers with 8-bit
 * activations; unchanged where the layout (null: any) cannot hold them.
 */
export function wholeGroups(stored: LowBitTensor, layoutName: string | null): LowBitTensor {
  const { minima, factored, spec, rows, ...rest } = stored;
  if (!minima && !factored) return stored;
  const scaleDType = factored ?? (spec.scaleDType === "f16" && minima?.dtype === "f16" ? "f16" : "f32");
  const whole: WeightSpec = {
    ...spec,
    scaleDType,
    ...(minima && { hasZeros: false, hasMinima: true }),
  };
  const fits = layouts.some(({ name, refusal }) => (layoutName ?? name) === name && refusal(whole) === null);
  if (!fits) return stored;
  return {
    ...rest,
    spec: whole,
    async rows(first, count): Promise<QuantizedWeights> {
      const [weights, values] = await Promise.all([rows(first, count), minima?.rows(first, count)]);
      const scales = factored === "e4m3" ? e4m3Products(weights) : weights.scales;
      if (!values) return { ...weights, ...whole, n: count, scales };
      return { ...weights, ...whole, n: count, zeros: null, minima: toFloat32(values) };
    },
  };
}

/** Rounds each scale to the nearest e4m3 number times its row's factor. */
function e4m3Products({ n, scales, superScales }: QuantizedWeights): Float32Array {
  const values = e4m3Table();
  const groups = scales.length / n;
  return scales.map((scale, i) => {
    const factor = superScales![Math.floor(i / groups)]!;
    return factor === 0 ? 0 : values[e4m3Code(scale / factor)]! * factor;
  });
}
