/** Packs PyTorch's 4-bit weights (uint8 [n, k/2], even k in the low nibble, value + 8) into a packed layout. */
import { decodeBf16 } from "../../../half.ts";
import type { QuantizedWeights, WeightSpec } from "../../../quantized.ts";
import { type Kernel, type LayoutPacker, type PackedLayout, type PackTarget, referenceRow } from "../../contract.ts";

/** Packs weights [n, k] in `layout` at the start of `target`; the rest is filled with zeros. */
export interface Int4PackArgs {
  readonly spec: WeightSpec;
  readonly layout: PackedLayout;
  /** Makes a packer for the layout. */
  packer(target: PackTarget): LayoutPacker;
  /** Values + 8, [n, k/2], even k in the low nibble. */
  readonly nibbles: Uint8Array;
  /** Scales [n, groups], float32 or bfloat16 bit patterns. */
  readonly scales: Float32Array | Uint16Array;
  readonly bias: Float32Array | null;
  /** Buffer of at least the layout's `byteLength`. */
  readonly target: Uint8Array;
}

export const int4PackReference: Kernel<Int4PackArgs> = {
  ...referenceRow,
  name: "int4_pack_w4_1x1x1_reference",
  bind({ spec, layout, packer, nibbles, scales, bias, target }) {
    const qvals = new Int8Array(spec.n * spec.k);
    const values = scales instanceof Float32Array ? scales : new Float32Array(scales.length);
    const weights: QuantizedWeights = { ...spec, qvals, scales: values, zeros: null, levels: null };
    const bytes = target.subarray(0, layout.byteLength(spec, bias !== null));
    return () => {
      if (!(scales instanceof Float32Array)) decodeBf16(scales, values);
      for (let i = 0; i < nibbles.length; i++) {
        qvals[2 * i] = (nibbles[i]! & 15) - 8;
        qvals[2 * i + 1] = (nibbles[i]! >> 4) - 8;
      }
      target.fill(0);
      const packing = packer({ spec, bias, target: bytes });
      packing.add(weights, 0);
      packing.finish();
    };
  },
};
