/** Every row of the fused operators against the single reference kernels one after the other. */
import { expect, it } from "vitest";
import { type Bench, benchesFor, describeRows, heap, machine, run } from "../../test/support/conformance.ts";
import { Random } from "../../test/support/random.ts";
import { f16Table, f32ToF16 } from "../half.ts";
import type { AddRmsNormArgs, HalvesArgs, RopeAttentionArgs } from "./arguments.ts";
import type { Kernel } from "./contract.ts";
import * as table from "./table.ts";

const cpu = machine();
const benches: readonly Bench[] = [1, 3].map((threads) => ({ memory: heap, threads }));

/** Distance over length. */
function expectClose(found: Float32Array, expected: Float32Array, name: string, bound = 1e-5): void {
  let [distance, length] = [0, 1e-30];
  for (let i = 0; i < expected.length; i++) {
    distance += (found[i]! - expected[i]!) ** 2;
    length += expected[i]! ** 2;
  }
  expect(Math.sqrt(distance / length), name).toBeLessThanOrEqual(bound);
}

for (const [rows, gates] of [
  [table.swigluHalves, table.swiglu],
  [table.gegluHalves, table.geglu],
] as const)
  describeRows(rows, cpu, (kernel: Kernel<HalvesArgs>) => {
    it("gates the right half of each row by the left", () => {
      const random = new Random(1);
      for (const dim of [1, 5, 16, 33, 100])
        for (const rows of [1, 4, 70]) {
          const x = random.floats(2 * rows * dim, 8);
          const column = (half: number) =>
            Float32Array.from({ length: rows * dim }, (_, i) => x[(2 * Math.floor(i / dim) + half) * dim + (i % dim)]!);
          const expected = new Float32Array(rows * dim);
          run(gates.at(-1)!, { a: column(0), b: column(1), alpha: 1, y: expected }, benches[0]!);
          for (const bench of benchesFor(kernel, benches)) {
            const y = new Float32Array(rows * dim);
            run(kernel, { dim, x, y }, bench);
            expectClose(y, expected, `${rows} rows of ${dim}, ${bench.threads} threads`);
          }
        }
    });
  });

describeRows(table.addRmsNorm, cpu, (kernel: Kernel<AddRmsNormArgs>) => {
  it("adds in place and norms the sum, also over the addend", () => {
    const random = new Random(2);
    for (const dim of [1, 5, 16, 33, 100])
      for (const rows of [1, 4, 70]) {
        const [x, addend, weight] = [random.floats(rows * dim, 3), random.floats(rows * dim, 3), random.floats(dim, 2)];
        const sum = x.slice();
        const expected = new Float32Array(rows * dim);
        run(table.add.at(-1)!, { a: x, b: addend, alpha: -0.5, y: sum }, benches[0]!);
        run(table.rmsNorm.at(-1)!, { dim, x: sum, weight, eps: 1e-5, y: expected }, benches[0]!);
        for (const bench of benchesFor(kernel, benches)) {
          const [found, y] = [x.slice(), addend.slice()];
          run(kernel, { dim, x: found, addend: y, alpha: -0.5, weight, eps: 1e-5, y }, bench);
          expectClose(found, sum, `sum of ${rows} rows of ${dim}, ${bench.threads} threads`);
          expectClose(y, expected, `norm of ${rows} rows of ${dim}, ${bench.threads} threads`);
        }
      }
  });
});

interface Shape {
  readonly tokens: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly half: number;
  readonly first: number;
  readonly cache: "f32" | "f16" | "int8";
}

const CAPACITY = 200;

function argumentsOf(random: Random, shape: Shape): RopeAttentionArgs {
  const { tokens, heads, kvHeads, headDim, half, first } = shape;
  const cache = () => {
    const values = random.floats(CAPACITY * kvHeads * headDim, 2);
    if (shape.cache === "int8") return Int8Array.from(values, (value) => 60 * value);
    return shape.cache === "f16" ? Uint16Array.from(values, f32ToF16) : values;
  };
  const scales = () => (shape.cache === "int8" ? random.floats(CAPACITY * kvHeads, 0.02) : null);
  return {
    ...{ tokens, heads, kvHeads, headDim, half, capacity: CAPACITY, window: 0, softcap: 0, scale: headDim ** -0.5 },
    qkv: random.floats(tokens * (heads + 2 * kvHeads) * headDim, 2),
    angles: random.floats(tokens * 2 * half, 1),
    keyCache: cache(),
    valueCache: cache(),
    keyScales: scales(),
    valueScales: scales(),
    position: BigInt64Array.of(BigInt(first)),
    y: new Float32Array(tokens * heads * headDim),
  };
}

function ownResults(args: RopeAttentionArgs): RopeAttentionArgs {
  return {
    ...args,
    keyCache: args.keyCache.slice(),
    valueCache: args.valueCache.slice(),
    keyScales: args.keyScales?.slice() ?? null,
    valueScales: args.valueScales?.slice() ?? null,
    y: args.y.slice(),
  };
}

/** The caches as floats. */
function cacheFloats({ keyCache, keyScales, headDim }: RopeAttentionArgs): Float32Array {
  const halves = f16Table();
  return Float32Array.from(keyCache, (value, i) => {
    if (keyCache instanceof Uint16Array) return halves[value]!;
    return value * (keyScales ? keyScales[Math.floor(i / headDim)]! : 1);
  });
}

const shapes: readonly Shape[] = (["f32", "f16", "int8"] as const).flatMap((cache) =>
  [1, 2, 5, 33, 130].flatMap((tokens) => [
    { tokens, heads: 4, kvHeads: 2, headDim: 16, half: 8, first: 0, cache },
    { tokens, heads: 3, kvHeads: 3, headDim: 10, half: 3, first: 60, cache },
    { tokens, heads: 8, kvHeads: 1, headDim: 64, half: 32, first: 3, cache },
  ]),
);
const random = new Random(3);
const cases = shapes.map((shape) => {
  const args = argumentsOf(random, shape);
  const expected = ownResults(args);
  run(table.ropeAttention.at(-1)!, expected, benches[0]!);
  return { name: JSON.stringify(shape), args, expected };
});

describeRows(table.ropeAttention, cpu, (kernel: Kernel<RopeAttentionArgs>) => {
  it("turns queries and keys, stores keys and values, and attends", () => {
    // Integers may differ by one where rotated keys differ in their last bit.
    for (const { name, args, expected } of cases)
      for (const bench of benchesFor(kernel, benches)) {
        const found = ownResults(args);
        run(kernel, found, bench);
        const bound = args.keyScales ? 3e-3 : kernel.needs.includes("amx_bf16") ? 1e-4 : 2e-4;
        expectClose(found.y, expected.y, `${name}, ${bench.threads} threads`, bound);
        expectClose(cacheFloats(found), cacheFloats(expected), `keys of ${name}`, args.keyScales ? 3e-3 : 2e-4);
      }
  });
});
