/**
 * Lowers our fused operators to operators that ExecuTorch has: portable aten, quantized_decomposed, and the custom
 * operators for language models (extension/llm/custom_ops). Sizes that depend on the number of tokens stay dynamic.
 */

import type { GraphBuilder } from "../../compile/capture.ts";
import type { CompileTarget } from "../../compile/compile.ts";
import { argumentValues, type Graph, type GraphValue } from "../../compile/graph.ts";
import { type RewriteContext, type Rewriting, rewrite } from "../../compile/passes/rewrite.ts";
import { UnsupportedError } from "../../errors.ts";
import { readEmbeddingRow } from "../../kernels/layout/torchao-embedding.ts";
import type { LazyConstant } from "../../ops/builder.ts";
import type { Argument } from "../../ops/call-arguments.ts";
import { toFloat32 } from "../../tensor.ts";

/** Namespace of our own operators. ExecuTorch has the others, or gets them from an operator library. */
const OWN = "lowbit::";

/** x viewed as [1, T, heads, D]; T is given as -1. */
const heads = (builder: GraphBuilder, x: GraphValue, headDim: number) =>
  builder.call("aten::view_copy.out", x, [1, -1, x.spec.shape.at(-1)! / headDim, headDim]);

/** x / sqrt(mean(x^2) + eps) * weight; a weight shorter than the rows applies to each part of its size. */
const rmsNorm: Rewriting = (builder, args) => {
  const x = args.tensor("x");
  const weight = args.tensor("weight");
  const dim = weight.spec.shape[0]!;
  const whole = x.spec.shape.at(-1) === dim;
  const rows = whole ? x : heads(builder, x, dim);
  const squares = builder.call("aten::mul.out", rows, rows);
  const mean = builder.call("aten::mean.out", squares, [-1], true, null);
  const shifted = builder.call("aten::add.Scalar_out", mean, args.number("eps"), 1);
  const normed = builder.call("aten::mul.out", rows, builder.call("aten::rsqrt.out", shifted));
  const scaled = builder.call("aten::mul.out", normed, weight);
  return whole ? scaled : builder.call("aten::view_copy.out", scaled, [...leading(x), x.spec.shape.at(-1)!]);
};

/** The sizes of x except the last; dynamic ones are given as -1. */
function leading({ spec, smallest }: GraphValue): number[] {
  return spec.shape.slice(0, -1).map((size, dim) => (size === smallest[dim] ? size : -1));
}

/** RoPE's cosines and sines [T, 2, half] at positions input_pos .. input_pos + T - 1, as rows of a table of `length`. */
const ropeAngles = (length: number): Rewriting => {
  return (builder, args) => {
    const frequencies = args.tensor("inverse_frequencies");
    const ones = builder.call("aten::full_like.out", args.tensor("tokens"), 1, null);
    const counts = builder.call("aten::cumsum.out", ones, 1, null);
    const after = builder.call("aten::add.out", counts, args.tensor("input_pos"), 1);
    const positions = builder.call("aten::add.Scalar_out", after, -1, 1);
    const table = builder.constant(angleTable(frequencies.constant!, length, args.number("scale")));
    const rows = builder.call("aten::embedding.out", table, positions);
    return builder.call("aten::view_copy.out", rows, [-1, 2, frequencies.spec.shape[0]!]);
  };
};

/** scale * cos, then scale * sin, of each frequency at positions 0 .. length - 1: f32 [length, 2 * half]. */
function angleTable(frequencies: LazyConstant, length: number, scale: number): LazyConstant {
  const half = frequencies.shape[0]!;
  return {
    key: `${frequencies.key}:${length} angles by ${scale}`,
    dtype: "f32",
    shape: [length, 2 * half],
    async read() {
      const inverse = (await frequencies.read()) as Float32Array;
      return Float32Array.from({ length: 2 * half * length }, (_, at) => {
        const angle = Math.fround(Math.floor(at / (2 * half)) * inverse[at % half]!);
        return scale * (at % (2 * half) < half ? Math.cos(angle) : Math.sin(angle));
      });
    },
  };
}

/** Positions of the largest KV cache of a graph. */
function contextLength({ nodes }: Graph): number {
  const states = nodes.flatMap(argumentValues).filter(({ kind }) => kind === "state");
  return Math.max(0, ...states.map(({ spec }) => spec.shape[1] ?? 0));
}

