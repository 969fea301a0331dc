/** Gathers columns of rows. A tile is a row. */

import type { Kernel } from "../../contract.ts";
import { when } from "../../wasm/assembler/expression.ts";
import { f32, float, i32, int } from "../../wasm/assembler/instructions.ts";
import { advance, elementAt, forRange } from "../../wasm/generate/loops.ts";
import { plainRow, wasmKernel } from "../../wasm/kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "../../wasm/kernel-code.ts";
import { indexType, readIndex } from "../embedding/wasm/embedding.ts";
import type { GatherColumnsArgs } from "./fields.ts";

const block = new ArgumentBlock({ x: "ptr", columns: "ptr", y: "ptr", dim: "i32", count: "i32" });

function gatherCode(index: "i32" | "i64"): KernelCode {
  const key = `gather_columns_${index}`;
  return {
    key,
    build: () => [
      kernelFunction(key, block, ({ x, columns, y, dim, count }, { tile }, scope) => {
        const i = scope.local("i32", "i");
        const column = scope.local("i32", "column");
        const isKnown = scope.local("i32", "is_known");
        return [
          x.set(elementAt(x, i32.mul(tile, dim), 4)),
          y.set(elementAt(y, i32.mul(tile, count), 4)),
          forRange(i, int(0), count, [
            readIndex(index, { indices: columns, rows: dim, tile: i, row: column, isKnown }),
            when(isKnown, [f32.store(y, f32.load(elementAt(x, column, 4)))], [f32.store(y, float(Number.NaN))]),
            advance(y, 4),
          ]),
        ];
      }),
    ],
  };
}

export const gatherColumnsWasm: Kernel<GatherColumnsArgs> = wasmKernel<GatherColumnsArgs>({
  ...plainRow,
  name: "gather_columns_f32_1x1x1_wasm_simd",
  step({ rows, dim, x, columns, y }, place) {
    const values = { x: place.read(x), columns: place.read(columns), y: place.write(y), dim, count: columns.length };
    return { phases: [{ code: gatherCode(indexType(columns)), tiles: rows, args: block.encode(values) }] };
  },
});
