/** Packing by native code against the layouts' own, byte for byte. */
import { describe, expect, it } from "vitest";
import { Random, randomWeights } from "../../../../test/support/random.ts";
import { hasFactors, type QuantizedWeights, superGroupCount } from "../../../quantized.ts";
import { layoutNamed, packWeights } from "../../layout/packed.ts";
import { quantizePack } from "./kernels.ts";
import { startFastPacking } from "./packer.ts";

/** Rows first .. first + count. */
function rowsOf(weights: QuantizedWeights, first: number, count: number): QuantizedWeights {
  const groups = weights.scales.length / weights.n;
  const cut = <A extends Int8Array | Float32Array>(values: A, columns: number) =>
    values.slice(first * columns, (first + count) * columns) as A;
  return {
    ...weights,
    n: count,
    qvals: cut(weights.qvals, weights.k),
    scales: cut(weights.scales, groups),
    zeros: weights.zeros && cut(weights.zeros, groups),
    ...(weights.minima && { minima: cut(weights.minima, groups) }),
    ...(weights.superScales && { superScales: cut(weights.superScales, superGroupCount(weights)) }),
    ...(weights.superMinima && { superMinima: cut(weights.superMinima, superGroupCount(weights)) }),
  };
}

const hasNative = quantizePack.length > 0;

describe.skipIf(!hasNative)(`native packing${hasNative ? "" : ": there is no native code here"}`, () => {
  it.each(["panel16", "panel32"])("into %s", (name) => {
    const random = new Random(1);
    const layout = layoutNamed(name);
    for (const [n, k, groupSize] of [
      [64, 64, 32],
      [70, 100, 32],
      [33, 31, 64],
      [1, 67, 10],
      [35, 600, 16],
      [40, 290, 32],
    ] as const)
      for (const bits of [1, 2, 3, 4, 5, 6, 7, 8])
        for (const scaleDType of ["f32", "f16", "i8", "e4m3"] as const)
          for (const form of ["plain", "zeros", "levels", "bias", "negative", "minima"]) {
            if (form === "levels" && bits > 4) continue;
            const options = {
              zeros: form === "zeros",
              levels: form === "levels",
              minima: form === "minima",
              scaleDType,
            };
            const weights = randomWeights(random, { n, k, bits, groupSize, ...options });
            if (layout.refusal(weights) !== null) continue;
            if (form === "negative" && !hasFactors(weights)) weights.scales[0] = -1;
            const bias = form === "bias" ? random.floats(n) : null;
            const { packer, target } = startFastPacking(weights, bias, layout);
            for (let row = 0; row < n; row += 32) packer.add(rowsOf(weights, row, Math.min(32, n - row)), row);
            packer.finish();
            const title = `${n} x ${k}, ${bits} bits in groups of ${groupSize}, ${scaleDType}, ${form}`;
            const expected = packWeights(weights, bias, layout);
            if (Buffer.compare(target, expected) !== 0) expect(target, title).toEqual(expected);
          }
  });
});
