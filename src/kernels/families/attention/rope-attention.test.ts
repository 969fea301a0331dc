/** Every row of the fused operators against the single reference kernels one after the other. */
import { expect, it } from "vitest";
import { type Bench, benchesFor, describeRows, heap, machine, run } from "../../../../test/support/conformance.ts";
import { PagedTable } from "../../../../test/support/paged.ts";
import { Random } from "../../../../test/support/random.ts";
import { f16Table } from "../../../half.ts";
import type { Kernel } from "../../contract.ts";
import { processMemory } from "../../memory.ts";
import * as table from "../index.ts";
import type { RopeSequenceAttentionArgs } from "./fields.ts";

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

interface Shape {
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly half: number;
  readonly first: number;
  readonly type: (typeof types)[number];
}

/** Of int4, sequences.test.ts has rotated rows. */
const types = ["f32", "f16", "int8"] as const;

const CAPACITY = 208;

/** A call over pages of its own, as every other of its shape. */
function ropeCall(shape: Shape) {
  const { rows, heads, kvHeads, headDim, half, first, type } = shape;
  const pages = { pagePositions: 16, pagesMax: CAPACITY / 16, slots: 1 };
  const table = new PagedTable({ type, kvHeads, headDim, window: 0, ...pages }, processMemory(), new Random(3));
  table.fill(1, [first], new Random(4));
  table.setRuns([{ row: 0, rows, position: first, slot: 0 }]);
  const random = new Random(5);
  const args: RopeSequenceAttentionArgs = {
    ...{ rows, heads, kvHeads, headDim, half, window: 0, softcap: 0, scale: headDim ** -0.5, sinks: null },
    qkv: random.floats(rows * (heads + 2 * kvHeads) * headDim, 2),
    angles: random.floats(rows * 2 * half, 1),
    table,
    pages: table.layerPages(1)!,
    y: new Float32Array(rows * heads * headDim),
  };
  /** The keys of the positions that the sequence has now, as floats. */
  const keys = () => {
    const { cache, scales } = table.contiguous(1, 0, first + rows).keys;
    if (cache instanceof Uint16Array) return Float32Array.from(cache, (bits) => f16Table()[bits]!);
    return Float32Array.from(cache, (value, i) => value * (scales ? scales[Math.floor(i / headDim)]! : 1));
  };
  return { args, keys };
}

const shapes: readonly Shape[] = types.flatMap((type) =>
  [1, 2, 5, 33, 130].flatMap((rows) => [
    { rows, heads: 4, kvHeads: 2, headDim: 16, half: 8, first: 0, type },
    { rows, heads: 3, kvHeads: 3, headDim: 10, half: 3, first: 60, type },
    { rows, heads: 8, kvHeads: 1, headDim: 64, half: 32, first: 3, type },
  ]),
);
const cases = shapes.map((shape) => {
  const { args, keys } = ropeCall(shape);
  run(table.ropeUpdateAndAttend.at(-1)!, args, benches[0]!);
  return { name: JSON.stringify(shape), shape, y: args.y, keys: keys() };
});

describeRows(table.ropeUpdateAndAttend, cpu, (kernel: Kernel<RopeSequenceAttentionArgs>) => {
  it("turns queries and keys, stores keys and values, and attends", () => {
    // Integers may differ by one where rotated keys differ in their last bit.
    for (const { name, shape, y, keys } of cases)
      for (const bench of benchesFor(kernel, benches)) {
        const found = ropeCall(shape);
        run(kernel, found.args, bench);
        const isScaled = shape.type === "int8";
        // Tiles take prompts over halves and integers as bf16.
        const isRounded = kernel.needs.includes("amx_bf16") && shape.type !== "f32" && shape.rows >= 32;
        const bound = isRounded ? 6e-3 : isScaled ? 3e-3 : 2e-4;
        expectClose(found.args.y, y, `${name}, ${bench.threads} threads`, bound);
        expectClose(found.keys(), keys, `keys of ${name}`, isScaled ? 3e-3 : 2e-4);
      }
  });
});
