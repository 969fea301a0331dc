/** Copies the rows of two matrices side by side. A tile is a row. */

import type { Kernel } from "../../contract.ts";
import { memory, ptr } from "../../wasm/assembler/instructions.ts";
import { elementAt } from "../../wasm/generate/loops.ts";
import { plainRow, wasmKernel } from "../../wasm/kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "../../wasm/kernel-code.ts";
import type { JoinColumnsArgs } from "./fields.ts";

const block = new ArgumentBlock({ left: "ptr", right: "ptr", y: "ptr", leftBytes: "ptr", rightBytes: "ptr" });

const joinCode: KernelCode = {
  key: "join_columns",
  build: () => [
    kernelFunction("join_columns", block, ({ left, right, y, leftBytes, rightBytes }, { tile }) => [
      y.set(elementAt(y, tile, ptr.add(leftBytes, rightBytes))),
      memory.copy(y, elementAt(left, tile, leftBytes), leftBytes),
      memory.copy(ptr.add(y, leftBytes), elementAt(right, tile, rightBytes), rightBytes),
    ]),
  ],
};

export const joinColumnsWasm: Kernel<JoinColumnsArgs> = wasmKernel<JoinColumnsArgs>({
  ...plainRow,
  name: "join_columns_f32_1x1x1_wasm_simd",
  step({ rows, first, second, left, right, y }, place) {
    const values = {
      left: place.read(left),
      right: place.read(right),
      y: place.write(y),
      leftBytes: 4 * first,
      rightBytes: 4 * second,
    };
    return { phases: [{ code: joinCode, tiles: rows, args: block.encode(values) }] };
  },
});
