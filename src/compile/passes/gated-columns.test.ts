/** Gates read the halves of one value where they are. */
import { expect, it } from "vitest";
import { after, graphOf, rows } from "../../../test/support/graph.ts";
import { fuseGates } from "./gated-columns.ts";

it("reads halves in place", () => {
  const graph = graphOf([rows("x", 32)], (ops, [x]) => [
    ops.gated("silu", ops.columns(x!, 0, 16), ops.columns(x!, 16, 32)),
  ]);
  expect(after(fuseGates, graph)).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 32])
      %0: f32[1, <=4, 16] = aten::slice_copy.Tensor_out(x, -1, 0, 16, 1)
      %1: f32[1, <=4, 16] = aten::slice_copy.Tensor_out(x, -1, 16, 32, 1)
      %2: f32[1, <=4, 16] = lowbit::gate_halves.out(x, "silu")
      return %2"
  `);
});

it("leaves other columns", () => {
  const graph = graphOf([rows("x", 32)], (ops, [x]) => [
    ops.gated("silu", ops.columns(x!, 16, 32), ops.columns(x!, 0, 16)),
    ops.gated("geluTanh", ops.columns(x!, 0, 8), ops.columns(x!, 8, 16)),
  ]);
  expect(after(fuseGates, graph)).not.toContain("halves");
});
