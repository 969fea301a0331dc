/** Packing in parts gives the bytes of packing as a whole. */
import { expect, it } from "vitest";
import { Random, randomWeights } from "../../test/support/random.ts";
import { layoutNamed } from "../kernels/layout/packed.ts";
import { groupCount, type QuantizedWeights } from "../quantized.ts";
import { packedWeights } from "./packed-constant.ts";

const PART_ROWS = 32;

/** Parts of weights [n, k] with scales and zero points. */
async function* partsOf(weights: QuantizedWeights): AsyncGenerator<QuantizedWeights> {
  const groups = groupCount(weights);
  for (let row = 0; row < weights.n; row += PART_ROWS) {
    const n = Math.min(PART_ROWS, weights.n - row);
    const cut = <A extends Int8Array | Float32Array>(values: A, columns: number) =>
      values.slice(row * columns, (row + n) * columns) as A;
    const zeros = weights.zeros && cut(weights.zeros, groups);
    yield { ...weights, n, qvals: cut(weights.qvals, weights.k), scales: cut(weights.scales, groups), zeros };
  }
}

it.each(["panel16", "panel32"])("%s", async (name) => {
  const random = new Random(1);
  const layout = layoutNamed(name);
  for (const [n, k, groupSize] of [
    [64, 64, 32],
    [70, 100, 32],
    [33, 32, 32],
    [1, 67, 10],
  ] as const)
    for (const bits of [1, 2, 4, 7, 8])
      for (const form of ["plain", "zeros", "levels", "bias", "negative at first", "negative at last"]) {
        if (form === "levels" && bits > 4) continue;
        const options = {
          zeros: form === "zeros",
          levels: form === "levels",
          minima: false,
          scaleDType: "f16" as const,
        };
        const weights = randomWeights(random, { n, k, bits, groupSize, ...options });
        if (form.startsWith("negative")) weights.scales[form.endsWith("first") ? 0 : weights.scales.length - 1] = -1;
        const bias = form === "bias" ? random.floats(n) : null;
        const load = async () => ({ weights, bias });
        const source = { spec: weights, layout, hasBias: bias !== null, load };
        const stream = { rows: () => partsOf(weights), bias: async () => bias };
        const whole = await packedWeights("w", source).read();
        const streamed = packedWeights("w", { ...source, stream });
        const { headBytes, rest, head } = streamed.headed!();
        const found: Uint8Array[] = [];
        for await (const part of rest) found.push(part.slice());
        expect(head()).toHaveLength(headBytes);
        const title = `${n} x ${k}, ${bits} bits, ${form}`;
        expect(Buffer.compare(Buffer.concat([head(), ...found]), whole as Uint8Array), title).toBe(0);
        expect(streamed.shape).toEqual([whole.length]);
      }
});

it("is not for layouts with a header of others", () => {
  const weights = randomWeights(new Random(1), { n: 8, k: 64, bits: 4, groupSize: 32, scaleDType: "f32" });
  const stream = { rows: () => partsOf(weights), bias: async () => null };
  const load = async () => ({ weights, bias: null });
  const layout = layoutNamed("torchao_universal");
  expect(packedWeights("w", { spec: weights, layout, hasBias: false, load, stream }).headed).toBeUndefined();
});
