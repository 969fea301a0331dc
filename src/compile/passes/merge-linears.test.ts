/** Linear layers over one x become one, where one call reads their results; the joined weights hold the same rows. */
import { expect, it } from "vitest";
import { after, context, graphOf, packed, position, rows, tokens, vector } from "../../../test/support/graph.ts";
import { Random, randomWeights } from "../../../test/support/random.ts";
import { unpackWeights } from "../../../test/support/unpack-weights.ts";
import { layoutNamed, openPacked } from "../../kernels/layout/packed.ts";
import type { Ops } from "../../ops/ops.ts";
import { packedWeights } from "../../ops/packed-constant.ts";
import { formatGraph, type GraphValue } from "../graph.ts";
import { mergeLinears } from "./merge-linears.ts";

const linear = <T>(ops: Ops<T>, x: T, weight: T, n: number, bits = 4) =>
  ops.call(`torchao::_linear_8bit_act_${bits}bit_weight.out`, x, weight, 32, n, 32);

it("joins gate and up", async () => {
  const graph = graphOf([rows("x", 32)], (ops, [x], constant) => [
    ops.gated(
      "silu",
      linear(ops, x!, constant(packed("gate", 48, 32)), 48),
      linear(ops, x!, constant(packed("up", 48, 32)), 48),
    ),
  ]);
  expect(after(mergeLinears, graph)).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 32])
      %0: f32[1, <=4, 96] = torchao::_linear_8bit_act_4bit_weight.out(x, {gate,up}:panel16, 32, 96, 32)
      %1: f32[1, <=4, 48] = aten::slice_copy.Tensor_out(%0, -1, 0, 48, 1)
      %2: f32[1, <=4, 48] = aten::slice_copy.Tensor_out(%0, -1, 48, 96, 1)
      %3: f32[1, <=4, 48] = lowbit::gate.out(%1, %2, "silu")
      return %3"
  `);
  const merged = mergeLinears(graph, context);
  const constant = (merged.nodes[0]!.args[1] as GraphValue).constant!;
  const open = (bytes: Uint8Array, n: number) => unpackWeights(openPacked(bytes, { n, k: 32, groupSize: 32 })).weights;
  const joined = open((await constant.read()) as Uint8Array, 96);
  const parts = [];
  for (const name of ["gate", "up"]) parts.push(open((await packed(name, 48, 32).read()) as Uint8Array, 48));
  expect([...joined.qvals]).toEqual(parts.flatMap(({ qvals }) => [...qvals]));
  expect([...joined.scales]).toEqual(parts.flatMap(({ scales }) => [...scales]));
});

it.each([
  ["equal codebooks", [0, 0], ["{gate,up}:panel16"]],
  ["different codebooks", [0, 1], ["gate:panel16", "up:panel16"]],
  ["codebooks that are not known yet", [null, null], ["gate:panel16", "up:panel16"]],
] as const)("joins matrices of equal codebooks alone: %s", async (_, firsts, keys) => {
  const coded = (name: string, first: number | null) => {
    const random = new Random(name.length);
    const weights = randomWeights(random, { n: 48, k: 32, bits: 4, groupSize: 32, levels: true });
    const levels = Int8Array.from({ length: 16 }, (__, i) => 7 * i + (first ?? 0));
    const { qvals: _qvals, scales: _scales, zeros: _zeros, levels: _levels, ...spec } = weights;
    const load = async () => ({ weights: { ...weights, levels }, bias: null });
    const known = first === null ? {} : { levels };
    return packedWeights(name, { spec, layout: layoutNamed("panel16"), hasBias: false, load, ...known });
  };
  const graph = graphOf([rows("x", 32)], (ops, [x], constant) => [
    ops.gated(
      "silu",
      linear(ops, x!, constant(coded("gate", firsts[0])), 48),
      linear(ops, x!, constant(coded("up", firsts[1])), 48),
    ),
  ]);
  const constants = mergeLinears(graph, context).nodes.flatMap(({ args }) => (args[1] as GraphValue)?.constant ?? []);
  expect(constants.map(({ key }) => key)).toEqual(keys);
  for (const constant of constants) {
    const n = constant.packed!.spec.n;
    const { levels } = unpackWeights(
      openPacked((await constant.read()) as Uint8Array, { n, k: 32, groupSize: 32 }),
    ).weights;
    expect(levels![1]! - levels![0]!).toBe(7);
  }
});

/** Attention of one block over x, with queries and keys normed or not. */
function attentionGraph(isNormed: boolean) {
  return graphOf([rows("x", 32), tokens, position], (ops, [x, ids, pos], constant) => {
    const project = (name: string, n: number) =>
      linear(ops, x!, constant(packed(`layer.${name}_proj.weight`, n, 32)), n);
    const angles = ops.ropeAngles(ids!, pos!, constant(vector("frequencies", [1, 2])), 1);
    const [q, k, v] = [project("q", 32), project("k", 16), project("v", 16)];
    const turn = (value: typeof q, name: string) => {
      const weight = constant(vector(name, Array(16).fill(1)));
      return ops.rope(isNormed ? ops.call("lowbit::rms_norm.out", value, weight, 1e-5) : value, angles, 16);
    };
    const options = { cache: { layer: 0, kvHeads: 1, headDim: 16 }, scale: 1 };
    return [ops.attention(turn(q, "q_norm"), turn(k, "k_norm"), v, options)];
  });
}

it("joins queries, keys and values that are rotated", () => {
  expect(after(mergeLinears, attentionGraph(false))).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 32], tokens: i64[1, <=4], pos: i64[1])
      %0: f32[<=4, 2, 2] = lowbit::rope_angles.out(tokens, pos, frequencies:f32, 1)
      %1: f32[1, <=4, 64] = torchao::_linear_8bit_act_4bit_weight.out(x, layer.{q,k,v}_proj.weight:panel16, 32, 64, 32)
      %2: f32[1, <=4, 32] = aten::slice_copy.Tensor_out(%1, -1, 0, 32, 1)
      %3: f32[1, <=4, 16] = aten::slice_copy.Tensor_out(%1, -1, 32, 48, 1)
      %4: f32[1, <=4, 16] = aten::slice_copy.Tensor_out(%1, -1, 48, 64, 1)
      %5: f32[1, <=4, 32] = lowbit::rope.out(%2, %0, 16)
      %6: f32[1, <=4, 16] = lowbit::rope.out(%3, %0, 16)
      %7: f32[1, <=4, 32] = lowbit::update_and_attend.out(%5, %6, %4, sequences, 0, 1, 16, 1, 0, 0, null)
      return %7"
  `);
});

