// wasm.ts: the operator's kernel in WebAssembly
import {
  ArgumentBlock,
  elementAt,
  f32,
  float,
  i32,
  int,
  kernelFunction,
  smaller,
  wasmKernel,
  whileDo,
} from "lowbit/wasm";
import type { SquaredReluArgs } from "./operator.ts";

/** Values of one tile: threads take tiles until there are none. */
const TILE = 4096;

const block = new ArgumentBlock({ x: "ptr", y: "ptr", count: "i32" });

const code = {
  key: "squared_relu",
  build: () => [
    kernelFunction("squared_relu", block, ({ x, y, count }, { tile }, scope) => {
      const [at, end] = [scope.local("i32", "at"), scope.local("i32", "end")];
      const value = f32.max(f32.load(elementAt(x, at, 4)), float(0));
      const kept = scope.local("f32", "kept");
      return [
        at.set(i32.mul(tile, int(TILE))),
        end.set(i32.add(at, int(TILE))),
        smaller(end, count, end),
        whileDo(i32.lt_u(at, end), [
          kept.set(value),
          f32.store(elementAt(y, at, 4), f32.mul(kept, kept)),
          at.set(i32.add(at, int(1))),
        ]),
      ];
    }),
  ],
};

export const wasm = wasmKernel<SquaredReluArgs>({
  name: "squared_relu_f32_1x1x1_wasm",
  layouts: null,
  bits: null,
  needs: ["simd128"],
  mStep: 1,
  nStep: 1,
  step({ x, y }, place) {
    const args = block.encode({ x: place.read(x), y: place.write(y), count: x.length });
    return { phases: [{ code, tiles: Math.ceil(x.length / TILE), args }] };
  },
});
