/** Low-bit weights with all that a file stores of their groups in one place: minima, and integer scales with their factors. */
import type { LowBitTensor } from "../formats/tensor-source.ts";
import { layouts } from "../kernels/layout/packed.ts";
import type { QuantizedWeights, WeightSpec } from "../quantized.ts";
import { toFloat32 } from "../tensor.ts";

/**
 * The weights of `stored` with their minima inside, and with integer scales as stored, which linear layers with 8-bit
 * activations read; as they were where the layout (null: any) does not hold them so.
 */
export function wholeGroups(stored: LowBitTensor, layoutName: string | null): LowBitTensor {
  const { minima, hasFactors = false, spec, rows, ...rest } = stored;
  if (!minima && !hasFactors) return stored;
  const scaleDType = hasFactors ? "i8" : spec.scaleDType === "f16" && minima?.dtype === "f16" ? "f16" : "f32";
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
      if (!values) return { ...weights, ...whole, n: count };
      return { ...weights, ...whole, n: count, zeros: null, minima: toFloat32(values) };
    },
  };
}
