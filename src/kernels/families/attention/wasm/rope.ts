/** Rotary embedding (RoPE): its angles, computed in double precision, and the rotation. A tile is a token. */

import type { Kernel } from "../../../contract.ts";
import { type Body, type Expr, type Local, select, when } from "../../../wasm/assembler/expression.ts";
import { double, f32, f32x4, f64, i32, i64, int } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { forLanes } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../../../wasm/kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import type { RopeAnglesArgs, RopeArgs } from "../fields.ts";

const anglesBlock = new ArgumentBlock({
  position: "ptr",
  /** 1 if each token has its own position, 0 if positions follow the first token's. */
  each: "i32",
  frequencies: "ptr",
  angles: "ptr",
  half: "i32",
  scale: "f64",
});

/** pi / 2 = high + low. QUARTER_HIGH times an integer below 2^20 is exact. */
const QUARTER_HIGH = 1.5707963267341256;
const QUARTER_LOW = Math.PI / 2 - QUARTER_HIGH;
/** Coefficients of Taylor series up to pi / 4, with errors below 2e-9. */
const SINE = [1, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880];
const COSINE = [1, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800];

const anglesCode: KernelCode = {
  key: "rope_angles",
  build: () => [
    kernelFunction(
      "rope_angles",
      anglesBlock,
      ({ position, each, frequencies, angles, half, scale }, { tile }, scope) => {
        const at = scope.local("f64", "position_of_token");
        const cosines = scope.local("ptr", "cosines");
        const sines = scope.local("ptr", "sines");
        const angle = scope.local("f64", "angle");
        const turned = turn(scope, angle);
        const rounded = f32.demote_f64(f64.mul(at, f64.promote_f32(f32.load(frequencies))));
        return [
          position.set(elementAt(position, i32.mul(tile, each), 8)),
          at.set(f64.convert_i64_s(i64.load(position))),
          at.set(f64.add(at, f64.convert_i32_s(i32.mul(tile, i32.sub(int(1), each))))),
          cosines.set(elementAt(angles, i32.mul(tile, half), 8)),
          sines.set(elementAt(cosines, half, 4)),
          forRange(scope.local("i32", "i"), int(0), half, [
            angle.set(f64.promote_f32(rounded)),
            turned.body,
            f32.store(cosines, f32.demote_f64(f64.mul(turned.cosine, scale))),
            f32.store(sines, f32.demote_f64(f64.mul(turned.sine, scale))),
            [frequencies, cosines, sines].map((pointer) => advance(pointer, 4)),
          ]),
        ];
      },
    ),
  ],
};

interface Turned {
  readonly body: Body;
  readonly cosine: Local<"f64">;
  readonly sine: Local<"f64">;
}

/** Computes cos and sin of an angle from its distance to the nearest quarter turn. */
function turn(scope: Scope, angle: Local<"f64">): Turned {
  const quarters = scope.local("f64", "quarters");
  const r = scope.local("f64", "r");
  const square = scope.local("f64", "square");
  const even = scope.local("f64", "even");
  const odd = scope.local("f64", "odd");
  const cosine = scope.local("f64", "cosine");
  const sine = scope.local("f64", "sine");
  const quadrant = scope.local("i32", "quadrant");
  const series = (terms: readonly number[]) =>
    terms.reduceRight<Expr<"f64">>((sum, term) => f64.add(f64.mul(sum, square), double(term)), double(0));
  const negateIf = (value: Local<"f64">, condition: Expr<"i32">) => when(condition, [value.set(f64.neg(value))]);
  const less = (part: number) => r.set(f64.sub(r, f64.mul(quarters, double(part))));
  const isOdd = () => i32.and(quadrant, int(1));
  return {
    body: [
      quarters.set(f64.nearest(f64.mul(angle, double(2 / Math.PI)))),
      // From 2^31 quarter turns on, neighbouring float32 angles are more than a turn apart.
      when(i32.eqz(f64.lt(f64.abs(quarters), double(2 ** 31))), [quarters.set(double(0))]),
      r.set(angle),
      less(QUARTER_HIGH),
      less(QUARTER_LOW),
      square.set(f64.mul(r, r)),
      even.set(series(COSINE)),
      odd.set(f64.mul(r, series(SINE))),
      quadrant.set(i32.trunc_f64_s(quarters)),
      cosine.set(select(isOdd(), odd, even)),
      sine.set(select(isOdd(), even, odd)),
      negateIf(cosine, i32.and(i32.add(quadrant, int(1)), int(2))),
      negateIf(sine, i32.and(quadrant, int(2))),
    ],
    cosine,
    sine,
  };
}

