/** A sum and its norm become one call that adds in place, where nothing needs the first addend any more. */
import { expect, it } from "vitest";
import { after, graphOf, rows, vector } from "../../../test/support/graph.ts";
import { addRmsNormOperator } from "../../ops/norm.ts";
import { fuseAddNorm } from "./add-norm.ts";

it("adds in place; later readers of the sum read that", () => {
  const graph = graphOf([rows("a", 4), rows("b", 4)], (ops, [a, b], constant) => {
    const weight = constant(vector("w", [1, 2, 3, 4]));
    const x = ops.scale(a!, 2);
    const sum = ops.add(x, b!, 0.5);
    const normed = ops.call("lowbit::rms_norm.out", sum, weight, 1e-5);
    return [ops.add(sum, normed)];
  });
  expect(after(fuseAddNorm, graph).replace(addRmsNormOperator.name, "sum and norm")).toMatchInlineSnapshot(`
    "forward(a: f32[1, <=4, 4], b: f32[1, <=4, 4])
      %0: f32[1, <=4, 4] = aten::mul.Scalar_out(a, 2)
      %1: f32[1, <=4, 4] = sum and norm(%0, b, w:f32, 0.00001, 0.5)
      %2: f32[1, <=4, 4] = aten::add.out(%0, %1, 1)
      return %2"
  `);
});

it("leaves sums whose first addend is an input, or is read later", () => {
  const graph = graphOf([rows("a", 4), rows("b", 4)], (ops, [a, b], constant) => {
    const norm = (x: typeof a) => ops.call("lowbit::rms_norm.out", x!, constant(vector("w", [1, 2, 3, 4])), 1e-5);
    const x = ops.scale(a!, 2);
    return [norm(ops.add(a!, b!)), norm(ops.add(x, b!)), ops.add(x, x)];
  });
  expect(after(fuseAddNorm, graph)).not.toContain(addRmsNormOperator.name);
});
