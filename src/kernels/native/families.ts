/**
 * How the arguments of each kernel family become numbers and buffers of a native call. The C++ side reads them in this
 * order; the scratch buffer follows the ones listed here.
 */
import type {
  AddRmsNormArgs,
  ArgmaxArgs,
  AttentionArgs,
  BinaryArgs,
  FloatEmbeddingArgs,
  FloatLinearArgs,
  FloatWeights,
  GroupSumsArgs,
  HalvesArgs,
  PackedEmbeddingArgs,
  PackedLinearArgs,
  RmsNormArgs,
  RopeAnglesArgs,
  RopeArgs,
  RopeAttentionArgs,
  SelectArgs,
  SharedEmbeddingArgs,
  SoftmaxArgs,
  UnaryArgs,
} from "../arguments.ts";

export interface NativeArguments {
  readonly scalars: readonly number[];
  readonly buffers: readonly ArrayBufferView[];
}

/** scalars: m, n, k, group size (TorchAO's headers lack them); buffers: x, packed weights, y. */
export function packedLinear({ m, x, weights, y }: PackedLinearArgs): NativeArguments {
  const { n, k, groupSize } = weights.spec;
  return { scalars: [m, n, k, groupSize], buffers: [x, weights.bytes, y] };
}

/** How float weights are stored, as native/half.h numbers it. */
function floatType({ dtype }: FloatWeights): number {
  return ["f32", "f16", "bf16"].indexOf(dtype);
}

const none = new Float32Array(0);

/** scalars: m, n, k, type, 1 with a bias; buffers: x, weights, bias, y. */
export function floatLinear({ m, n, k, x, weights, bias, y }: FloatLinearArgs): NativeArguments {
  return { scalars: [m, n, k, floatType(weights), bias ? 1 : 0], buffers: [x, weights.data, bias ?? none, y] };
}

/** scalars: rows, dim, eps; buffers: x, weight, y. */
export function rmsNorm({ dim, x, weight, eps, y }: RmsNormArgs): NativeArguments {
  return { scalars: [x.length / dim, dim, eps], buffers: [x, weight, y] };
}

/** scalars: tokens, half, scale; buffers: position, inverse frequencies, angles. */
export function ropeAngles(args: RopeAnglesArgs): NativeArguments {
  const { tokens, position, inverseFrequencies, scale, angles } = args;
  return { scalars: [tokens, inverseFrequencies.length, scale], buffers: [position, inverseFrequencies, angles] };
}

/** scalars: tokens, heads, head dimension, half; buffers: x, angles, y. */
export function rope({ tokens, heads, headDim, half, x, angles, y }: RopeArgs): NativeArguments {
  return { scalars: [tokens, heads, headDim, half], buffers: [x, angles, y] };
}

const cacheArrays = [Float32Array, Uint16Array, Int8Array] as const;

/**
 * scalars: tokens, heads, kvHeads, head dimension, capacity, scale, window, softcap, type of the caches (0 f32, 1 f16,
 * 2 int8), 1 when k and v are stored first; buffers: q, k, v, key cache, value cache, key scales, value scales, position, y. Scales are empty but for int8.
 */
export function attention(args: AttentionArgs): NativeArguments {
  const { tokens, heads, kvHeads, headDim, capacity, scale, window, softcap } = args;
  const { q, k, v, keyCache, valueCache, keyScales, valueScales, position, y } = args;
  const cacheType = cacheArrays.findIndex((array) => keyCache instanceof array);
  return {
    scalars: [tokens, heads, kvHeads, headDim, capacity, scale, window, softcap, cacheType, k && v ? 1 : 0],
    buffers: [q, k ?? none, v ?? none, keyCache, valueCache, keyScales ?? none, valueScales ?? none, position, y],
  };
}

/** scalars: as of attention, then half; buffers: qkv, angles, then from the key cache on as of attention. */
export function ropeAttention({ qkv, angles, half, ...rest }: RopeAttentionArgs): NativeArguments {
  const { scalars, buffers } = attention({ ...rest, q: none, k: none, v: none });
  return { scalars: [...scalars, half], buffers: [qkv, angles, ...buffers.slice(3)] };
}

/** scalars: rows, dim; buffers: x, y. */
export function halves({ dim, x, y }: HalvesArgs): NativeArguments {
  return { scalars: [y.length / dim, dim], buffers: [x, y] };
}

/** scalars: rows, dim, eps, alpha; buffers: x, weight, y, addend. */
export function addRmsNorm({ addend, alpha, ...norm }: AddRmsNormArgs): NativeArguments {
  const { scalars, buffers } = rmsNorm(norm);
  return { scalars: [...scalars, alpha], buffers: [...buffers, addend] };
}

/** scalars: count, alpha; buffers: a, b, y. */
export function binary({ a, b, alpha, y }: BinaryArgs): NativeArguments {
  return { scalars: [y.length, alpha], buffers: [a, b, y] };
}

/** scalars: count, value; buffers: x, y. */
export function unary({ x, value, y }: UnaryArgs): NativeArguments {
  return { scalars: [y.length, value], buffers: [x, y] };
}

/** scalars: rows, dim; buffers: x, y. */
export function rows({ dim, x, y }: SoftmaxArgs | ArgmaxArgs): NativeArguments {
  return { scalars: [x.length / dim, dim], buffers: [x, y] };
}

/** scalars: rows, k, group size; buffers: x, y. */
export function groupSums({ rows, k, groupSize, x, y }: GroupSumsArgs): NativeArguments {
  return { scalars: [rows, k, groupSize], buffers: [x, y] };
}

/** scalars: outer, stride, offset, bytes of a block; buffers: x, y. */
export function select({ outer, stride, offset, blockBytes, x, y }: SelectArgs): NativeArguments {
  return { scalars: [outer, stride, offset, blockBytes], buffers: [x, y] };
}

/** scalars: rows, dim, type (0 f32, 1 f16, 2 bf16), count, bytes of an index; buffers: weights, indices, y. */
export function embeddingFloat({ rows, dim, weights, indices, y }: FloatEmbeddingArgs): NativeArguments {
  return {
    scalars: [rows, dim, floatType(weights), indices.length, indices.BYTES_PER_ELEMENT],
    buffers: [weights.data, indices, y],
  };
}

/** scalars: bits, rows, dim, groups, count, bytes of an index; buffers: packed, scales, zeros, indices, y. */
export function embeddingPacked(args: PackedEmbeddingArgs): NativeArguments {
  const { bits, rows, dim, packed, scales, zeros, indices, y } = args;
  return {
    scalars: [bits, rows, dim, scales.length / rows, indices.length, indices.BYTES_PER_ELEMENT],
    buffers: [packed, scales, zeros, indices, y],
  };
}

/** scalars: count, n, k, group size, bytes of an index; buffers: packed weights, indices, y. */
export function embeddingShared({ weights, indices, y }: SharedEmbeddingArgs): NativeArguments {
  const { n, k, groupSize } = weights.spec;
  return {
    scalars: [indices.length, n, k, groupSize, indices.BYTES_PER_ELEMENT],
    buffers: [weights.bytes, indices, y],
  };
}