export const ropeAnglesWasm: Kernel<RopeAnglesArgs> = wasmKernel<RopeAnglesArgs>({
  ...plainRow,
  name: "rope_angles_f32_1x1x1_wasm_simd",
  step({ tokens, position, inverseFrequencies, scale, angles }, place) {
    const values = {
      position: place.read(position),
      each: position.length > 1 ? 1 : 0,
      frequencies: place.read(inverseFrequencies),
      angles: place.write(angles),
      half: inverseFrequencies.length,
      scale,
    };
    return { phases: [{ code: anglesCode, tiles: tokens, args: anglesBlock.encode(values) }] };
  },
});

const ropeBlock = new ArgumentBlock({
  x: "ptr",
  angles: "ptr",
  y: "ptr",
  heads: "i32",
  headDim: "i32",
  half: "i32",
});

/** A row to rotate: `x` and `y` point to its heads and to the results and advance; `angles` are the row's. */
interface RotatedHeads extends Readonly<Record<"x" | "y" | "angles", Local<"ptr">>> {
  readonly scope: Scope;
  readonly constants: VectorConstants;
  readonly heads: Expr<"i32">;
  readonly headDim: Local<"i32">;
  readonly half: Local<"i32">;
}

export function rotateHeads({ scope, constants, x, y, angles, heads, headDim, half }: RotatedHeads): Body {
  const names = ["low", "high", "out_low", "out_high", "cosine", "sine"];
  const [low, high, outLow, outHigh, cosine, sine] = names.map((name) => scope.local("ptr", name)) as [
    Local<"ptr">,
    Local<"ptr">,
    Local<"ptr">,
    Local<"ptr">,
    Local<"ptr">,
    Local<"ptr">,
  ];
  const a = scope.local("v128", "a");
  const b = scope.local("v128", "b");
  const c = scope.local("v128", "c");
  const s = scope.local("v128", "s");
  const pointers = [low, high, outLow, outHigh, cosine, sine].map((pointer) => [pointer] as const);
  const rest = scope.local("i32", "rest");
  return [
    rest.set(i32.sub(headDim, i32.add(half, half))),
    forRange(scope.local("i32", "head"), int(0), heads, [
      low.set(x),
      high.set(elementAt(x, half, 4)),
      outLow.set(y),
      outHigh.set(elementAt(y, half, 4)),
      cosine.set(angles),
      sine.set(elementAt(angles, half, 4)),
      forLanes({ scope, constants, count: half, pointers }, (lanes) => [
        a.set(lanes.load(low)),
        b.set(lanes.load(high)),
        c.set(lanes.load(cosine)),
        s.set(lanes.load(sine)),
        lanes.store(outLow, f32x4.sub(f32x4.mul(a, c), f32x4.mul(b, s))),
        lanes.store(outHigh, f32x4.add(f32x4.mul(b, c), f32x4.mul(a, s))),
      ]),
      // Values that are not rotated follow the second half.
      forLanes({ scope, constants, count: rest, pointers: [[high], [outHigh]] }, (lanes) => [
        lanes.store(outHigh, lanes.load(high)),
      ]),
      x.set(elementAt(x, headDim, 4)),
      y.set(elementAt(y, headDim, 4)),
    ]),
  ];
}

const ropeCode: KernelCode = {
  key: "rope",
  build: () => [
    kernelFunction("rope", ropeBlock, ({ x, angles, y, heads, headDim, half }, { tile }, scope) => {
      const constants = new VectorConstants(scope);
      const values = i32.mul(i32.mul(tile, heads), headDim);
      return [
        constants.prepare,
        x.set(elementAt(x, values, 4)),
        y.set(elementAt(y, values, 4)),
        angles.set(elementAt(angles, i32.mul(tile, half), 8)),
        rotateHeads({ scope, constants, x, y, angles, heads, headDim, half }),
      ];
    }),
  ],
};

export const ropeWasm: Kernel<RopeArgs> = wasmKernel<RopeArgs>({
  ...plainRow,
  name: "rope_f32_1x1x4_wasm_simd",
  step({ tokens, heads, headDim, half, x, angles, y }, place) {
    const values = { x: place.read(x), angles: place.read(angles), y: place.write(y), heads, headDim, half };
    return { phases: [{ code: ropeCode, tiles: tokens, args: ropeBlock.encode(values) }] };
  },
});
