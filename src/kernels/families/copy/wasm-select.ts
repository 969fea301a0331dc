/** Copies a range of bytes of each block. A tile is a range of blocks. */

import type { Kernel } from "../../contract.ts";
import { when } from "../../wasm/assembler/expression.ts";
import { i32, memory } from "../../wasm/assembler/instructions.ts";
import { advance, elementAt, forRange } from "../../wasm/generate/loops.ts";
import { plainRow, wasmKernel } from "../../wasm/kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "../../wasm/kernel-code.ts";
import type { SelectArgs } from "./fields.ts";

/** Bytes of a tile: enough that the overhead of taking it is small. */
const TILE_BYTES = 1 << 14;

const selectBlock = new ArgumentBlock({
  x: "ptr",
  y: "ptr",
  outer: "i32",
  stride: "ptr",
  blockBytes: "ptr",
  /** Number of blocks of a tile. */
  perTile: "i32",
});

const selectCode: KernelCode = {
  key: "select",
  build: () => [
    kernelFunction("select", selectBlock, ({ x, y, outer, stride, blockBytes, perTile }, { tile }, scope) => {
      const i = scope.local("i32", "i");
      const end = scope.local("i32", "end");
      return [
        i.set(i32.mul(tile, perTile)),
        end.set(i32.add(i, perTile)),
        when(i32.lt_u(outer, end), [end.set(outer)]),
        x.set(elementAt(x, i, stride)),
        y.set(elementAt(y, i, blockBytes)),
        forRange(i, i, end, [memory.copy(y, x, blockBytes), advance(x, stride), advance(y, blockBytes)]),
      ];
    }),
  ],
};

export const selectWasm: Kernel<SelectArgs> = wasmKernel<SelectArgs>({
  ...plainRow,
  name: "select_any_1x1x1_wasm_simd",
  step({ outer, stride, offset, blockBytes, x, y }, place) {
    const perTile = Math.ceil(TILE_BYTES / Math.max(1, blockBytes));
    const values = { x: place.read(x) + offset, y: place.write(y), outer, stride, blockBytes, perTile };
    return { phases: [{ code: selectCode, tiles: Math.ceil(outer / perTile), args: selectBlock.encode(values) }] };
  },
});