it("joins queries and keys that are normed before", () => {
  expect(after(mergeLinears, attentionGraph(true))).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 32], tokens: i64[1, <=4], pos: i64[1])
      %0: f32[<=4, 2, 2] = lowbit::rope_angles.out(tokens, pos, frequencies:f32, 1)
      %1: f32[1, <=4, 64] = torchao::_linear_8bit_act_4bit_weight.out(x, layer.{q,k,v}_proj.weight:panel16, 32, 64, 32)
      %2: f32[1, <=4, 32] = aten::slice_copy.Tensor_out(%1, -1, 0, 32, 1)
      %3: f32[1, <=4, 16] = aten::slice_copy.Tensor_out(%1, -1, 32, 48, 1)
      %4: f32[1, <=4, 16] = aten::slice_copy.Tensor_out(%1, -1, 48, 64, 1)
      %5: f32[1, <=4, 32] = lowbit::rms_norm.out(%2, q_norm:f32, 0.00001)
      %6: f32[1, <=4, 32] = lowbit::rope.out(%5, %0, 16)
      %7: f32[1, <=4, 16] = lowbit::rms_norm.out(%3, k_norm:f32, 0.00001)
      %8: f32[1, <=4, 16] = lowbit::rope.out(%7, %0, 16)
      %9: f32[1, <=4, 32] = lowbit::update_and_attend.out(%6, %8, %4, sequences, 0, 1, 16, 1, 0, 0, null)
      return %9"
  `);
});

it.each([
  ["joins float layers without biases", [false, false], 1],
  ["joins float layers with biases", [true, true], 1],
  ["leaves float layers of which one has a bias", [false, true], 2],
] as const)("%s", (_, [gateBias, upBias], calls) => {
  const graph = graphOf([rows("x", 3)], (ops, [x], constant) => {
    const project = (name: string, hasBias: boolean) => {
      const weight = { ...vector(name, Array(6).fill(1)), shape: [2, 3] };
      return ops.call(
        "aten::linear.out",
        x!,
        constant(weight),
        hasBias ? constant(vector(`${name}.bias`, [1, 2])) : null,
      );
    };
    return [ops.gated("silu", project("gate", gateBias), project("up", upBias))];
  });
  expect(after(mergeLinears, graph).match(/aten::linear/g)).toHaveLength(calls);
});

it("leaves layers over different values", () => {
  const graph = graphOf([rows("x", 32), rows("other", 32)], (ops, [x, other], constant) => [
    ops.gated(
      "silu",
      linear(ops, x!, constant(packed("gate", 48, 32)), 48),
      linear(ops, other!, constant(packed("up", 48, 32)), 48),
    ),
  ]);
  expect(after(mergeLinears, graph)).toBe(formatGraph(graph));
});

it("leaves weights of different widths, and results that others read", () => {
  const graph = graphOf([rows("x", 32)], (ops, [x], constant) => {
    const four = linear(ops, x!, constant(packed("four", 48, 32)), 48);
    const two = linear(ops, x!, constant(packed("two", 48, 32, 2)), 48, 2);
    const shared = linear(ops, x!, constant(packed("shared", 48, 32)), 48);
    const more = linear(ops, x!, constant(packed("more", 48, 32)), 48);
    return [ops.gated("silu", four, two), ops.gated("silu", shared, more), shared];
  });
  const text = after(mergeLinears, graph);
  expect(text).not.toContain("slice");
  expect(text.match(/_linear_8bit/g)).toHaveLength(4);
});

it("joins queries, keys and values of attention within texts", () => {
  const offsets = { name: "offsets", spec: { dtype: "i64", shape: [5] }, smallest: [2] } as const;
  const graph = graphOf([rows("x", 32), offsets], (ops, [x, offsets], constant) => {
    const [q, k, v] = ["q", "k", "v"].map((name) => linear(ops, x!, constant(packed(name, 32, 32)), 32));
    return [ops.attendPacked(q!, k!, v!, { offsets: offsets!, headDim: 16, scale: 1 })];
  });
  expect(after(mergeLinears, graph)).toMatchInlineSnapshot(`
    "forward(x: f32[1, <=4, 32], offsets: i64[<=5])
      %0: f32[1, <=4, 96] = torchao::_linear_8bit_act_4bit_weight.out(x, {q,k,v}:panel16, 32, 96, 32)
      %1: f32[1, <=4, 32] = aten::slice_copy.Tensor_out(%0, -1, 0, 32, 1)
      %2: f32[1, <=4, 32] = aten::slice_copy.Tensor_out(%0, -1, 32, 64, 1)
      %3: f32[1, <=4, 32] = aten::slice_copy.Tensor_out(%0, -1, 64, 96, 1)
      %4: f32[1, <=4, 32] = lowbit::attend_packed.out(%1, %2, %3, offsets, 16, 1, null, null)
      return %4"
  `);
});
