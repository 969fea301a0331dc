/** Every row of embeddings: values are copied or multiplied once, so that results are exact. */
import { expect, it } from "vitest";
import { type Bench, benchesFor, describeRows, heap, machine, run } from "../../../../test/support/conformance.ts";
import { integersOf } from "../../../../test/support/linear-definition.ts";
import { madeOnce } from "../../../../test/support/made-once.ts";
import { Random, randomFloatWeights, randomWeights, weightVariants } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { hasFactors, type QuantizedWeights } from "../../../quantized.ts";
import type { Kernel, PackedLayout } from "../../contract.ts";
import { layoutNamed, openPacked, packWeights } from "../../layout/packed.ts";
import { packEmbedding } from "../../layout/torchao-embedding.ts";
import { embeddingFloat, embeddingPacked, embeddingShared } from "../index.ts";

const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));

const ROWS = 37;
const ids = [36, 0, 17, 17, 5, 16, 15];
const wrongIds = [37, -1, 3];

/** The rows `ids` of a matrix with `dim` columns, as float32. */
function pickRows(matrix: (row: number, c: number) => number, dim: number): Float32Array {
  return Float32Array.from(ids.flatMap((row) => Array.from({ length: dim }, (_, c) => matrix(row, c))));
}

/** Level minus zero point times scale, in float32, and the minimum. */
function pickWeights(weights: QuantizedWeights): Float32Array {
  const { values, scales, minima } = integersOf(weights);
  const at = (i: number) => {
    const product = Math.fround(values[i]! * scales[i]!);
    return weights.hasMinima ? product + minima[i]! : product;
  };
  return pickRows((row, c) => at(row * weights.k + c), weights.k);
}

type Indices = { readonly indices: BigInt64Array | Int32Array; readonly y: Float32Array };

/** Reads rows with indices of both types, on one thread and on three; rows that there are not come as NaN, or are an error. */
function expectRows<A extends Indices>(
  kernel: Kernel<A>,
  args: Omit<A, keyof Indices>,
  expected: Float32Array,
  message: string,
): void {
  const dim = expected.length / ids.length;
  const read = (indices: Indices["indices"], bench: Bench) => {
    const y = new Float32Array(indices.length * dim).fill(-77);
    run(kernel, { ...args, indices, y } as unknown as A, bench);
    return y;
  };
  for (const bench of benchesFor(kernel, benches)) {
    expectSame(read(Int32Array.from(ids), bench), expected, message);
    expectSame(read(BigInt64Array.from(ids, BigInt), bench), expected, message);
  }
  for (const indices of [Int32Array.from(wrongIds), BigInt64Array.from(wrongIds, BigInt)]) {
    const wrong = () => read(indices, benches[0]!);
    if (kernel.target === "reference") {
      expect(wrong, message).toThrow("expected an id in 0..36 but found 37");
    } else {
      const y = wrong();
      const rows = wrongIds.map((_, i) => y.subarray(i * dim, (i + 1) * dim));
      expect(
        rows.map((row) => row.every(Number.isNaN)),
        message,
      ).toEqual([true, true, false]);
    }
  }
}

describeRows(embeddingFloat, machine(), (kernel) => {
  it.each([1, 2, 3, 5, 8, 15, 31, 64, 97, 257])("copies rows of %i", (dim) => {
    for (const { stored, values } of randomFloatWeights(new Random(dim), ROWS * dim)) {
      const expected = pickRows((row, c) => values[row * dim + c]!, dim);
      expectRows(kernel, { rows: ROWS, dim, weights: stored }, expected, stored.dtype);
    }
  });

  it("reads the smallest and largest halves, infinite ones and NaN", () => {
    const bits = [1, 0x03ff, 0x0400, 0x7bff, 0x8000, 0x8001, 0x7c00, 0xfc00, 0x7e00];
    const values = [2 ** -24, 1023 * 2 ** -24, 2 ** -14, 65504, -0, -(2 ** -24), Infinity, -Infinity, Number.NaN];
    const y = new Float32Array(bits.length);
    const weights = { dtype: "f16" as const, data: Uint16Array.from(bits) };
    run(kernel, { rows: 1, dim: bits.length, weights, indices: Int32Array.of(0), y }, benches[0]!);
    expectSame(y, Float32Array.from(values));
  });
});

