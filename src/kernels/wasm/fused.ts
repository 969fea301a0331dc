/** Fused operators: gates of halves of rows, and a sum and its norm. A tile is a row. */
import type { AddRmsNormArgs, HalvesArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import type { Local } from "./assembler/expression.ts";
import { f32x4, i32 } from "./assembler/instructions.ts";
import { type Formula, gegluFormula, swigluFormula } from "./elementwise.ts";
import { forLanes } from "./generate/lanes.ts";
import { elementAt } from "./generate/loops.ts";
import { VectorMath } from "./generate/vector-math.ts";
import { VectorConstants } from "./generate/weight-fields.ts";
import { plainRow, wasmKernel } from "./kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "./kernel-code.ts";
import { normalize } from "./rows.ts";

const halvesBlock = new ArgumentBlock({ x: "ptr", y: "ptr", dim: "i32" });

function halvesCode(key: string, formula: Formula): KernelCode {
  return {
    key,
    build: () => [
      kernelFunction(key, halvesBlock, ({ x, y, dim }, { tile }, scope) => {
        const constants = new VectorConstants(scope);
        const math = new VectorMath(scope, constants);
        const [a, b, value] = scope.localArray("v128", "operand", 3) as [Local<"v128">, Local<"v128">, Local<"v128">];
        const right = scope.local("ptr", "right");
        return [
          constants.prepare,
          x.set(elementAt(x, i32.mul(tile, dim), 8)),
          y.set(elementAt(y, i32.mul(tile, dim), 4)),
          right.set(elementAt(x, dim, 4)),
          forLanes({ scope, constants, count: dim, pointers: [[x], [right], [y]] }, (lanes) => [
            a.set(lanes.load(x)),
            b.set(lanes.load(right)),
            formula({ a, b, value, math, constants }),
            lanes.store(y, a),
          ]),
        ];
      }),
    ],
  };
}

function halvesRow(operator: string, formula: Formula): Kernel<HalvesArgs> {
  const code = halvesCode(operator, formula);
  return wasmKernel<HalvesArgs>({
    ...plainRow,
    name: `${operator}_f32_1x1x4_wasm_simd`,
    step({ dim, x, y }, place) {
      const args = halvesBlock.encode({ x: place.read(x), y: place.write(y), dim });
      return { phases: [{ code, tiles: y.length / dim, args }] };
    },
  });
}

export const swigluHalvesWasm = halvesRow("swiglu_halves", swigluFormula);
export const gegluHalvesWasm = halvesRow("geglu_halves", gegluFormula);

const addNormBlock = new ArgumentBlock({
  x: "ptr",
  addend: "ptr",
  weight: "ptr",
  y: "ptr",
  dim: "i32",
  eps: "f32",
  alpha: "f32",
});

const addNormCode: KernelCode = {
  key: "add_rms_norm",
  build: () => [
    kernelFunction("add_rms_norm", addNormBlock, ({ x, addend, weight, y, dim, eps, alpha }, { tile }, scope) => {
      const constants = new VectorConstants(scope);
      const at = scope.local("ptr", "at");
      const factor = scope.local("v128", "factor");
      const value = scope.local("v128", "value");
      const squares = scope.local("v128", "squares");
      const row = (base: typeof x) => elementAt(base, i32.mul(tile, dim), 4);
      return [
        constants.prepare,
        factor.set(f32x4.splat(alpha)),
        at.set(row(x)),
        addend.set(row(addend)),
        forLanes({ scope, constants, count: dim, pointers: [[at], [addend]] }, (lanes) => [
          value.set(f32x4.add(lanes.load(at), f32x4.mul(factor, lanes.load(addend)))),
          lanes.store(at, value),
          squares.set(f32x4.add(squares, f32x4.mul(value, value))),
        ]),
        normalize({ x, weight, y, dim, eps, tile, at, squares }, scope, constants),
      ];
    }),
  ],
};

export const addRmsNormWasm: Kernel<AddRmsNormArgs> = wasmKernel<AddRmsNormArgs>({
  ...plainRow,
  name: "add_rms_norm_f32_1x1x4_wasm_simd",
  step({ dim, x, addend, weight, eps, alpha, y }, place) {
    const values = {
      x: place.write(x),
      addend: place.read(addend),
      weight: place.read(weight),
      y: place.write(y),
      dim,
      eps,
      alpha,
    };
    return { phases: [{ code: addNormCode, tiles: x.length / dim, args: addNormBlock.encode(values) }] };
  },
});
