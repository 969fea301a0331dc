/** Rotation and attention of the columns of one value become one call. */
import { expect, it } from "vitest";
import { after, context, graphOf, position, rows, tokens, vector } from "../../../test/support/graph.ts";
import { removeDeadCode } from "./dead-code.ts";
import { fuseRopeAttention } from "./rope-attention.ts";

const graphWith = (keyAngles: "same" | "other") =>
  graphOf([rows("qkv", 64), tokens, position], (ops, [qkv, ids, pos], constant) => {
    const angles = ops.ropeAngles(ids!, pos!, constant(vector("frequencies", [1, 2])), 1);
    const [q, k, v] = [ops.columns(qkv!, 0, 32), ops.columns(qkv!, 32, 48), ops.columns(qkv!, 48, 64)];
    const cache = { layer: 0, kvHeads: 1, headDim: 16 };
    const turned = ops.rope(k, keyAngles === "same" ? angles : ops.add(angles, angles), 16);
    return [ops.attention(ops.rope(q, angles, 16), turned, v, { cache, scale: 1 })];
  });

it("fuses", () => {
  const graph = graphWith("same");
  expect(after((g) => removeDeadCode(fuseRopeAttention(g, context), context.registry), graph)).toMatchInlineSnapshot(`
    "forward(qkv: f32[1, <=4, 64], tokens: i64[1, <=4], pos: i64[1])
      %0: f32[<=4, 2, 2] = lowbit::rope_angles.out(tokens, pos, frequencies:f32, 1)
      %1: f32[1, <=4, 32] = lowbit::rope_update_and_attend.out(qkv, %0, sequences, 0, 1, 16, 1, 0, 0, null)
      return %1"
  `);
});

it("leaves keys that are turned by other angles", () => {
  expect(after(fuseRopeAttention, graphWith("other"))).not.toContain("rope_update_and_attend");
});