/** Dimensions and group sizes: all chunks that rows are packed in, one after the other and alone. */
const packedShapes = [
  [32, 32],
  [64, 32],
  [96, 32],
  [96, 96],
  [128, 128],
  [160, 32],
  [160, 160],
  [224, 32],
  [224, 224],
  [288, 96],
  [384, 128],
] as const;

const packedCases = (bits: number) =>
  madeOnce(`embedding, ${bits} bits`, () => {
    const random = new Random(bits);
    return packedShapes.map(([k, groupSize]) => {
      const weights = randomWeights(random, { n: ROWS, k, bits, groupSize, zeros: true });
      const packed = packEmbedding(weights.qvals, { bits, rows: ROWS, dim: k });
      return { weights, packed, expected: pickWeights(weights) };
    });
  });

describeRows(embeddingPacked, machine(), (kernel) => {
  it.each(kernel.bits!)("reads rows of %i bits", (bits) => {
    for (const { weights, packed, expected } of packedCases(bits)) {
      const { k: dim, scales, zeros, groupSize } = weights;
      const args = { bits, rows: ROWS, dim, groups: scales.length / ROWS, packed, scales, zeros: zeros! };
      expectRows(kernel, args, expected, `dim ${dim}, group ${groupSize}`);
    }
  });
});

/** k and group sizes: whole groups, one, short last ones, groups that do not divide k. */
const sharedShapes = [
  [32, 32],
  [64, 32],
  [65, 32],
  [96, 32],
  [98, 64],
  [128, 128],
  [61, 7],
  [96, 7],
  [60, 12],
  [48, 1000],
  [48, 16],
  [520, 16],
  [512, 32],
] as const;

const sharedCases = (layout: PackedLayout, bits: number) =>
  madeOnce(`shared embedding, ${layout.name}, ${bits} bits`, () => {
    const random = new Random(bits);
    return sharedShapes.flatMap(([k, groupSize]) =>
      weightVariants.flatMap((variant) => {
        const weights = randomWeights(random, { n: ROWS, k, bits, groupSize, ...variant });
        if (layout.refusal(weights) !== null) return [];
        const name = `k ${k}, group ${groupSize}, ${JSON.stringify(variant)}`;
        return { name, weights, bytes: packWeights(weights, null, layout), expected: pickWeights(weights) };
      }),
    );
  });

describeRows(embeddingShared, machine(), (kernel) => {
  for (const name of kernel.layouts!)
    it.each(kernel.bits!)(`reads rows of ${name}, %i bits`, (bits) => {
      for (const { name: item, weights, bytes, expected } of sharedCases(layoutNamed(name), bits))
        if (kernel.readsMinima || !(weights.hasMinima || hasFactors(weights)))
          expectRows(kernel, { weights: openPacked(bytes, weights), first: 0, rows: ROWS }, expected, item);
    });

  it("reads the rows of a part of a table, and zeros for its others", () => {
    const [first, rows] = [5, 50];
    const layout = layoutNamed(kernel.layouts![0]!);
    const weights = randomWeights(new Random(5), { n: ROWS, k: 96, bits: 4, groupSize: 32, zeros: true });
    const packed = openPacked(packWeights(weights, null, layout), weights);
    const asked = [41, 4, 5, 42, 0, 22, 49, 22];
    const values = pickWeights(weights);
    for (const bench of benchesFor(kernel, benches)) {
      const y = new Float32Array(asked.length * 96).fill(-77);
      run(kernel, { weights: packed, indices: Int32Array.from(asked), y, first, rows }, bench);
      const own = (id: number) => ids.indexOf(id - first);
      const expected = asked.flatMap((id) =>
        own(id) < 0 ? new Array<number>(96).fill(0) : [...values.subarray(own(id) * 96, (own(id) + 1) * 96)],
      );
      expectSame(y, Float32Array.from(expected));
    }
  });
});
