/** Softmax of rows of `dim` values: y = exp(x) / sum(exp(x)). */
import { casesOf } from "../../cases.ts";
import { input, output } from "../../declaration.ts";
import { family } from "../../family.ts";
import type { Body } from "../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i32, v128 } from "../../wasm/assembler/instructions.ts";
import { forLanes, largestLane, sumOfLanes } from "../../wasm/generate/lanes.ts";
import { elementAt } from "../../wasm/generate/loops.ts";
import { VectorMath } from "../../wasm/generate/vector-math.ts";

export const softmax = family(
  "softmax",
  {
    x: input("f32", "rows", "dim"),
    y: output("f32", "rows", "dim"),
  },
  {
    by: "rows",
    reference({ dim, x, y }) {
      for (let start = 0; start < x.length; start += dim) {
        let max = Number.NEGATIVE_INFINITY;
        for (let c = start; c < start + dim; c++) if (x[c]! > max) max = x[c]!;
        let total = 0;
        for (let c = start; c < start + dim; c++) total += Math.exp(x[c]! - max);
        for (let c = start; c < start + dim; c++) y[c] = Math.exp(x[c]! - max) / total;
      }
    },
    wasm: {
      body({ x, y, dim }, { scope, constants, tile }) {
        const math = new VectorMath(scope, constants);
        const [from, to] = [scope.local("ptr", "from"), scope.local("ptr", "to")];
        const [largest, value] = [scope.local("v128", "largest"), scope.local("v128", "value")];
        const total = scope.local("v128", "total");
        const each = { scope, constants, count: dim };
        const start: Body = [
          from.set(elementAt(x, i32.mul(tile, dim), 4)),
          to.set(elementAt(y, i32.mul(tile, dim), 4)),
        ];
        return [
          start,
          largest.set(v128.load32_splat(from)),
          forLanes({ ...each, pointers: [[from]] }, (lanes) => [
            largest.set(f32x4.pmax(largest, lanes.count === 4 ? v128.load(from) : v128.load32_splat(from))),
          ]),
          largest.set(f32x4.splat(largestLane(largest))),
          start,
          forLanes({ ...each, pointers: [[from], [to]] }, (lanes) => [
            math.exp(f32x4.sub(lanes.load(from), largest), value),
            lanes.store(to, value),
            // Loaded back, so that unused lanes of single values are 0 in the sum.
            total.set(f32x4.add(total, lanes.count === 4 ? value : lanes.load(to))),
          ]),
          total.set(f32x4.splat(f32.div(float(1), sumOfLanes(total)))),
          start,
          forLanes({ ...each, pointers: [[to]] }, (lanes) => [lanes.store(to, f32x4.mul(lanes.load(to), total))]),
        ];
      },
    },
  },
);

export const cases = casesOf(softmax, {
  small: [
    { rows: 7, dim: 64 },
    { rows: 3, dim: 37 },
  ],
  model: (tokens, { vocabulary }) => ({ rows: tokens, dim: vocabulary }),
});
