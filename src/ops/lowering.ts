/** The weight formats of this package: float, low-bit in lowbit's layouts, and TorchAO's embedding format. */

import { ShapeError } from "../errors.ts";
import { layoutNamed } from "../kernels/layout/packed.ts";
import { embeddingByteLength, packEmbedding } from "../kernels/layout/torchao-embedding.ts";
import { selectLayout } from "../kernels/select.ts";
import {
  type ActivationKind,
  groupCount,
  padColumns,
  type QuantizedWeights,
  rangeOfWeights,
  type WeightSpec,
} from "../quantized.ts";
import { rangeOfTensor, type Tensor, toFloat32 } from "../tensor.ts";
import type { Builder, LazyConstant } from "./builder.ts";
import { packedWeights } from "./packed-constant.ts";
import {
  type FloatWeight,
  floatWeight,
  pickedBlocks,
  registerWeightFormat,
  type Weight,
  type WeightFormat,
} from "./weight.ts";

/** Low-bit weights packed for linear layers; embedding rows are read from the same buffer. */
export interface AffineFormat extends WeightFormat {
  readonly kind: "affine";
  readonly spec: WeightSpec;
  /** How activations are quantized at run time, or "float" for weight-only. */
  readonly activations: ActivationKind;
  /** Name of the packed layout; null lets the CPU decide. */
  readonly layout: string | null;
  /** The codebook, where it is known before the weights are read: matrices with equal ones can be packed as one. */
  readonly levels?: Int8Array;
  /** The weights whose first rows these are, and whose buffer is read; absent for whole weights. */
  readonly whole?: AffineWeight;
  /** Key that matrices with the same codebook share, where its levels are learned when the weights are read. */
  readonly codebook?: string;
}

/** Low-bit embedding rows in TorchAO's embedding format. */
export interface EmbeddingFormat extends WeightFormat {
  readonly kind: "embedding";
  readonly spec: WeightSpec;
}

export type AffineWeight = Weight<AffineFormat, QuantizedWeights>;

function floatConstant<T>(builder: Builder<T>, weight: FloatWeight): T {
  return builder.constant({
    key: `${weight.name}:${weight.format.dtype}`,
    dtype: weight.format.dtype,
    shape: weight.shape,
    read: async () => (await weight.load()).data,
    ...(weight.loadRows && { parts: () => dataOf(weight.loadRows!()) }),
  });
}

async function* dataOf(tensors: AsyncIterable<Tensor>): AsyncGenerator<Tensor["data"]> {
  for await (const { data } of tensors) yield data;
}

/** A function on each value of a vector; `key` distinguishes the resulting constant. */
export interface VectorChange {
  /** Name of the change, which distinguishes the constant from others of the same vector. */
  readonly key: string;
  /** Gives the new value for each value. */
  readonly of: (value: number) => number;
}

/** A vector as f32, whatever its stored type, with `change` applied to its values. */
export function vectorConstant<T>(builder: Builder<T>, weight: Weight, change?: VectorChange): T {
  const vector = floatWeight(weight);
  return builder.constant({
    key: `${weight.name}:f32${change?.key ?? ""}`,
    dtype: "f32",
    shape: weight.shape,
    async read() {
      const values = toFloat32(await vector.load());
      return change ? values.map(change.of) : values;
    },
  });
}

/** A vector of whole numbers as int32. */
export function indicesConstant<T>(builder: Builder<T>, weight: Weight): T {
  const vector = floatWeight(weight);
  return builder.constant({
    key: `${weight.name}:i32`,
    dtype: "i32",
    shape: weight.shape,
    read: async () => Int32Array.from(toFloat32(await vector.load())),
  });
}

/**
 * Weights of a depthwise convolution [channels, 1, taps] as f32 [taps, channels]: kernels read neighbouring channels
 * together.
 */
export function tapsConstant<T>(builder: Builder<T>, weight: Weight): T {
  const stored = floatWeight(weight);
  const [channels, taps] = [weight.shape[0] ?? 0, weight.shape.at(-1) ?? 0];
  if (weight.shape.join() !== [channels, 1, taps].join())
    throw new ShapeError(`${weight.name}: expected shape [channels, 1, taps] but found [${weight.shape}]`);
  return builder.constant({
    key: `${weight.name}:f32 taps`,
    dtype: "f32",
    shape: [taps, channels],
    async read() {
      const values = toFloat32(await stored.load());
      return values.map((_, i) => values[(i % channels) * taps + Math.floor(i / channels)]!);
    },
  });
}

registerWeightFormat({
  kind: "float",
  linear: (builder, x, weight, bias) =>
    builder.call(
      "aten::linear.out",
      x,
      floatConstant(builder, floatWeight(weight)),
      bias ? vectorConstant(builder, bias) : null,
    ),
  embedding: (builder, weight, indices) =>
    builder.call("aten::embedding.out", floatConstant(builder, floatWeight(weight)), indices),
  rowBlocks(weight, rows) {
    return pickedBlocks(floatWeight(weight), rows, rangeOfTensor);
  },
});

async function* padded(parts: AsyncIterable<QuantizedWeights>, spec: WeightSpec): AsyncGenerator<QuantizedWeights> {
  for await (const part of parts) yield padColumns(part, spec);
}

