/** Operators that work value by value. A tile is a range of values. */
import type { BinaryArgs, ClampedGateArgs, SelectArgs, UnaryArgs } from "../arguments.ts";
import type { Kernel } from "../contract.ts";
import { type Body, type Expr, type Local, when } from "./assembler/expression.ts";
import { f32x4, i32, int, memory } from "./assembler/instructions.ts";
import { forLanes } from "./generate/lanes.ts";
import { advance, elementAt, forRange } from "./generate/loops.ts";
import { VectorMath } from "./generate/vector-math.ts";
import { VectorConstants } from "./generate/weight-fields.ts";
import { plainRow, wasmKernel } from "./kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "./kernel-code.ts";

/** Values of a tile: enough that taking it costs little. */
const TILE_VALUES = 4096;

const block = new ArgumentBlock({ a: "ptr", b: "ptr", y: "ptr", count: "i32", value: "f32" });

interface Operands {
  readonly a: Local<"v128">;
  readonly b: Local<"v128">;
  /** The number of the call, in all lanes. */
  readonly value: Local<"v128">;
  readonly math: VectorMath;
  readonly constants: VectorConstants;
}

/** Sets `a` to the result. */
export type Formula = (operands: Operands) => Body;

function elementwiseCode(key: string, formula: Formula): KernelCode {
  return {
    key,
    build: () => [
      kernelFunction(key, block, (fields, { tile }, scope) => {
        const constants = new VectorConstants(scope);
        const math = new VectorMath(scope, constants);
        const [a, b, value] = scope.localArray("v128", "operand", 3) as [Local<"v128">, Local<"v128">, Local<"v128">];
        const count = scope.local("i32", "tile_count");
        const first = i32.mul(tile, int(TILE_VALUES));
        const pointers = [fields.a, fields.b, fields.y] as const;
        const loop = forLanes({ scope, constants, count, pointers: pointers.map((p) => [p]) }, (lanes) => [
          a.set(lanes.load(fields.a)),
          b.set(lanes.load(fields.b)),
          formula({ a, b, value, math, constants }),
          lanes.store(fields.y, a),
        ]);
        return [
          constants.prepare,
          value.set(f32x4.splat(fields.value)),
          count.set(i32.sub(fields.count, first)),
          when(i32.gt_u(count, int(TILE_VALUES)), [count.set(int(TILE_VALUES))]),
          pointers.map((pointer) => pointer.set(elementAt(pointer, first, 4))),
          loop,
        ];
      }),
    ],
  };
}

export interface Call {
  readonly a: Float32Array;
  readonly b: Float32Array;
  readonly value: number;
  readonly y: Float32Array;
}

/** A row that computes a formula of two operands, or of one and a number, value by value. */
export function elementwise<A>(operator: string, formula: Formula, call: (args: A) => Call): Kernel<A> {
  const code = elementwiseCode(operator, formula);
  return wasmKernel<A>({
    ...plainRow,
    name: `${operator}_f32_1x1x4_wasm_simd`,
    step(args, place) {
      const { a, b, value, y } = call(args);
      const values = { a: place.read(a), b: place.read(b), y: place.write(y), count: y.length, value };
      return { phases: [{ code, tiles: Math.ceil(y.length / TILE_VALUES), args: block.encode(values) }] };
    },
  });
}

const binary = ({ a, b, alpha, y }: BinaryArgs): Call => ({ a, b, value: alpha, y });
export const unary = ({ x, value, y }: UnaryArgs): Call => ({ a: x, b: x, value, y });

/** a / (1 + exp(-u)), u in `b`. */
function sigmoidTimes(result: Local<"v128">, u: Expr<"v128">, factor: Expr<"v128">, operands: Operands): Body {
  const { math, constants } = operands;
  const { value } = operands;
  return [
    math.exp(f32x4.neg(u), value),
    result.set(f32x4.mul(f32x4.div(result, f32x4.add(constants.floats(1), value)), factor)),
  ];
}

/** tanh(u) = 2 sigmoid(2 u) - 1 turns GEGLU's tanh form into a sigmoid: u2 = 2 sqrt(2 / pi) (a + 0.044715 a^3). */
function geluArgument({ a, constants }: Operands): Expr<"v128"> {
  const root = Math.sqrt(8 / Math.PI);
  const cubic = f32x4.mul(f32x4.mul(a, a), constants.floats(0.044715 * root));
  return f32x4.mul(a, f32x4.add(constants.floats(root), cubic));
}

export const addWasm: Kernel<BinaryArgs> = elementwise(
  "add",
  ({ a, b, value }) => [a.set(f32x4.add(a, f32x4.mul(value, b)))],
  binary,
);
/** 1 / (1 + exp(-a)) times a factor. */
const sigmoidOf = (operands: Operands, factor: Expr<"v128">): Body => {
  const { a, value, math, constants } = operands;
  return [math.exp(f32x4.neg(a), value), a.set(f32x4.div(factor, f32x4.add(constants.floats(1), value)))];
};

