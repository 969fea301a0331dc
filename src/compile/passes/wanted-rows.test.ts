/** Makers of values of which only the last row is read work on that row. */
import { expect, it } from "vitest";
import { after, context, graphOf, packed, rows, vector } from "../../../test/support/graph.ts";
import { add } from "../../kernels/families/index.ts";
import { defineOperator } from "../../ops/operator.ts";
import { OperatorRegistry } from "../../ops/operator-registry.ts";
import { operators } from "../../registry/operators.ts";
import { formatGraph } from "../graph.ts";
import { removeDeadCode } from "./dead-code.ts";
import { narrowToWantedRows } from "./wanted-rows.ts";

it("narrows a block down to what does not work row by row", () => {
  const graph = graphOf([rows("x", 32), rows("mixed", 32)], (ops, [x, mixed], constant) => {
    const sum = ops.add(x!, mixed!);
    const normed = ops.call("lowbit::rms_norm.out", sum, constant(vector("w", Array(32).fill(1))), 1e-5);
    const name = "torchao::_linear_8bit_act_4bit_weight.out";
    const out = ops.call(name, normed, constant(packed("up", 32, 32)), 32, 32, 32);
    return [ops.lastRow(ops.add(sum, out))];
  });
  expect(after(narrowToWantedRows, graph)).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 32], mixed: f32[1, <=4, 32])
      %0: f32[1, 32] = aten::select_copy.int_out(x, 1, -1)
      %1: f32[1, 32] = aten::select_copy.int_out(mixed, 1, -1)
      %2: f32[1, 32] = aten::add.out(%0, %1, 1)
      %3: f32[1, 32] = lowbit::rms_norm.out(%2, w:f32, 0.00001)
      %4: f32[1, 32] = torchao::_linear_8bit_act_4bit_weight.out(%3, up:panel16, 32, 32, 32)
      %5: f32[1, 32] = aten::add.out(%2, %4, 1)
      return %5"
  `);
});

it("leaves values of which others read all rows", () => {
  const graph = graphOf([rows("x", 4)], (ops, [x]) => {
    const sum = ops.add(x!, x!);
    return [ops.lastRow(sum), ops.columns(sum, 0, 2)];
  });
  expect(after(narrowToWantedRows, graph)).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 4])
      %0: f32[1, <=4, 4] = aten::add.out(x, x, 1)
      %1: f32[1, 4] = aten::select_copy.int_out(%0, 1, -1)
      %2: f32[1, <=4, 2] = aten::slice_copy.Tensor_out(%0, -1, 0, 2, 1)
      return %1, %2"
  `);
});

const other = (name: string, rowwise: readonly string[]) =>
  defineOperator({
    schema: `my::${name}.out(Tensor x, Tensor all, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: add,
    rowwise,
    shape: (args) => args.tensor("x", "f32"),
    prepare: () => ({ count: 0, a: new Float32Array(), b: new Float32Array(), alpha: 1, y: new Float32Array() }),
  });

it("leaves a call of which one of those arguments has no rows", () => {
  const registry = new OperatorRegistry([...operators, other("by_row", ["x", "all"])]);
  const graph = graphOf(
    [rows("x", 4)],
    (ops, [x], constant) => [ops.lastRow(ops.call("my::by_row.out", x!, constant(vector("w", [1, 2, 3, 4]))))],
    registry,
  );
  expect(formatGraph(narrowToWantedRows(graph, { ...context, registry }))).toBe(formatGraph(graph));
});

it("narrows operators of others that say what they work on row by row", () => {
  const registry = new OperatorRegistry([...operators, other("by_row", ["x"]), other("mixing", [])]);
  const graph = graphOf(
    [rows("x", 4)],
    (ops, [x]) => [ops.lastRow(ops.call("my::by_row.out", ops.call("my::mixing.out", x!, x!), x!))],
    registry,
  );
  expect(formatGraph(narrowToWantedRows(graph, { ...context, registry }))).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 4])
      %0: f32[1, <=4, 4] = my::mixing.out(x, x)
      %1: f32[1, 4] = aten::select_copy.int_out(%0, 1, -1)
      %2: f32[1, 4] = my::by_row.out(%1, x)
      return %2"
  `);
});

