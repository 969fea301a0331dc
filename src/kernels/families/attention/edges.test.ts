/** Rows at the ends of sizes and values: long windows, far positions, NaN in caches of integers, gates and rows. */
import { expect, it } from "vitest";
import { type Bench, describeRows, heap, machine, run } from "../../../../test/support/conformance.ts";
import { PagedTable } from "../../../../test/support/paged.ts";
import { Random } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { processMemory } from "../../memory.ts";
import { attention, updateAndAttend } from "../index.ts";
import type { AttentionArgs } from "./fields.ts";

const bench: Bench = { memory: heap, threads: 2 };

const shape = { heads: 4, kvHeads: 2, headDim: 20, capacity: 90 };
const width = shape.kvHeads * shape.headDim;

function attentionArgs(tokens: number, first: bigint): AttentionArgs {
  const random = new Random(1);
  const values = () => random.floats(shape.capacity * width, 2);
  return {
    ...{ ...shape, tokens, scale: 0.2, window: 0, softcap: 0, position: BigInt64Array.of(first) },
    q: random.floats(tokens * shape.heads * shape.headDim, 2),
    k: random.floats(tokens * width, 2),
    v: random.floats(tokens * width, 3),
    keyCache: values(),
    valueCache: values(),
    y: new Float32Array(tokens * shape.heads * shape.headDim),
  };
}

describeRows(attention, machine(), (kernel) => {
  it.each([2 ** 31, 2 ** 32 + 3, 2 ** 40])("shows all to a window of %i", (window) => {
    for (const tokens of [1, 9]) {
      const [all, windowed] = [attentionArgs(tokens, 70n), attentionArgs(tokens, 70n)];
      run(kernel, all, bench);
      run(kernel, { ...windowed, window }, bench);
      expectSame(windowed.y, all.y);
    }
  });

  it.each([-1n, 89n, 2n ** 32n, 2n ** 63n - 2n, 2n ** 63n - 1n])("stores nothing at position %i", (first) => {
    const args = attentionArgs(2, first);
    const keys = args.keyCache.slice();
    if (kernel.target === "reference") expect(() => run(kernel, args, bench)).toThrow(/expected positions in 0..89/);
    else {
      run(kernel, args, bench);
      expect(args.y.every(Number.isNaN)).toBe(true);
    }
    expectSame(args.keyCache, keys);
  });
});

describeRows(updateAndAttend, machine(), (kernel) => {
  it.each([Number.NaN, Number.POSITIVE_INFINITY])("does not hide %d in pages of integers", (value) => {
    for (const tokens of [1, 9])
      for (const name of ["k", "v"] as const) {
        const {
          capacity,
          position: _position,
          keyCache: _keys,
          valueCache: _values,
          ...call
        } = attentionArgs(tokens, 70n);
        const { kvHeads, headDim } = shape;
        const pages = { type: "int8", pagePositions: 16, pagesMax: Math.ceil(capacity / 16), slots: 1 } as const;
        const table = new PagedTable({ ...pages, kvHeads, headDim, window: 0 }, processMemory(), new Random(2));
        table.fill(0, [70], new Random(3));
        table.setRuns([{ row: 0, rows: tokens, position: 70, slot: 0 }]);
        call[name]![0] = call[name]![headDim] = value;
        run(kernel, { ...call, rows: tokens, sinks: null, table, pages: table.layerPages(0)! }, bench);
        expect(call.y.subarray(-shape.heads * headDim).every(Number.isNaN)).toBe(true);
      }
  });
});
