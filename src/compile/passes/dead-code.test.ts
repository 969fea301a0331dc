/** Calls that nothing reads go, with what only they used; what writes state stays. */
import { expect, it } from "vitest";
import { after, graphOf, position, rows } from "../../../test/support/graph.ts";
import { removeDeadCode } from "./dead-code.ts";

it("removes what nothing reads", () => {
  const graph = graphOf([rows("x", 8), position], (ops, [x, pos]) => {
    const cache = { dtype: "f32", shape: [1, 16, 1, 8] } as const;
    const [keyCache, valueCache] = [ops.state("keys", cache), ops.state("values", cache)];
    const unread = ops.add(x!, x!);
    ops.add(unread, unread);
    const used = ops.add(x!, x!);
    ops.attention(used, used, used, { cache: { keyCache, valueCache, position: pos! }, scale: 1 });
    return [ops.add(x!, x!)];
  });
  expect(graph.nodes).toHaveLength(5);
  expect(after((g, { registry }) => removeDeadCode(g, registry), graph)).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 8], pos: i64[1])
      %0: f32[1, <=4, 8] = aten::add.out(x, x, 1)
      %1: f32[1, <=4, 8] = lowbit::attention.out(%0, %0, %0, keys, values, pos, 1, 0, 0)
      %2: f32[1, <=4, 8] = aten::add.out(x, x, 1)
      return %2"
  `);
});