/** Applies RoPE to the halves of each head; elements beyond the angles stay. */
const rope: Rewriting = (builder, args) => {
  const x = args.tensor("x");
  const angles = args.tensor("angles");
  const headDim = args.number("head_dim");
  const half = angles.spec.shape[2]!;
  const rows = heads(builder, x, headDim);
  const [cos, sin] = [0, 1].map((index) =>
    builder.call("aten::view_copy.out", builder.call("aten::select_copy.int_out", angles, 1, index), [1, -1, 1, half]),
  ) as [GraphValue, GraphValue];
  const columns = (first: number, last: number) => builder.call("aten::slice_copy.Tensor_out", rows, 3, first, last, 1);
  const product = (a: GraphValue, b: GraphValue) => builder.call("aten::mul.out", a, b);
  const [a, b] = [columns(0, half), columns(half, 2 * half)];
  const parts = [
    builder.call("aten::sub.out", product(a, cos), product(b, sin), 1),
    builder.call("aten::add.out", product(b, cos), product(a, sin), 1),
    ...(2 * half < headDim ? [columns(2 * half, headDim)] : []),
  ];
  const joined = builder.call("aten::cat.out", parts, 3);
  return builder.call("aten::view_copy.out", joined, [1, -1, x.spec.shape.at(-1)!]);
};

/** Updates both caches, then calls ExecuTorch's attention, which is causal from input_pos on. */
const attention: Rewriting = (builder, args) => {
  const keyCache = args.tensor("key_cache");
  const valueCache = args.tensor("value_cache");
  const [, capacity, , headDim] = keyCache.spec.shape as [number, number, number, number];
  const window = args.number("window");
  if (window > 0 && window < capacity)
    throw new UnsupportedError(
      `target executorch: its attention has no sliding window of ${window}; export for a context of at most ${window}`,
    );
  if (args.number("softcap") > 0)
    throw new UnsupportedError("target executorch: its attention has no soft cap of scores, which this model needs");
  const start = builder.call("aten::_local_scalar_dense", args.tensor("input_pos"));
  const [q, k, v] = ["q", "k", "v"].map((name) => heads(builder, args.tensor(name), headDim)) as [
    GraphValue,
    GraphValue,
    GraphValue,
  ];
  builder.call("llama::update_cache.out", k, keyCache, start);
  builder.call("llama::update_cache.out", v, valueCache, start);
  const scale = args.number("scale");
  const mixed = builder.call("llama::custom_sdpa.out", q, keyCache, valueCache, start, null, 0, true, scale);
  return builder.call("aten::view_copy.out", mixed, [1, -1, args.tensor("q").spec.shape.at(-1)!]);
};

type Activating = (builder: GraphBuilder, x: GraphValue) => GraphValue;

/** x sigmoid(bend x) */
const sigmoidTimes =
  (bend: number): Activating =>
  (builder, x) => {
    const bent = bend === 1 ? x : builder.call("aten::mul.Scalar_out", x, bend);
    return builder.call("aten::mul.out", x, builder.call("aten::sigmoid.out", bent));
  };

const activating: Readonly<Record<string, Activating>> = {
  silu: sigmoidTimes(1),
  gelu: (builder, x) => builder.call("aten::gelu.out", x, "none"),
  geluTanh: (builder, x) => builder.call("aten::gelu.out", x, "tanh"),
  quickGelu: sigmoidTimes(1.702),
  sigmoid: (builder, x) => builder.call("aten::sigmoid.out", x),
  relu: (builder, x) => builder.call("aten::relu.out", x),
  squaredRelu(builder, x) {
    const positive = builder.call("aten::relu.out", x);
    return builder.call("aten::mul.out", positive, positive);
  },
  identity: (_, x) => x,
};

/** activation(gate) * up */
const gate: Rewriting = (builder, args) => {
  const activated = activating[args.argument("activation") as string]!(builder, args.tensor("gate"));
  return builder.call("aten::mul.out", activated, args.tensor("up"));
};

/** Sums of groups whose size divides the row. */
const groupSums: Rewriting = (builder, args) => {
  const x = args.tensor("x");
  const groupSize = args.number("group_size");
  const k = x.spec.shape.at(-1)!;
  if (k % groupSize !== 0)
    throw new UnsupportedError(`target executorch: groups of ${groupSize} do not divide rows of ${k}`);
  const groups = builder.call("aten::view_copy.out", x, [...leading(x), k / groupSize, groupSize]);
  return builder.call("aten::sum.IntList_out", groups, [-1], false, null);
};

const softcap: Rewriting = (builder, args) => {
  const cap = args.number("cap");
  const shrunk = builder.call("aten::mul.Scalar_out", args.tensor("x"), 1 / cap);
  return builder.call("aten::mul.Scalar_out", builder.call("aten::tanh.out", shrunk), cap);
};

/** A float constant in f32, the only type that ExecuTorch's linear and embedding take beside f32 activations. */
function inFloat32(builder: GraphBuilder, value: Argument<GraphValue>): Argument<GraphValue> {
  const constant = (value as GraphValue | null)?.constant;
  if (!constant || constant.dtype === "f32") return value;
  const { key, dtype, shape, read } = constant;
  return builder.constant({
    key: `${key}:f32`,
    dtype: "f32",
    shape,
    read: async () => toFloat32({ dtype, shape, data: await read() }),
  });
}

