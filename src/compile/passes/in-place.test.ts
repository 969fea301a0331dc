/** Results take the place of arguments that nobody reads afterwards. */
import { expect, it } from "vitest";
import { context, graphOf, rows } from "../../../test/support/graph.ts";
import { scale } from "../../kernels/families/index.ts";
import { scaleOperator } from "../../ops/elementwise.ts";
import { defineOperator } from "../../ops/operator.ts";
import { OperatorRegistry } from "../../ops/operator-registry.ts";
import type { InputSpec } from "../capture.ts";
import { formatGraph } from "../graph.ts";
import { lifetimesOf, planMemory } from "../memory-plan.ts";
import { reusePlaces } from "./in-place.ts";

const graph = graphOf([rows("x", 8)], (ops, [x]) => {
  const a = ops.scale(x!, 2);
  const b = ops.scale(a, 3);
  const c = ops.add(a, b);
  return [ops.softcap(c, 5), ops.columns(c, 0, 4)];
});
const places = reusePlaces(graph, context.registry);

it("reuses places of values at their last use, not of inputs", () => {
  expect(formatGraph(graph, places)).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 8])
      %0: f32[1, <=4, 8] = aten::mul.Scalar_out(x, 2)
      %1: f32[1, <=4, 8] = aten::mul.Scalar_out(%0, 3)
      %2: f32[1, <=4, 8] in %1 = aten::add.out(%0, %1, 1)
      %3: f32[1, <=4, 8] = lowbit::softcap.out(%2, 5)
      %4: f32[1, <=4, 4] = aten::slice_copy.Tensor_out(%2, -1, 0, 4, 1)
      return %3, %4"
  `);
});

it("needs less memory, and values that live at once stay apart", () => {
  const plan = planMemory(lifetimesOf(graph, places));
  expect(plan.totalBytes).toBeLessThan(planMemory(lifetimesOf(graph)).totalBytes);
  expect([...places.keys()].every((value) => !plan.offsets.has(value))).toBe(true);
});

it("passes one place on along a chain", () => {
  const chain = graphOf([rows("x", 8)], (ops, [x]) => [ops.softcap(ops.scale(ops.scale(x!, 2), 3), 5)]);
  const reused = reusePlaces(chain, context.registry);
  const [first, second, third] = chain.nodes.map(({ out }) => out);
  expect(reused.get(second!)).toBe(first);
  expect(reused.get(third!)).toBe(first);
});

it("takes no place of a value that has other sizes when inputs are small", () => {
  const likeSecond = defineOperator({
    schema: "test::like_second.out(Tensor x, Tensor y, *, Tensor(a!) out) -> Tensor(a!)",
    kernels: scale.slice(-1),
    inPlace: ["x"],
    shape: (args) => args.tensor("y"),
    prepare: () => ({ count: 0, x: new Float32Array(0), factor: 1, y: new Float32Array(0) }),
  });
  const registry = new OperatorRegistry([scaleOperator, likeSecond]);
  const whole = { name: "y", spec: { dtype: "f32", shape: [1, 4, 8] }, smallest: [1, 4, 8] } as const;
  const placesFor = (y: InputSpec) =>
    reusePlaces(
      graphOf([rows("x", 8), y], (ops, [x, other]) => [ops.call(likeSecond.name, ops.scale(x!, 2), other!)], registry),
      registry,
    );
  expect([placesFor(rows("y", 8)).size, placesFor(whole).size]).toEqual([1, 0]);
});
