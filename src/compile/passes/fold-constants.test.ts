/** Calls on constants become constants of the same values. */
import { expect, it } from "vitest";
import { after, context, graphOf, rows, vector } from "../../../test/support/graph.ts";
import type { GraphValue } from "../graph.ts";
import { foldConstants } from "./fold-constants.ts";

it("folds calls on constants, and takes factors of 1 away", async () => {
  const graph = graphOf([rows("x", 3)], (ops, [x], constant) => {
    const twice = ops.scale(constant(vector("w", [1, 2, 3])), 2);
    const sum = ops.add(twice, constant(vector("w", [1, 2, 3])));
    return [ops.call("lowbit::rms_norm.out", ops.scale(x!, 1), sum, 1e-5)];
  });
  expect(after(foldConstants, graph)).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 3])
      %0: f32[1, <=4, 3] = lowbit::rms_norm.out(x, forward.1 aten::add.out:folded, 0.00001)
      return %0"
  `);
  const weight = foldConstants(graph, context).nodes[0]!.args[1] as GraphValue;
  expect(await weight.constant!.read()).toEqual(Float32Array.of(3, 6, 9));
});
