/** The operators of this package: results of eager calls, and the errors of their shape rules. */
import { describe, expect, it } from "vitest";
import { Random, randomWeights } from "../../test/support/random.ts";
import type { DType } from "../dtype.ts";
import { LowbitError, ShapeError } from "../errors.ts";
import { hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { layoutNamed, layouts, packWeights } from "../kernels/layout/packed.ts";
import { packEmbedding } from "../kernels/layout/torchao-embedding.ts";
import { dequantize } from "../quantized.ts";
import { operators } from "../registry/operators.ts";
import { type Tensor, zeroTensor } from "../tensor.ts";
import { EagerBuilder } from "./eager.ts";
import { Ops } from "./ops.ts";

const eager = new EagerBuilder(operators, scalarCpu);
const call = (name: string, ...args: Parameters<Ops<Tensor>["call"]> extends [string, ...infer A] ? A : never) =>
  new Ops(eager).call(name, ...args);

function f32(shape: readonly number[], values?: ArrayLike<number>): Tensor {
  const tensor = zeroTensor("f32", shape);
  if (values) (tensor.data as Float32Array).set(values);
  return tensor;
}

const of = (dtype: DType, ...shape: number[]): Tensor => zeroTensor(dtype, shape);
const i64 = (...values: number[]): Tensor => ({
  dtype: "i64",
  shape: [values.length],
  data: BigInt64Array.from(values, BigInt),
});

const weights = randomWeights(new Random(1), { n: 6, k: 64, bits: 4, groupSize: 32 });
const bytes = packWeights(weights, null, layoutNamed("panel16"));
const packed: Tensor = { dtype: "u8", shape: [bytes.length], data: bytes };

it("sums all values for groups longer than a row, of any size", () => {
  const host = new Ops(new EagerBuilder(operators, hostCpu()));
  for (const groupSize of [4, 2 ** 32, 2 ** 32 + 1])
    expect(host.call("lowbit::group_sums.out", f32([2, 3], [1, 2, 3, 4, 5, 6]), groupSize).data).toEqual(
      Float32Array.of(6, 15),
    );
});

describe("every packed linear and shared embedding reads both layouts", () => {
  it.each(layouts.map(({ name }) => name))("%s", (name) => {
    const random = new Random(9);
    for (let bits = 1; bits <= 8; bits++) {
      const logical = randomWeights(random, { n: 5, k: 64, bits, groupSize: 32 });
      const data = packWeights(logical, null, layoutNamed(name));
      const buffer: Tensor = { dtype: "u8", shape: [data.length], data };
      const dense = dequantize(logical);
      const one = f32([1, 2, 64]);
      one.data[3] = 1;
      one.data[64 + 10] = -2;
      const column = (c: number, factor: number) => Array.from({ length: 5 }, (_, r) => factor * dense[r * 64 + c]!);
      const expected = [...column(3, 1), ...column(10, -2)];
      for (const operator of [`torchao::_linear_8bit_act_${bits}bit_weight.out`, "lowbit::linear_weight_only.out"]) {
        const y = call(operator, one, buffer, 32, 5, 64);
        expect(y.shape).toEqual([1, 2, 5]);
        for (const [i, value] of expected.entries()) expect(y.data[i]).toBeCloseTo(value, 4);
      }
      const rows = call(`torchao::_shared_embedding_${bits}bit.out`, buffer, 32, 5, 64, i64(4, 0));
      expect(rows.shape).toEqual([2, 64]);
      expect(rows.data).toEqual(Float32Array.of(...dense.subarray(256, 320), ...dense.subarray(0, 64)));
    }
  });
});

it("TorchAO embeddings of all widths", () => {
  for (let bits = 1; bits <= 8; bits++) {
    const logical = randomWeights(new Random(bits), { n: 3, k: 96, bits, groupSize: 32, zeros: true });
    const data = packEmbedding(logical.qvals, { bits, rows: 3, dim: 96 });
    const table: Tensor = { dtype: "u8", shape: [data.length], data };
    const scales = f32([3, 3], logical.scales);
    const zeros: Tensor = { dtype: "i8", shape: [3, 3], data: logical.zeros! };
    const rows = call(`torchao::_embedding_${bits}bit.out`, table, 3, 96, scales, zeros, i64(2));
    expect(rows.data).toEqual(dequantize(logical).slice(192));
  }
});

describe("small operators", () => {
  const x = f32([2, 3], [1, 2, 3, 4, 5, 6]);
  it.each<[string, () => Tensor, number[], number[]]>([
    ["add", () => call("aten::add.out", x, x), [2, 3], [2, 4, 6, 8, 10, 12]],
    ["add with alpha", () => call("aten::add.out", x, x, -1), [2, 3], [0, 0, 0, 0, 0, 0]],
    ["select of rows", () => call("aten::select_copy.int_out", x, 0, 1), [3], [4, 5, 6]],
    ["slice of columns", () => call("aten::slice_copy.Tensor_out", x, -1, 1, 3), [2, 2], [2, 3, 5, 6]],
    ["slice of rows, cut to the end", () => call("aten::slice_copy.Tensor_out", x, 0, 1, 9), [1, 3], [4, 5, 6]],
    ["slice from the end", () => call("aten::slice_copy.Tensor_out", x, 1, -2), [2, 2], [2, 3, 5, 6]],
    ["scale", () => call("aten::mul.Scalar_out", x, -2), [2, 3], [-2, -4, -6, -8, -10, -12]],
    [
      "softcap",
      () => call("lowbit::softcap.out", x, 2),
      [2, 3],
      [1, 2, 3, 4, 5, 6].map((v) => Math.fround(2 * Math.tanh(v / 2))),
    ],
    ["select from the end", () => call("aten::select_copy.int_out", x, -1, -1), [2], [3, 6]],
    ["argmax", () => call("aten::argmax.out", x, -1), [2], [2, 2]],
    ["argmax that keeps the dimension", () => call("aten::argmax.out", x, 1, true), [2, 1], [2, 2]],
    ["embedding", () => call("aten::embedding.out", x, i64(1, 0)), [2, 3], [4, 5, 6, 1, 2, 3]],
    ["linear", () => call("aten::linear.out", x, f32([1, 3], [1, 1, 1])), [2, 1], [6, 15]],
    [
      "linear with bias",
      () => call("aten::linear.out", x, f32([1, 3], [1, 1, 1]), f32([1], [100])),
      [2, 1],
      [106, 115],
    ],
  ])("%s", (_, run, shape, values) => {
    const found = run();
    expect(found.shape).toEqual(shape);
    expect(Array.from(found.data, Number)).toEqual(values);
  });

  it("softmax", () => {
    const found = call("aten::_softmax.out", f32([1, 2], [0, Math.log(3)]), -1, false);
    expect(found.data[0]).toBeCloseTo(0.25);
    expect(found.data[1]).toBeCloseTo(0.75);
  });
});

const linear4 = "torchao::_linear_8bit_act_4bit_weight.out";
const attention = (...changes: [number, Tensor | number][]) => {
  const [keyCache, valueCache] = [of("f32", 1, 8, 2, 4), of("f32", 1, 8, 2, 4)];
  const args = [of("f32", 1, 2, 16), of("f32", 1, 2, 8), of("f32", 1, 2, 8), keyCache, valueCache, i64(0), 1, 0, 0];
  for (const [i, value] of changes) args[i] = value as Tensor;
  return call("lowbit::attention.out", ...args);
};

describe("shape errors name the operator and the argument", () => {
  it.each<[string, () => unknown, RegExp]>([
    [
      "linear: k",
      () => call(linear4, of("f32", 1, 32), packed, 32, 6, 64),
      /argument activations: expected last dimension 64 but found shape \[1,32\]/,
    ],
    [
      "linear: dtype",
      () => call(linear4, of("f16", 1, 64), packed, 32, 6, 64),
      /argument activations: expected dtype f32 but found f16/,
    ],
    ["linear: scalar", () => call(linear4, of("f32"), packed, 32, 6, 64), /expected last dimension 64/],
    [
      "linear: packed dtype",
      () => call(linear4, of("f32", 1, 64), of("f32", 99), 32, 6, 64),
      /argument packed_weights: expected dtype u8 or i8/,
    ],
    ["linear: n", () => call(linear4, of("f32", 1, 64), packed, 32, 7, 64), /expected n 7, .* but the header says n 6/],
    [
      "linear: negative n",
      () => call(linear4, of("f32", 1, 64), packed, 32, -6, 64),
      /argument n: expected a whole number of at least 1 but found -6/,
    ],
    [
      "linear: group size 0",
      () => call(linear4, of("f32", 1, 64), packed, 0, 6, 64),
      /argument group_size: .* found 0/,
    ],
    [
      "linear: other bits",
      () => call("torchao::_linear_8bit_act_3bit_weight.out", of("f32", 1, 64), packed, 32, 6, 64),
      /3bit_weight.out, argument packed_weights: expected weights of 3 bits but found 4/,
    ],
    [
      "linear: no packed weights",
      () => call(linear4, of("f32", 1, 64), of("u8", 100), 32, 6, 64),
      /expected a lowbit or TorchAO header/,
    ],
    [
      "float linear: k",
      () => call("aten::linear.out", of("f32", 1, 3), of("f32", 2, 4)),
      /argument weight: expected shape \[n, 3\] but found \[2,4\]/,
    ],
    ["float linear: rank", () => call("aten::linear.out", of("f32", 1, 3), of("f32", 3)), /argument weight/],
    [
      "float linear: bias",
      () => call("aten::linear.out", of("f32", 1, 3), of("f32", 2, 3), of("f32", 3)),
      /argument bias: expected shape \[2\] but found \[3\]/,
    ],
    [
      "float linear: a bias without values",
      () => call("aten::linear.out", of("f32", 1, 3), of("f32", 2, 3), of("f32", 2, 0)),
      /argument bias: expected shape \[2\] but found \[2,0\]/,
    ],
    [
      "embedding: rank",
      () => call("aten::embedding.out", of("f32", 3), i64(0)),
      /argument weight: expected shape \[rows, dim\]/,
    ],
    [
      "embedding: ids",
      () => call("aten::embedding.out", of("f32", 3, 2), of("f32", 1)),
      /argument indices: expected dtype i64 or i32/,
    ],
    [
      "shared embedding: bits",
      () => call("torchao::_shared_embedding_2bit.out", packed, 32, 6, 64, i64(0)),
      /expected weights of 2 bits but found 4/,
    ],
    [
      "packed embedding: scales",
      () => call("torchao::_embedding_4bit.out", packed, 6, 64, of("f32", 6), of("i8", 6), i64(0)),
      /argument weight_scales: expected shape \[6, a number of groups/,
    ],
    [
      "packed embedding: groups",
      () => call("torchao::_embedding_4bit.out", packed, 6, 64, of("f32", 6, 3), of("i8", 6, 3), i64(0)),
      /argument weight_scales/,
    ],
    [
      "packed embedding: no groups",
      () => call("torchao::_embedding_4bit.out", packed, 6, 64, of("f32", 6, 0), of("i8", 6, 0), i64(0)),
      /argument weight_scales/,
    ],
    [
      "packed embedding: zeros",
      () => call("torchao::_embedding_4bit.out", packed, 6, 64, of("f32", 6, 2), of("i8", 6, 1), i64(0)),
      /argument weight_zeros: expected the shape of weight_scales \[6,2\]/,
    ],
    [
      "rms_norm: weight",
      () => call("lowbit::rms_norm.out", of("f32", 2, 6), of("f32", 4), 1e-5),
      /argument weight: expected shape \[6\]/,
    ],
    [
      "rms_norm: empty weight",
      () => call("lowbit::rms_norm.out", of("f32", 2, 6), of("f32", 0), 1e-5),
      /argument weight/,
    ],
    ["rms_norm: scalar", () => call("lowbit::rms_norm.out", of("f32"), of("f32", 1), 1e-5), /argument weight/],
    [
      "rope_angles: position",
      () => call("lowbit::rope_angles.out", of("i64", 1, 2), of("i64", 0), of("f32", 4), 1),
      /argument input_pos: expected shape \[1\]/,
    ],
    [
      "rope_angles: frequencies",
      () => call("lowbit::rope_angles.out", of("i64", 1, 2), i64(0), of("f32", 2, 2), 1),
      /argument inverse_frequencies: expected a vector/,
    ],
    [
      "rope: head_dim 0",
      () => call("lowbit::rope.out", of("f32", 1, 2, 8), of("f32", 2, 2, 2), 0),
      /argument head_dim/,
    ],
    [
      "rope: heads",
      () => call("lowbit::rope.out", of("f32", 1, 2, 8), of("f32", 2, 2, 2), 3),
      /argument x: expected shape \[1, T, a multiple of 3\]/,
    ],
    [
      "rope: angles of other tokens",
      () => call("lowbit::rope.out", of("f32", 1, 2, 8), of("f32", 3, 2, 2), 4),
      /argument angles: expected shape \[2, 2, at most 2\]/,
    ],
    [
      "rope: too many angles",
      () => call("lowbit::rope.out", of("f32", 1, 2, 8), of("f32", 2, 2, 3), 4),
      /argument angles/,
    ],
    ["rope: rank of angles", () => call("lowbit::rope.out", of("f32", 1, 2, 8), of("f32", 2), 4), /argument angles/],
    [
      "attention: rank of cache",
      () => attention([3, of("f32", 8, 2, 4)]),
      /argument key_cache: expected shape \[1, capacity, heads, D\]/,
    ],
    [
      "attention: dtype of value cache",
      () => attention([4, of("f16", 1, 8, 2, 4)]),
      /argument value_cache: expected dtype f32 but found f16/,
    ],
    ["attention: value cache", () => attention([4, of("f32", 1, 9, 2, 4)]), /argument value_cache/],
    [
      "attention: k",
      () => attention([1, of("f32", 1, 2, 4)]),
      /argument k: expected shape \[1, 2, 8\] but found \[1,2,4\]/,
    ],
    ["attention: tokens of v", () => attention([2, of("f32", 1, 1, 8)]), /argument v: expected shape \[1, 2, 8\]/],
    ["attention: q", () => attention([0, of("f32", 1, 2, 12)]), /argument q: .*a multiple of 8/],
    [
      "attention: more tokens than the cache holds",
      () => attention([0, of("f32", 1, 9, 16)]),
      /argument q: expected shape \[1, at most 8,/,
    ],
    ["attention: window", () => attention([7, -1]), /argument window/],
    [
      "gate",
      () => call("lowbit::gate.out", of("f32", 2), of("f32", 3), "silu"),
      /argument up: expected the shape of gate \[2\] but found \[3\]/,
    ],
    ["add", () => call("aten::add.out", of("f32", 2), of("f32", 1, 3)), /argument other: expected a shape that broad/],
    ["slice: step", () => call("aten::slice_copy.Tensor_out", of("f32", 2), 0, 0, 2, 0), /argument step: expected a/],
    ["softcap", () => call("lowbit::softcap.out", of("f32", 2), 0), /argument cap: expected a positive number/],
    [
      "select: dim",
      () => call("aten::select_copy.int_out", of("f32", 2), 1, 0),
      /argument dim: expected -1..0 but found 1/,
    ],
    [
      "select: index",
      () => call("aten::select_copy.int_out", of("f32", 2), 0, -3),
      /argument index: expected -2..1 but found -3/,
    ],
    [
      "select: half an index",
      () => call("aten::select_copy.int_out", of("f32", 2), 0, 0.5),
      /argument index: expected a whole number/,
    ],
    [
      "softmax: dim",
      () => call("aten::_softmax.out", of("f32", 2, 2), 2, false),
      /argument dim: expected -2..1 but found 2/,
    ],
    ["argmax of nothing", () => call("aten::argmax.out", of("f32", 2, 0), 1), /expected elements to choose from/],
    ["a missing argument", () => call("aten::add.out", of("f32", 2)), /aten::add.out: argument other is missing/],
  ])("%s", (_, run, message) => {
    expect(run).toThrow(message);
    expect(run).toThrow(ShapeError);
  });
});

describe("values out of range are errors when the call runs", () => {
  it.each<[string, () => unknown, RegExp]>([
    [
      "an id that is too large",
      () => call("aten::embedding.out", of("f32", 3, 2), i64(3)),
      /aten::embedding.out, argument indices: expected 0\.\.2 but found 3/,
    ],
    ["a negative id", () => call("aten::embedding.out", of("f32", 3, 2), i64(-1)), /found -1/],
    [
      "an id beyond 2^53",
      () =>
        call("torchao::_shared_embedding_4bit.out", packed, 32, 6, 64, {
          ...i64(0),
          data: BigInt64Array.of(2n ** 62n),
        }),
      /argument indices: expected 0\.\.5 but found 4611686018427387904/,
    ],
    ["a position beyond the cache", () => attention([5, i64(7)]), /argument input_pos: expected 0\.\.6 but found 7/],
    ["a negative position", () => attention([5, i64(-1)]), /argument input_pos: expected 0\.\.6 but found -1/],
  ])("%s", (_, run, message) => {
    expect(run).toThrow(message);
    expect(run).toThrow(LowbitError);
  });
});

describe("EagerBuilder", () => {
  it("keeps state by name and constants by key", async () => {
    const builder = new EagerBuilder(operators, scalarCpu);
    const state = builder.state("cache", { dtype: "f32", shape: [2] });
    state.data[0] = 5;
    expect(builder.state("cache", { dtype: "f32", shape: [2] })).toBe(state);
    let reads = 0;
    const constant = { key: "c", dtype: "f32", shape: [1], read: async () => Float32Array.of(++reads) } as const;
    expect(() => builder.constant(constant)).toThrow(/constant c was not loaded/);
    await builder.load(constant);
    await builder.load(constant);
    expect([builder.constant(constant).data[0], reads]).toEqual([1, 1]);
  });
});
