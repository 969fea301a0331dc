/** Layer norm (Ba et al. 2016): y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias over rows of `dim` values. */
import { casesOf } from "../../cases.ts";
import { double, input, optional, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import { type Body, type Expr, type Local, vector } from "../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i32, v128 } from "../../wasm/assembler/instructions.ts";
import { forLanes, sumOfLanes } from "../../wasm/generate/lanes.ts";
import { elementAt } from "../../wasm/generate/loops.ts";

export const layerNorm = family(
  "layer_norm",
  {
    x: input("f32", "rows", "dim"),
    weight: input("f32", "dim"),
    bias: optional("f32", "dim"),
    y: output("f32", "rows", "dim"),
    eps: double,
  },
  {
    by: "rows",
    reference({ dim, x, weight, bias, eps, y }) {
      for (let start = 0; start < x.length; start += dim) {
        let sum = 0;
        for (let c = start; c < start + dim; c++) sum += x[c]!;
        const mean = sum / dim;
        let squares = 0;
        for (let c = start; c < start + dim; c++) squares += (x[c]! - mean) ** 2;
        const inverse = 1 / Math.sqrt(squares / dim + eps);
        for (let c = 0; c < dim; c++)
          y[start + c] = (x[start + c]! - mean) * inverse * weight[c]! + (bias ? bias[c]! : 0);
      }
    },
    wasm: {
      specialise: ({ bias }) => ({ bias: bias ? "bias" : "plain" }),
      body({ x, weight, bias, y, dim, eps }, { scope, constants, tile, special }) {
        const [value, sums, mean] = ["value", "sums", "mean"].map((name) => scope.local("v128", name)) as [
          Local<"v128">,
          Local<"v128">,
          Local<"v128">,
        ];
        const at = scope.local("ptr", "at");
        const each = { scope, constants, count: dim };
        const start: Body = [at.set(elementAt(x, i32.mul(tile, dim), 4))];
        const average = () => f32.div(sumOfLanes(sums), f32.convert_i32_s(dim));
        const scaled = () => f32x4.mul(f32x4.sub(value, mean), sums);
        const hasBias = special.bias === "bias";
        return [
          y.set(elementAt(y, i32.mul(tile, dim), 4)),
          start,
          forLanes({ ...each, pointers: [[at]] }, (lanes) => [sums.set(f32x4.add(sums, lanes.load(at)))]),
          mean.set(f32x4.splat(average())),
          sums.set(constants.floats(0)),
          start,
          forLanes({ ...each, pointers: [[at]] }, (lanes) => [
            // When a single value is loaded, the unused lanes must be 0 after the mean is subtracted, so that they add nothing
            // to the squares.
            value.set(lanes.count === 4 ? f32x4.sub(v128.load(at), mean) : onlyFirst(f32.load(at), mean)),
            sums.set(f32x4.add(sums, f32x4.mul(value, value))),
          ]),
          sums.set(f32x4.splat(f32.div(float(1), f32.sqrt(f32.add(average(), eps))))),
          start,
          forLanes({ ...each, pointers: [[at], [weight], [y], ...(hasBias ? [[bias] as const] : [])] }, (lanes) => [
            value.set(lanes.load(at)),
            value.set(f32x4.mul(scaled(), lanes.load(weight))),
            lanes.store(y, hasBias ? f32x4.add(value, lanes.load(bias)) : value),
          ]),
        ];
      },
    },
  },
);

/** value - mean in the first lane of a vector, and 0 in the others. */
function onlyFirst(value: Expr<"f32">, mean: Local<"v128">): Expr<"v128"> {
  return f32x4.replace_lane(vector(new Array(16).fill(0)), f32.sub(value, f32x4.extract_lane(mean, 0)), 0);
}

export const cases = casesOf(layerNorm, {
  small: [
    { rows: 7, dim: 64, eps: 1e-5 },
    { rows: 3, dim: 61, eps: 1e-5, bias: null },
  ],
  model: (tokens, { hidden }) => ({ rows: tokens, dim: hidden, eps: 1e-5 }),
});
