/**
 * Causal depthwise convolution over the last inputs of each sequence. A tile is a range of channels of all rows. Sums start
 * with the bias and go from the oldest input, so that a row's results do not depend on other rows of the step.
 */

import type { Kernel } from "../../../contract.ts";
import { type Body, type Expr, type Local, when, widen } from "../../../wasm/assembler/expression.ts";
import { f32x4, i32, int, memory, ptr, size } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { forLanes, type Lanes } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { VectorMath } from "../../../wasm/generate/vector-math.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../../../wasm/kernel.ts";
import { ArgumentBlock, type FieldsOf, type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import type { ShortConvolutionArgs } from "../fields.ts";
import { forStates, stateFields, stateValues } from "./states.ts";

/** Channels of a tile: a few rows of them and their weights fit the L1 cache. */
const TILE_CHANNELS = 256;

const block = new ArgumentBlock({
  ...stateFields,
  x: "ptr",
  weight: "ptr",
  bias: "ptr",
  y: "ptr",
  /** Bytes of a row of inputs, weights or state. */
  rowBytes: "ptr",
  channels: "i32",
  taps: "i32",
});

type Fields = FieldsOf<typeof block>;

interface Variant {
  readonly hasBias: boolean;
  readonly silu: boolean;
}

/** Inputs of a row: address and number of those in the state, and the address of those in the step. */
interface InputRow {
  readonly before: Local<"ptr">;
  readonly known: Local<"i32">;
  readonly inputs: Local<"ptr">;
  readonly y: Local<"ptr">;
  readonly count: Local<"i32">;
}

/** Computes the results of a row and advances its addresses. */
function convolveRow(scope: Scope, constants: VectorConstants, fields: Fields, row: InputRow, variant: Variant): Body {
  const { weight, bias, rowBytes, taps } = fields;
  const { before, known, inputs, y, count } = row;
  const { hasBias, silu } = variant;
  const math = new VectorMath(scope, constants);
  const [factors, factor, offset, at] = ["factors", "factor", "offset", "at"].map((name) =>
    scope.local("ptr", name),
  ) as Local<"ptr">[] & Record<0 | 1 | 2 | 3, Local<"ptr">>;
  const [sum, exponential] = scope.localArray("v128", "sum", 2) as [Local<"v128">, Local<"v128">];
  const tap = scope.local("i32", "tap");
  const add = (from: Local<"ptr">, there: Expr<"i32">, lanes: Lanes): Body => [
    at.set(from),
    forRange(tap, int(0), there, [
      sum.set(f32x4.add(sum, f32x4.mul(lanes.load(factor), lanes.load(at)))),
      advance(at, rowBytes),
      advance(factor, rowBytes),
    ]),
  ];
  const activate: Body = [
    math.exp(f32x4.neg(sum), exponential),
    sum.set(f32x4.div(sum, f32x4.add(constants.floats(1), exponential))),
  ];
  const moving = [before, inputs, factors, y, ...(hasBias ? [offset] : [])];
  const pointers = moving.map((pointer) => [pointer] as const);
  return [
    factors.set(weight),
    offset.set(bias),
    forLanes({ scope, constants, count, pointers }, (lanes) => [
      sum.set(hasBias ? lanes.load(offset) : constants.floats(0)),
      factor.set(factors),
      add(before, known, lanes),
      add(inputs, i32.sub(taps, known), lanes),
      silu ? activate : [],
      lanes.store(y, sum),
    ]),
  ];
}

function convolutionCode(variant: Variant): KernelCode {
  const { hasBias, silu } = variant;
  const key = `short_convolution${hasBias ? "_bias" : ""}${silu ? "_silu" : ""}`;
  return {
    key,
    build: () => [
      kernelFunction(key, block, (fields, { tile }, scope) => {
        const { x, weight, bias, y, rowBytes, channels, taps } = fields;
        const constants = new VectorConstants(scope);
        const [first, count, row, known, kept, input] = ["first", "count", "row", "known", "kept", "input"].map(
          (name) => scope.local("i32", name),
        ) as Local<"i32">[] & Record<0 | 1 | 2 | 3 | 4 | 5, Local<"i32">>;
        const [before, inputs, to, from] = ["before", "inputs", "to", "from"].map((name) =>
          scope.local("ptr", name),
        ) as Local<"ptr">[] & Record<0 | 1 | 2 | 3, Local<"ptr">>;
        const bytesOf = (floats: Expr<"i32">) => ptr.mul(widen(floats), size(4));
        const bases = [x, weight, y, fields.stateOffset, ...(hasBias ? [bias] : [])];
        const rowOf = (base: Local<"ptr">, index: Expr<"i32">) => elementAt(base, index, rowBytes);
        const place = { before, known, inputs, y: to, count };
        return [
          constants.prepare,
          first.set(i32.mul(tile, int(TILE_CHANNELS))),
          count.set(i32.sub(channels, first)),
          when(i32.gt_u(count, int(TILE_CHANNELS)), [count.set(int(TILE_CHANNELS))]),
          kept.set(i32.sub(taps, int(1))),
          bases.map((base) => base.set(ptr.add(base, bytesOf(first)))),
          forStates({ scope, constants }, fields, { y, rowBytes, count }, (run, now, next) => [
            forRange(row, int(0), run.count, [
              known.set(i32.sub(kept, row)),
              when(i32.lt_s(known, int(0)), [known.set(int(0))]),
              before.set(rowOf(now, i32.sub(kept, known))),
              inputs.set(rowOf(x, i32.sub(i32.add(i32.add(run.first, row), known), kept))),
              to.set(rowOf(y, i32.add(run.first, row))),
              convolveRow(scope, constants, fields, place, variant),
            ]),
            forRange(row, int(0), kept, [
              input.set(i32.add(run.count, row)),
              from.set(rowOf(now, input)),
              when(i32.ge_u(input, kept), [from.set(rowOf(x, i32.add(run.first, i32.sub(input, kept))))]),
              memory.copy(rowOf(next, row), from, bytesOf(count)),
            ]),
          ]),
        ];
      }),
    ],
  };
}

export const shortConvolutionWasm: Kernel<ShortConvolutionArgs> = wasmKernel<ShortConvolutionArgs>({
  ...plainRow,
  name: "short_convolution_f32_1x1x4_wasm_simd",
  step(args, place) {
    const { channels, taps, x, weight, bias, silu, y } = args;
    const values = {
      ...{ x: place.read(x), weight: place.read(weight), bias: bias ? place.read(bias) : 0, y: place.write(y) },
      ...{ rowBytes: 4 * channels, channels, taps },
      ...stateValues(args, place),
    };
    const code = convolutionCode({ hasBias: bias !== null, silu });
    return { phases: [{ code, tiles: Math.ceil(channels / TILE_CHANNELS), args: block.encode(values) }] };
  },
});