it("narrows columns in another order, but not rows in another", () => {
  const order = { key: "order", dtype: "i32" as const, shape: [4], read: async () => Int32Array.of(3, 1, 0, 2) };
  const along = (dim: number) =>
    graphOf([rows("x", 4)], (ops, [x], constant) => [
      ops.lastRow(ops.call("aten::index_select.out", x!, dim, constant(order))),
    ]);
  expect(after(narrowToWantedRows, along(-1))).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 4])
      %0: f32[1, 4] = aten::select_copy.int_out(x, 1, -1)
      %1: f32[1, 4] = aten::index_select.out(%0, -1, order)
      return %1"
  `);
  expect(after(narrowToWantedRows, along(1))).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 4])
      %0: f32[1, 4, 4] = aten::index_select.out(x, 1, order)
      %1: f32[1, 4] = aten::select_copy.int_out(%0, 1, -1)
      return %1"
  `);
});

/** A mixture of 4 experts behind an addition, whose rows `wanted` are read. */
function mixture(alsoRead: "nothing" | "the routing's rows" | "what experts make") {
  const chosen = { name: "chosen", spec: { dtype: "i64", shape: [2] }, smallest: [1] } as const;
  return graphOf([rows("x", 32), chosen], (ops, [x, wanted], constant) => {
    const sum = ops.add(x!, x!);
    const logits = ops.call("aten::linear.out", sum, constant({ ...vector("router", [0]), shape: [4, 32] }), null);
    const routing = ops.route(logits, { topK: 2 });
    const placed = ops.expertRows(sum, routing);
    const weights = (key: string, n: number, k: number) => constant({ ...vector(key, [0]), shape: [4, n, k] });
    const layer = (name: string, input: typeof sum, n: number, k: number) =>
      ops.call("lowbit::expert_linear.out", input, weights(name, n, k), null, routing.routing, 4, 2);
    const both = layer("both", placed, 128, 32);
    const made = layer("down", ops.gated("silu", ops.columns(both, 0, 64), ops.columns(both, 64, 128)), 32, 64);
    const others = {
      nothing: () => [],
      "the routing's rows": () => [ops.expertRows(x!, routing)],
      "what experts make": () => [made],
    };
    return [ops.selectRows(ops.add(sum, ops.combineExperts(made, routing)), wanted!), ...others[alsoRead]()];
  });
}

it("narrows a mixture of experts as a whole, down to what its router and its experts read", () => {
  expect(
    after((graph, on) => removeDeadCode(narrowToWantedRows(graph, on), on.registry), mixture("nothing")),
  ).toMatchInlineSnapshot(`
      "forward(x: f32[1, <=4, 32], chosen: i64[<=2])
        %0: f32[1, <=2, 32] = lowbit::select_rows.out(x, chosen)
        %1: f32[1, <=2, 32] = aten::add.out(%0, %0, 1)
        %2: f32[1, <=2, 4] = aten::linear.out(%1, router:f32, null)
        %3: i32[<=17] = lowbit::route.out(%2, null, null, 2, "softmax", true, 0, 1)
        %4: f32[1, <=4, 32] = lowbit::expert_rows.out(%1, %3, 4, 2)
        %5: f32[1, <=4, 128] = lowbit::expert_linear.out(%4, both:f32, null, %3, 4, 2)
        %6: f32[1, <=4, 64] = aten::slice_copy.Tensor_out(%5, -1, 0, 64, 1)
        %7: f32[1, <=4, 64] = aten::slice_copy.Tensor_out(%5, -1, 64, 128, 1)
        %8: f32[1, <=4, 64] = lowbit::gate.out(%6, %7, "silu")
        %9: f32[1, <=4, 32] = lowbit::expert_linear.out(%8, down:f32, null, %3, 4, 2)
        %10: f32[1, <=2, 32] = lowbit::combine_experts.out(%9, %3, 4, 2)
        %11: f32[1, <=2, 32] = aten::add.out(%1, %10, 1)
        return %11"
    `);
});

it("leaves a mixture of which others read what is between", () => {
  for (const read of ["the routing's rows", "what experts make"] as const) {
    const text = after(narrowToWantedRows, mixture(read));
    expect(text.match(/select_rows/g), read).toHaveLength(2);
    expect(text.indexOf("select_rows"), read).toBeGreaterThan(text.indexOf("combine_experts"));
  }
});
