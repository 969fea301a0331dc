/** Operators over rows: RMS norm, softmax, sums of groups, softplus, factors, argmax. A tile is a row. */
import { groupCount } from "../../quantized.ts";
import type { ArgmaxArgs, GroupSumsArgs, RmsNormArgs, ScaleRowsArgs, SoftmaxArgs, SoftplusArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { type Body, type Expr, type Local, when, whileDo } from "./assembler/expression.ts";
import { f32, f32x4, float, i32, i64, int, v128 } from "./assembler/instructions.ts";
import type { Scope } from "./assembler/module.ts";
import { forLanes, largestLane, sumOfLanes } from "./generate/lanes.ts";
import { advance, elementAt, forRange } from "./generate/loops.ts";
import { VectorMath } from "./generate/vector-math.ts";
import { VectorConstants } from "./generate/weight-fields.ts";
import { plainRow, wasmKernel } from "./kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "./kernel-code.ts";

const normBlock = new ArgumentBlock({ x: "ptr", weight: "ptr", y: "ptr", dim: "i32", eps: "f32" });

/** Places and numbers of a norm; `squares` holds lanes of the sum of a row's squares, `at` is free to use. */
interface Norm extends Readonly<Record<"x" | "y" | "weight" | "at", Local<"ptr">>> {
  readonly dim: Local<"i32">;
  readonly tile: Local<"i32">;
  readonly eps: Local<"f32">;
  readonly squares: Local<"v128">;
}

/** Row `tile` of y = x / sqrt(mean(x^2) + eps) * weight; y becomes the row's place. */
export function normalize(norm: Norm, scope: Scope, constants: VectorConstants): Body {
  const { x, weight, y, dim, eps, tile, at, squares } = norm;
  const inverse = scope.local("v128", "inverse");
  const mean = f32.div(sumOfLanes(squares), f32.convert_i32_s(dim));
  const row = (base: Local<"ptr">) => elementAt(base, i32.mul(tile, dim), 4);
  return [
    inverse.set(f32x4.splat(f32.div(float(1), f32.sqrt(f32.add(mean, eps))))),
    at.set(row(x)),
    y.set(row(y)),
    forLanes({ scope, constants, count: dim, pointers: [[at], [weight], [y]] }, (lanes) => [
      lanes.store(y, f32x4.mul(f32x4.mul(lanes.load(at), inverse), lanes.load(weight))),
    ]),
  ];
}

const normCode: KernelCode = {
  key: "rms_norm",
  build: () => [
    kernelFunction("rms_norm", normBlock, ({ x, weight, y, dim, eps }, { tile }, scope) => {
      const constants = new VectorConstants(scope);
      const at = scope.local("ptr", "at");
      const value = scope.local("v128", "value");
      const squares = scope.local("v128", "squares");
      const row = (base: typeof x) => elementAt(base, i32.mul(tile, dim), 4);
      return [
        constants.prepare,
        at.set(row(x)),
        forLanes({ scope, constants, count: dim, pointers: [[at]] }, (lanes) => [
          value.set(lanes.load(at)),
          squares.set(f32x4.add(squares, f32x4.mul(value, value))),
        ]),
        normalize({ x, weight, y, dim, eps, tile, at, squares }, scope, constants),
      ];
    }),
  ],
};

export const rmsNormWasm: Kernel<RmsNormArgs> = wasmKernel<RmsNormArgs>({
  ...plainRow,
  name: "rms_norm_f32_1x1x4_wasm_simd",
  step({ dim, x, weight, eps, y }, place) {
    const values = { x: place.read(x), weight: place.read(weight), y: place.write(y), dim, eps };
    return { phases: [{ code: normCode, tiles: x.length / dim, args: normBlock.encode(values) }] };
  },
});

const rowBlock = new ArgumentBlock({ x: "ptr", y: "ptr", dim: "i32" });

const softmaxCode: KernelCode = {
  key: "softmax",
  build: () => [
    kernelFunction("softmax", rowBlock, ({ x, y, dim }, { tile }, scope) => {
      const constants = new VectorConstants(scope);
      const math = new VectorMath(scope, constants);
      const from = scope.local("ptr", "from");
      const to = scope.local("ptr", "to");
      const largest = scope.local("v128", "largest");
      const value = scope.local("v128", "value");
      const total = scope.local("v128", "total");
      const start: Body = [from.set(elementAt(x, i32.mul(tile, dim), 4)), to.set(elementAt(y, i32.mul(tile, dim), 4))];
      return [
        constants.prepare,
        start,
        largest.set(v128.load32_splat(from)),
        forLanes({ scope, constants, count: dim, pointers: [[from]] }, (lanes) => [
          largest.set(f32x4.pmax(largest, lanes.count === 4 ? v128.load(from) : v128.load32_splat(from))),
        ]),
        largest.set(f32x4.splat(largestLane(largest))),
        start,
        forLanes({ scope, constants, count: dim, pointers: [[from], [to]] }, (lanes) => [
          math.exp(f32x4.sub(lanes.load(from), largest), value),
          lanes.store(to, value),
          // What was stored is loaded again so that the lanes of single values that are not used count nothing.
          total.set(f32x4.add(total, lanes.count === 4 ? value : lanes.load(to))),
        ]),
        total.set(f32x4.splat(f32.div(float(1), sumOfLanes(total)))),
        start,
        forLanes({ scope, constants, count: dim, pointers: [[to]] }, (lanes) => [
          lanes.store(to, f32x4.mul(lanes.load(to), total)),
        ]),
      ];
    }),
  ],
};

export const softmaxWasm: Kernel<SoftmaxArgs> = wasmKernel<SoftmaxArgs>({
  ...plainRow,
  name: "softmax_f32_1x1x4_wasm_simd",
  step({ dim, x, y }, place) {
    const args = rowBlock.encode({ x: place.read(x), y: place.write(y), dim });
    return { phases: [{ code: softmaxCode, tiles: x.length / dim, args }] };
  },
});

const groupBlock = new ArgumentBlock({ x: "ptr", y: "ptr", k: "i32", groupSize: "i32", groups: "i32" });

const groupSumsCode: KernelCode = {
  key: "group_sums",
  build: () => [
    kernelFunction("group_sums", groupBlock, ({ x, y, k, groupSize, groups }, { tile }, scope) => {
      const constants = new VectorConstants(scope);
      const rest = scope.local("i32", "rest");
      const count = scope.local("i32", "group_count");
      const total = scope.local("v128", "total");
      return [
        constants.prepare,
        x.set(elementAt(x, i32.mul(tile, k), 4)),
        y.set(elementAt(y, i32.mul(tile, groups), 4)),
        rest.set(k),
        whileDo(i32.gt_u(rest, int(0)), [
          count.set(rest),
          when(i32.gt_u(count, groupSize), [count.set(groupSize)]),
          rest.set(i32.sub(rest, count)),
          total.set(constants.floats(0)),
          forLanes({ scope, constants, count, pointers: [[x]] }, (lanes) => [
            total.set(f32x4.add(total, lanes.load(x))),
          ]),
          f32.store(y, sumOfLanes(total)),
          advance(y, 4),
        ]),
      ];
    }),
  ],
};

export const groupSumsWasm: Kernel<GroupSumsArgs> = wasmKernel<GroupSumsArgs>({
  ...plainRow,
  name: "group_sums_f32_1x1x4_wasm_simd",
  step({ rows, k, groupSize, x, y }, place) {
    const values = { x: place.read(x), y: place.write(y), k, groupSize, groups: groupCount({ k, groupSize }) };
    return { phases: [{ code: groupSumsCode, tiles: rows, args: groupBlock.encode(values) }] };
  },
});

const softplusBlock = new ArgumentBlock({ x: "ptr", bias: "ptr", factors: "ptr", y: "ptr", dim: "i32" });

/** Powers of s^2 in 2 atanh(s) / s, highest first: s is at most 1 / 3, which leaves a relative error of 1e-8. */
const ATANH = [15, 13, 11, 9, 7, 5, 3, 1].map((power) => 2 / power);

/** ln(1 + e) = 2 atanh(e / (2 + e)) for e = exp(-|a|); what e leaves of a is max(a, 0). */
const softplusCode: KernelCode = {
  key: "softplus",
  build: () => [
    kernelFunction("softplus", softplusBlock, ({ x, bias, factors, y, dim }, { tile }, scope) => {
      const constants = new VectorConstants(scope);
      const math = new VectorMath(scope, constants);
      const [a, s, square] = ["a", "s", "square"].map((name) => scope.local("v128", name)) as [
        Local<"v128">,
        Local<"v128">,
        Local<"v128">,
      ];
      const series = ATANH.slice(1).reduce<Expr<"v128">>(
        (sum, coefficient) => f32x4.add(f32x4.mul(sum, square), constants.floats(coefficient)),
        constants.floats(ATANH[0]!),
      );
      return [
        constants.prepare,
        x.set(elementAt(x, i32.mul(tile, dim), 4)),
        y.set(elementAt(y, i32.mul(tile, dim), 4)),
        forLanes({ scope, constants, count: dim, pointers: [[x], [bias], [factors], [y]] }, (lanes) => [
          a.set(f32x4.add(lanes.load(x), lanes.load(bias))),
          math.exp(f32x4.neg(f32x4.abs(a)), s),
          s.set(f32x4.div(s, f32x4.add(constants.floats(2), s))),
          square.set(f32x4.mul(s, s)),
          s.set(f32x4.add(f32x4.mul(s, series), f32x4.max(a, constants.floats(0)))),
          lanes.store(y, f32x4.mul(lanes.load(factors), s)),
        ]),
      ];
    }),
  ],
};

export const softplusWasm: Kernel<SoftplusArgs> = wasmKernel<SoftplusArgs>({
  ...plainRow,
  name: "softplus_f32_1x1x4_wasm_simd",
  step({ dim, x, bias, factors, y }, place) {
    const values = { x: place.read(x), bias: place.read(bias), factors: place.read(factors), y: place.write(y), dim };
    return { phases: [{ code: softplusCode, tiles: x.length / dim, args: softplusBlock.encode(values) }] };
  },
});

const scaleRowsBlock = new ArgumentBlock({ x: "ptr", factors: "ptr", y: "ptr", dim: "i32", factorCount: "i32" });

const scaleRowsCode: KernelCode = {
  key: "scale_rows",
  build: () => [
    kernelFunction("scale_rows", scaleRowsBlock, ({ x, factors, y, dim, factorCount }, { tile }, scope) => {
      const constants = new VectorConstants(scope);
      const factor = scope.local("v128", "factor");
      return [
        constants.prepare,
        factor.set(v128.load32_splat(elementAt(factors, i32.rem_u(tile, factorCount), 4))),
        x.set(elementAt(x, i32.mul(tile, dim), 4)),
        y.set(elementAt(y, i32.mul(tile, dim), 4)),
        forLanes({ scope, constants, count: dim, pointers: [[x], [y]] }, (lanes) => [
          lanes.store(y, f32x4.mul(factor, lanes.load(x))),
        ]),
      ];
    }),
  ],
};

export const scaleRowsWasm: Kernel<ScaleRowsArgs> = wasmKernel<ScaleRowsArgs>({
  ...plainRow,
  name: "scale_rows_f32_1x1x4_wasm_simd",
  step({ dim, x, factors, y }, place) {
    const places = { x: place.read(x), factors: place.read(factors), y: place.write(y) };
    const values = { ...places, dim, factorCount: factors.length };
    return { phases: [{ code: scaleRowsCode, tiles: x.length / dim, args: scaleRowsBlock.encode(values) }] };
  },
});

/** The first NaN wins: no value is less than it, equal to it or greater. */
const argmaxCode: KernelCode = {
  key: "argmax",
  build: () => [
    kernelFunction("argmax", rowBlock, ({ x, y, dim }, { tile }, scope) => {
      const at = scope.local("ptr", "at");
      const best = scope.local("i32", "best");
      const largest = scope.local("f32", "largest");
      const i = scope.local("i32", "i");
      return [
        at.set(elementAt(x, i32.mul(tile, dim), 4)),
        largest.set(f32.load(at)),
        forRange(i, int(0), dim, [
          when(i32.and(i32.eqz(f32.le(f32.load(at), largest)), f32.eq(largest, largest)), [
            largest.set(f32.load(at)),
            best.set(i),
          ]),
          advance(at, 4),
        ]),
        i64.store(elementAt(y, tile, 8), i64.extend_i32_u(best)),
      ];
    }),
  ],
};

export const argmaxWasm: Kernel<ArgmaxArgs> = wasmKernel<ArgmaxArgs>({
  ...plainRow,
  name: "argmax_f32_1x1x1_wasm_simd",
  step({ dim, x, y }, place) {
    const args = rowBlock.encode({ x: place.read(x), y: place.write(y), dim });
    return { phases: [{ code: argmaxCode, tiles: y.length, args }] };
  },
});
