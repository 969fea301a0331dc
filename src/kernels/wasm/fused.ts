/** Fused operators: gates of halves of rows, a sum and its norm, and rotary embedding before attention. A tile is a row. */
import { bytesOf } from "../../tensor.ts";
import type { AddRmsNormArgs, AttentionArgs, HalvesArgs, RopeAttentionArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { rotatedPlaces } from "../reference/fused.ts";
import type { Local } from "./assembler/expression.ts";
import { f32x4, i32 } from "./assembler/instructions.ts";
import { attentionRelaxedWasm, attentionWasm } from "./attention/attention.ts";
import { ropeWasm } from "./attention/rope.ts";
import { type Formula, gegluFormula, selectWasm, swigluFormula } from "./elementwise.ts";
import { forLanes } from "./generate/lanes.ts";
import { elementAt } from "./generate/loops.ts";
import { VectorMath } from "./generate/vector-math.ts";
import { VectorConstants } from "./generate/weight-fields.ts";
import { plainRow, wasmKernel } from "./kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction, type Placement, type WasmPhase } from "./kernel-code.ts";
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

const rotatedBytes = (args: RopeAttentionArgs) => Math.ceil(rotatedPlaces(args.tokens, args).length / 16) * 64;

/** The same call with arrays of size 0 for queries, keys and values, which lie in scratch. */
const withArrays = ({ qkv: _, ...rest }: RopeAttentionArgs) => ({ ...rest, ...noArrays }) satisfies AttentionArgs;
const noArrays = { q: new Float32Array(0), k: new Float32Array(0), v: new Float32Array(0) };

/** A placement that knows where in scratch some arrays lie, and gives the scratch after `used` bytes. */
function placementWith(place: Placement, offsets: ReadonlyMap<ArrayBufferView, number>, used: number): Placement {
  const at = (view: ArrayBufferView) => {
    const offset = offsets.get(view);
    return offset === undefined ? null : place.scratch + offset;
  };
  return {
    read: (view) => at(view) ?? place.read(view),
    write: (view) => at(view) ?? place.write(view),
    scratch: place.scratch + used,
    threads: place.threads,
  };
}

const step = <A>(kernel: Kernel<A>, args: A, place: Placement): readonly WasmPhase[] => {
  const call = kernel.encode!(args, new Uint8Array(0));
  return call.target === "wasm" ? call.prepare(place).phases : [];
};

/** Columns are copied to scratch and rotated there, then attended to: the phases of the single kernels. */
const ropeAttentionRow = (name: string, attention: Kernel<AttentionArgs>) =>
  wasmKernel<RopeAttentionArgs>({
    ...plainRow,
    name,
    needs: attention.needs,
    scratchBytes: (args, threads) => rotatedBytes(args) + attention.scratchBytes!(withArrays(args), threads),
    step(args, given) {
      const { qkv, angles, half, tokens, heads, kvHeads, headDim } = args;
      const call = withArrays(args);
      const places = rotatedPlaces(args.tokens, args);
      const parts = [
        { array: call.q, start: places.q, column: 0, heads },
        { array: call.k, start: places.k, column: heads, heads: kvHeads },
        { array: call.v, start: places.v, column: heads + kvHeads, heads: kvHeads },
      ];
      const place = placementWith(
        given,
        new Map(parts.map(({ array, start }) => [array, 4 * start])),
        rotatedBytes(args),
      );
      const x = bytesOf(qkv);
      const rowBytes = 4 * headDim;
      const copies = parts.flatMap(({ array, column, heads: count }) => {
        const bytes = { outer: tokens, stride: (heads + 2 * kvHeads) * rowBytes, blockBytes: count * rowBytes };
        return step(selectWasm, { ...bytes, offset: column * rowBytes, x, y: array as unknown as Uint8Array }, place);
      });
      const turns = parts.slice(0, 2).flatMap(({ array, heads: count }) => {
        return step(ropeWasm, { tokens, heads: count, headDim, half, x: array, angles, y: array }, place);
      });
      return { phases: [...copies, ...turns, ...step(attention, call, place)] };
    },
  });

export const ropeAttentionWasm = ropeAttentionRow("rope_attention_f32_1x1x4_wasm_simd", attentionWasm);
export const ropeAttentionRelaxedWasm = ropeAttentionRow("rope_attention_f32_1x1x4_wasm_relaxed", attentionRelaxedWasm);
