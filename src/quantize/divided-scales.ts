/** Divides rows of quantized weights by numbers, by changing their scales. Exact up to the rounding of stored scales. */
import { f16Table, f32ToF16 } from "../half.ts";
import { groupCount, hasFactors, type QuantizedWeights, SUPER_GROUP, superGroupCount } from "../quantized.ts";
import { storedScale } from "./affine.ts";

/** Divides row r by `divisorOf(r)`, which is positive. Integer scales stay; their factors are divided. */
export function divideRows(weights: QuantizedWeights, divisorOf: (row: number) => number): QuantizedWeights {
  const { scaleDType } = weights;
  const groups = groupCount(weights);
  if (hasFactors(weights)) {
    const count = superGroupCount(weights);
    const before = weights.superScales!;
    const superScales = before.map((factor, i) => {
      const divided = factor / divisorOf(Math.floor(i / count));
      return scaleDType === "i8" ? f16Table()[f32ToF16(divided)]! : divided;
    });
    const scales = weights.scales.map((scale, i) => {
      const [row, group] = [Math.floor(i / groups), i % groups];
      const factor = row * count + (scaleDType === "i8" ? Math.floor((group * weights.groupSize) / SUPER_GROUP) : 0);
      return before[factor] === 0 ? 0 : (scale / before[factor]!) * superScales[factor]!;
    });
    return { ...weights, superScales, scales };
  }
  const dtype = scaleDType === "f16" ? "f16" : "f32";
  const scales = weights.scales.map((scale, i) => {
    const divided = storedScale(Math.abs(scale) / divisorOf(Math.floor(i / groups)), dtype);
    return scale < 0 ? -divided : scale > 0 ? divided : 0;
  });
  return { ...weights, scales };
}