interface PackedConstant {
  readonly constant: LazyConstant;
  /** The weights that are read from the buffer, which may have more columns than the matrix. */
  readonly spec: WeightSpec;
}

/** Packs a weight and its bias for the CPU of a builder. */
export function packedConstant<T>(builder: Builder<T>, weight: AffineWeight, bias: Weight | null): PackedConstant {
  const { spec, layout: name, levels, codebook, whole } = weight.format;
  if (whole) {
    const all = packedConstant(builder, whole, bias);
    return { ...all, spec: { ...all.spec, n: spec.n } };
  }
  const layout = name ? layoutNamed(name) : selectLayout(spec, builder.cpu);
  const stored = layout.padded?.(spec) ?? spec;
  const loadBias = async () => (bias ? toFloat32((await floatWeight(bias).load()) as Tensor) : null);
  const load = async () => ({ weights: padColumns(await weight.load(), stored), bias: await loadBias() });
  const { loadRows } = weight;
  const stream = loadRows && { rows: () => padded(loadRows(), stored), bias: loadBias };
  const constant = packedWeights(weight.name, {
    spec: stored,
    layout,
    hasBias: bias !== null,
    ...(levels && { levels }),
    ...(codebook !== undefined && { codebook }),
    load,
    ...(stream && { stream }),
  });
  return { constant, spec: stored };
}

/** Pads x with zeros for the columns that the packed weights have beyond those of the matrix. */
export function withColumns<T>(builder: Builder<T>, x: T, added: number): T {
  return added === 0 ? x : builder.call("aten::constant_pad_nd.out", x, [0, added], 0);
}

registerWeightFormat({
  kind: "affine",
  linear(builder, x, weight, bias) {
    const affine = weight as AffineWeight;
    const { constant, spec } = packedConstant(builder, affine, bias);
    const operator = {
      int8: "lowbit::linear_8bit_block_act.out",
      int8_per_token: `torchao::_linear_8bit_act_${spec.bits}bit_weight.out`,
      float: "lowbit::linear_weight_only.out",
    }[affine.format.activations];
    const input = withColumns(builder, x, spec.k - affine.format.spec.k);
    return builder.call(operator, input, builder.constant(constant), spec.groupSize, spec.n, spec.k);
  },
  embedding(builder, weight, indices) {
    const affine = weight as AffineWeight;
    const { constant, spec } = packedConstant(builder, affine, null);
    const { bits, groupSize, n } = spec;
    const packed = builder.constant(constant);
    const rows = builder.call(`torchao::_shared_embedding_${bits}bit.out`, packed, groupSize, n, spec.k, indices);
    const { k } = affine.format.spec;
    return spec.k === k ? rows : builder.call("aten::slice_copy.Tensor_out", rows, -1, 0, k, 1);
  },
  rowBlocks(weight, rows) {
    return pickedBlocks(weight as AffineWeight, rows, rangeOfWeights).map((part) => ({
      ...part,
      format: { ...part.format, spec: { ...part.format.spec, n: rows } },
    }));
  },
  firstRows(weight, count) {
    const whole = weight as AffineWeight;
    const { shape, format, load } = whole;
    return {
      ...{ name: whole.name, shape: shape.with(0, count) },
      format: { ...format, spec: { ...format.spec, n: count }, whole },
      load: async () => rangeOfWeights((await load()) as QuantizedWeights, 0, count),
    };
  },
});

/** Whether TorchAO's embedding format can hold rows with this spec. */
export function fitsEmbeddingFormat(spec: WeightSpec): boolean {
  const groupSize = Math.min(spec.groupSize, spec.k);
  return spec.k % 32 === 0 && spec.k % groupSize === 0 && groupSize % 32 === 0 && !spec.hasLevels;
}

registerWeightFormat({
  kind: "embedding",
  linear(_builder, _x, weight) {
    throw new TypeError(`${weight.name}: embedding rows do not multiply`);
  },
  embedding(builder, weight, indices) {
    const { name, format, load } = weight as Weight<EmbeddingFormat, QuantizedWeights>;
    const { bits, n: rows, k: dim } = format.spec;
    const groups = groupCount(format.spec);
    const table = { bits, rows, dim };
    const part = (suffix: string, dtype: "u8" | "f32" | "i8", shape: number[], read: LazyRead) =>
      builder.constant({ key: `${name}:${suffix}`, dtype, shape, read: async () => read(await load()) });
    const packed = part("torchao_embedding", "u8", [embeddingByteLength(table)], ({ qvals }) =>
      packEmbedding(qvals, table),
    );
    const scales = part("scales", "f32", [rows, groups], (weights) => weights.scales);
    const zeros = part("zeros", "i8", [rows, groups], (weights) => weights.zeros ?? new Int8Array(rows * groups));
    return builder.call(`torchao::_embedding_${bits}bit.out`, packed, rows, dim, scales, zeros, indices);
  },
});

type LazyRead = (weights: QuantizedWeights) => Uint8Array | Float32Array | Int8Array;

/** A constant of known values, such as RoPE frequencies. */
export function literalConstant<T>(builder: Builder<T>, key: string, values: Float32Array): T {
  return builder.constant({ key, dtype: "f32", shape: [values.length], read: async () => values });
}