export const multiplyWasm: Kernel<BinaryArgs> = elementwise("multiply", ({ a, b }) => [a.set(f32x4.mul(a, b))], binary);
export const sigmoidGateWasm: Kernel<BinaryArgs> = elementwise(
  "sigmoid_gate",
  (operands) => sigmoidOf(operands, operands.b),
  binary,
);
export const sigmoidWasm: Kernel<UnaryArgs> = elementwise(
  "sigmoid",
  (operands) => sigmoidOf(operands, operands.constants.floats(1)),
  unary,
);
export const swigluFormula: Formula = (operands) => sigmoidTimes(operands.a, operands.a, operands.b, operands);
export const gegluFormula: Formula = (operands) =>
  sigmoidTimes(operands.a, geluArgument(operands), operands.b, operands);

/**
 * Coefficients of ln(erfc(z) / t) + z^2 by powers of t = 1 / (1 + z / 2), z >= 0, highest first: a relative error of 1.2e-7
 * (Press et al., Numerical Recipes, 6.2).
 */
const ERFC = [
  0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
  -1.26551223,
];

/** gelu(a) = max(a, 0) - |a| erfc(|a| / sqrt 2) / 2. */
export const erfGegluFormula: Formula = ({ a, b, value, math, constants }) => {
  const floats = (number: number) => constants.floats(number);
  const t = f32x4.div(floats(1), f32x4.add(floats(1), f32x4.mul(floats(Math.SQRT1_2 / 2), f32x4.abs(a))));
  const polynomial = ERFC.slice(1).reduce<Expr<"v128">>(
    (sum, coefficient) => f32x4.add(f32x4.mul(sum, value), floats(coefficient)),
    floats(ERFC[0]!),
  );
  const tail = f32x4.mul(f32x4.mul(t, floats(0.5)), value);
  return [
    value.set(t),
    math.exp(f32x4.sub(polynomial, f32x4.mul(f32x4.mul(a, a), floats(0.5))), value),
    a.set(f32x4.mul(f32x4.sub(f32x4.max(a, floats(0)), f32x4.mul(f32x4.abs(a), tail)), b)),
  ];
};

const quickGegluFormula: Formula = (operands) =>
  sigmoidTimes(operands.a, f32x4.mul(operands.a, operands.constants.floats(1.702)), operands.b, operands);

const regluFormula: Formula = ({ a, b, constants }) => [a.set(f32x4.mul(f32x4.max(a, constants.floats(0)), b))];

const squaredRegluFormula: Formula = ({ a, b, constants }) => [
  a.set(f32x4.max(a, constants.floats(0))),
  a.set(f32x4.mul(f32x4.mul(a, a), b)),
];

export const swigluWasm: Kernel<BinaryArgs> = elementwise("swiglu", swigluFormula, binary);
export const gegluWasm: Kernel<BinaryArgs> = elementwise("geglu", gegluFormula, binary);
export const erfGegluWasm: Kernel<BinaryArgs> = elementwise("erf_geglu", erfGegluFormula, binary);
export const quickGegluWasm: Kernel<BinaryArgs> = elementwise("quick_geglu", quickGegluFormula, binary);
export const regluWasm: Kernel<BinaryArgs> = elementwise("reglu", regluFormula, binary);
export const squaredRegluWasm: Kernel<BinaryArgs> = elementwise("squared_reglu", squaredRegluFormula, binary);
/** (clamp(b) + 1) c sigmoid(slope c), c = min(a, limit). */
const clampedGateFormula =
  (slope: number, limit: number): Formula =>
  (operands) => {
    const { a, b, constants } = operands;
    const floats = (number: number) => constants.floats(number);
    const clamped = f32x4.max(f32x4.min(b, floats(limit)), floats(-limit));
    return [
      a.set(f32x4.min(a, floats(limit))),
      b.set(f32x4.add(clamped, floats(1))),
      sigmoidTimes(a, f32x4.mul(a, floats(slope)), b, operands),
    ];
  };

/** Models have one slope and one limit, which the code is made for. */
export const clampedGateWasm: Kernel<ClampedGateArgs> = wasmKernel<ClampedGateArgs>({
  ...plainRow,
  name: "clamped_gate_f32_1x1x4_wasm_simd",
  step({ a, b, slope, limit, y }, place) {
    const code = elementwiseCode(`clamped_gate_${slope}_${limit}`, clampedGateFormula(slope, limit));
    const values = { a: place.read(a), b: place.read(b), y: place.write(y), count: y.length, value: 0 };
    return { phases: [{ code, tiles: Math.ceil(y.length / TILE_VALUES), args: block.encode(values) }] };
  },
});

export const scaleWasm: Kernel<UnaryArgs> = elementwise("scale", ({ a, value }) => [a.set(f32x4.mul(a, value))], unary);
export const softcapWasm: Kernel<UnaryArgs> = elementwise(
  "softcap",
  ({ a, b, value, math }) => [math.tanh(f32x4.div(a, value), b), a.set(f32x4.mul(b, value))],
  unary,
);

/** Bytes of a tile of copies. */
const TILE_BYTES = 4 * TILE_VALUES;

const selectBlock = new ArgumentBlock({
  x: "ptr",
  y: "ptr",
  outer: "i32",
  stride: "ptr",
  blockBytes: "ptr",
  /** Blocks of a tile. */
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
