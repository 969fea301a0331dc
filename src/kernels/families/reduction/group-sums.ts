/** y [rows, groups] = sums of `groupSize` consecutive values of rows of x [rows, dim]; the last group may be shorter. */
import { casesOf } from "../../cases.ts";
import { input, output, whole } from "../../declaration.ts";
import { family } from "../../family.ts";
import { when, whileDo } from "../../wasm/assembler/expression.ts";
import { f32, f32x4, i32, int } from "../../wasm/assembler/instructions.ts";
import { forLanes, sumOfLanes } from "../../wasm/generate/lanes.ts";
import { advance, elementAt } from "../../wasm/generate/loops.ts";

export const groupSums = family(
  "group_sums",
  {
    x: input("f32", "rows", "dim"),
    y: output("f32", "rows", "groups"),
    groupSize: whole,
  },
  {
    by: "rows",
    reference({ rows, dim, groups, groupSize, x, y }) {
      for (let row = 0; row < rows; row++)
        for (let group = 0; group < groups; group++) {
          let sum = 0;
          for (let c = group * groupSize; c < Math.min(dim, (group + 1) * groupSize); c++) sum += x[row * dim + c]!;
          y[row * groups + group] = sum;
        }
    },
    wasm: {
      body({ x, y, dim, groupSize, groups }, { scope, constants, tile }) {
        const [rest, count] = [scope.local("i32", "rest"), scope.local("i32", "group_count")];
        const total = scope.local("v128", "total");
        return [
          x.set(elementAt(x, i32.mul(tile, dim), 4)),
          y.set(elementAt(y, i32.mul(tile, groups), 4)),
          rest.set(dim),
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
      },
    },
  },
);

export const cases = casesOf(groupSums, {
  small: [
    { rows: 7, dim: 64, groups: 8, groupSize: 8 },
    { rows: 3, dim: 33, groups: 5, groupSize: 7 },
  ],
  model: (tokens, { hidden }) => ({ rows: tokens, dim: hidden, groups: Math.ceil(hidden / 32), groupSize: 32 }),
});
