/** Centres low-bit weights with minima, so that rounding activations to 8 bits costs least. */
import type { LowBitTensor } from "../../formats/tensor-source.ts";
import { groupCount } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";

/**
 * Rewrites scale * (q - zero) + minimum as scale * q + (minimum - scale * zero): the integers q lie around 0 and meet
 * rounded activations; the new minimum, in float32, meets unrounded sums of activations. With integers from 0 on, the
 * product would carry twice the rounding error.
 */
export function centered(stored: LowBitTensor): LowBitTensor {
  const { minima, rows, spec } = stored;
  if (!minima || !spec.hasZeros) return stored;
  return {
    ...stored,
    spec: { ...spec, hasZeros: false },
    rows: async (first, count) => ({ ...(await rows(first, count)), hasZeros: false, zeros: null }),
    minima: {
      dtype: "f32",
      async rows(first, count) {
        const { scales, zeros } = await rows(first, count);
        const data = toFloat32(await minima.rows(first, count)).map((value, i) => value - scales[i]! * zeros![i]!);
        return { dtype: "f32", shape: [count, groupCount(spec)], data };
      },
    },
  };
}