/** ExecuTorch's operators quantize activations with one scale and zero point a token. */
const blockActivations: Rewriting = (builder, args) => {
  const packed = args.tensor("packed_weights");
  const sizes = ["group_size", "n", "k"].map((name) => args.number(name));
  const name = `torchao::_linear_8bit_act_${packed.constant!.packed!.spec.bits}bit_weight.out`;
  return builder.call(name, args.tensor("activations"), packed, ...sizes);
};

const linear: Rewriting = (builder, args) =>
  builder.call(
    "aten::linear.out",
    args.tensor("input"),
    inFloat32(builder, args.tensor("weight")),
    inFloat32(builder, args.argument("bias")),
  );

const embedding: Rewriting = (builder, args) =>
  builder.call("aten::embedding.out", inFloat32(builder, args.tensor("weight")), args.tensor("indices"));

/** The embedding operators that every ExecuTorch build with quantized kernels has. */
const decomposedNames = new Map([
  [2, "embedding_2bit"],
  [4, "embedding_4bit"],
  [8, "embedding_byte"],
]);

/**
 * Repacks rows from TorchAO's to quantized_decomposed's packing: for 4 bits the even column in the high half, for 2 bits
 * from the lowest bits up.
 */
function repackRows(packed: Uint8Array, shape: { bits: number; rows: number; dim: number }): Uint8Array {
  const { bits, rows, dim } = shape;
  const rowBytes = (dim * bits) / 8;
  const row = new Int8Array(dim);
  const values = new Uint8Array(dim);
  const result = new Uint8Array(rows * rowBytes);
  const offset = bits === 8 ? 0 : 1 << (bits - 1);
  for (let r = 0; r < rows; r++) {
    readEmbeddingRow(packed, shape, r, { target: row, values });
    for (let c = 0; c < dim; c++) {
      const field = (row[c]! + offset) & ((1 << bits) - 1);
      const place = bits === 4 ? 4 * (1 - (c & 1)) : (c * bits) & 7;
      result[r * rowBytes + ((c * bits) >> 3)]! |= field << place;
    }
  }
  return result;
}

const packedEmbedding = (bits: number): Rewriting => {
  return (builder, args) => {
    const [rows, dim] = [args.number("num_embeddings"), args.number("embedding_dim")];
    const packed = args.tensor("packed_weight_qvals").constant!;
    const zeros = args.tensor("weight_zeros").constant!;
    const weight = builder.constant({
      key: `${packed.key}:decomposed`,
      dtype: bits === 8 ? "i8" : "u8",
      shape: [rows, (dim * bits) / 8],
      async read() {
        const bytes = repackRows((await packed.read()) as Uint8Array, { bits, rows, dim });
        return bits === 8 ? new Int8Array(bytes.buffer) : bytes;
      },
    });
    const floatZeros = builder.constant({
      ...zeros,
      key: `${zeros.key}:f32`,
      dtype: "f32",
      read: async () => Float32Array.from((await zeros.read()) as Int8Array),
    });
    const [least, most] = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1];
    const name = `quantized_decomposed::${decomposedNames.get(bits)}.out`;
    return builder.call(name, weight, args.tensor("weight_scales"), floatZeros, least, most, args.tensor("indices"));
  };
};

const rules = new Map<string, Rewriting>([
  ["lowbit::rms_norm.out", rmsNorm],
  ["lowbit::rope.out", rope],
  ["lowbit::attention.out", attention],
  ["lowbit::gate.out", gate],
  ["lowbit::group_sums.out", groupSums],
  ["lowbit::softcap.out", softcap],
  ["lowbit::linear_8bit_block_act.out", blockActivations],
  ["aten::linear.out", linear],
  ["aten::embedding.out", embedding],
  ...[...decomposedNames.keys()].map((bits): [string, Rewriting] => [
    `torchao::_embedding_${bits}bit.out`,
    packedEmbedding(bits),
  ]),
]);

/** Layout of packed weights that TorchAO's operators in ExecuTorch read. */
export const EXECUTORCH_LAYOUT = "torchao_universal";

/**
 * Lowers a graph so that it calls no operators of our own. UnsupportedError names the first that ExecuTorch cannot express.
 */
function lower(graph: Graph, context: RewriteContext): Graph {
  const rotating = ["lowbit::rope_angles.out", ropeAngles(contextLength(graph))] as const;
  const rewritten = rewrite(graph, new Map([...rules, rotating]), context);
  for (const { operator } of rewritten.nodes)
    if (operator.startsWith(OWN))
      throw new UnsupportedError(
        `target executorch: operator ${operator} has no form there; use float weights or --qmode 8da<bits>w`,
      );
  return rewritten;
}

/** Target of programs that ExecuTorch can run, too. */
export const executorchTarget: CompileTarget = { lower };
