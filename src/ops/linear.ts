/** Linear operators: 8-bit dynamic activations x low-bit weights, weight-only low-bit, and float. */

import type { Kernel, PackedWeights } from "../kernels/contract.ts";
import {
  linearA8,
  linearA8Blocks,
  linearA8BlocksSwiglu,
  linearA8Swiglu,
  linearFloat,
  linearWeightOnly,
} from "../kernels/families/index.ts";
import type { PackedLinearArgs } from "../kernels/families/linear/fields.ts";
import { HEADER_BYTES } from "../kernels/layout/header.ts";
import { openPacked, type PackedShape } from "../kernels/layout/packed.ts";
import { packedQuery } from "../kernels/select.ts";
import { elementCount, isSameShape, type Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { defineOperator, type Operator } from "./operator.ts";

export const weightBits = [1, 2, 3, 4, 5, 6, 7, 8] as const;

/** Number of rows (tokens) of x [..., k] as a matrix. */
export function rowCount(shape: readonly number[]): number {
  return elementCount(shape.slice(0, -1));
}

/** Sizes of a tensor as rows of `dim` values, by default its last dimension. */
export function rowsOf({ shape }: TensorSpec, dim: number = shape.at(-1)!): { rows: number; dim: number } {
  return { rows: elementCount(shape) / dim, dim };
}

/** Sizes of the packed weights as a call's arguments say them. */
export function packedShape<T extends TensorSpec>(args: Arguments<T>): PackedShape {
  return { n: args.integer("n", 1), k: args.integer("k", 1), groupSize: args.integer("group_size", 1) };
}

/** Packed weights, and the header that they were opened with. */
interface Opened {
  readonly packed: PackedWeights;
  readonly header: Uint8Array;
}

/**
 * Opened weights by tensor: a program's weights are the same for all input sizes, unless the program writes them itself.
 */
const opened = new WeakMap<Tensor, Opened>();

function openTensor(tensor: Tensor, shape: PackedShape): PackedWeights {
  const known = opened.get(tensor);
  const bytes = tensor.data as Uint8Array;
  if (known && isOf(known.packed, shape) && known.header.every((byte, i) => byte === bytes[i])) return known.packed;
  const header = bytes.slice(0, HEADER_BYTES);
  const packed = openPacked(bytes, shape);
  opened.set(tensor, { packed, header });
  return packed;
}

function isOf({ spec }: PackedWeights, { n, k, groupSize }: PackedShape): boolean {
  return spec.n === n && spec.k === k && spec.groupSize === groupSize;
}

/** Opens the packed weights of a call, and checks them against group_size, n, k and, where the operator has them, bits. */
export function openArgument(args: Arguments<Tensor>, name: string, bits: number | null): PackedWeights {
  const packed = openTensor(args.tensor(name), packedShape(args));
  if (bits !== null && packed.spec.bits !== bits)
    args.fail(name, `expected weights of ${bits} bits but found ${packed.spec.bits}`);
  return packed;
}

/** Schema of torchao::_linear_8bit_act_{b}bit_weight.out (TorchAO, shared_kernels/linear_8bit_act_xbit_weight). */
const packedSchema = (name: string) =>
  `${name}.out(Tensor activations, Tensor packed_weights, int group_size, int n, int k, *, Tensor(a!) out) -> Tensor(a!)`;

/** Options of single linear operators. */
interface LinearOptions {
  /** Columns of the result, given the rows n of the weights. */
  columns?(n: number, args: Arguments<TensorSpec>): number;
  readonly isFused?: boolean;
  readonly readFirst?: readonly string[];
}

function packedLinear(
  name: string,
  kernels: readonly Kernel<PackedLinearArgs>[],
  bits: number | null,
  { columns = (n) => n, isFused = false, readFirst = [] }: LinearOptions = {},
): Operator {
  return defineOperator<PackedLinearArgs>({
    schema: packedSchema(name),
    kernels,
    ...(bits !== null && { bits: [bits] }),
    isFused,
    readFirst,
    rowwise: ["activations"],
    shape(args): TensorSpec {
      const { shape } = args.tensor("activations", "f32");
      const { n, k } = packedShape(args);
      args.tensor("packed_weights", "u8", "i8");
      if (shape.at(-1) !== k) args.fail("activations", `expected last dimension ${k} but found shape [${shape}]`);
      return { dtype: "f32", shape: [...shape.slice(0, -1), columns(n, args)] };
    },
    multiplications: (args) => elementCount(args.tensor("activations").shape) * packedShape(args).n,
    query: (args) =>
      packedQuery(openArgument(args, "packed_weights", bits), rowCount(args.tensor("activations").shape)),
    prepare: (args) => ({
      m: rowCount(args.tensor("activations").shape),
      x: args.tensor("activations").data as Float32Array,
      weights: openArgument(args, "packed_weights", bits),
      y: args.tensor("out").data as Float32Array,
    }),
  });
}

/**
 * y = x W^T + bias, with x quantized to int8 with one scale and zero point a token (TorchAO). The bias is packed with the
 * weights.
 */
export const linearA8Operators: readonly Operator[] = weightBits.map((bits) =>
  packedLinear(`torchao::_linear_8bit_act_${bits}bit_weight`, linearA8, bits),
);

/**
 * y = x W^T + bias, with x quantized to symmetric int8 with a scale for each block of 32 values, and weights of any low bit
 * width. Blocks lie within the groups of weights: see kernels/reference/activations.ts.
 */
export const linearA8BlocksOperator = packedLinear("lowbit::linear_8bit_block_act", linearA8Blocks, null);

/** y = x W^T + bias, with float activations and weights of any low bit width (weight-only). */
export const linearWeightOnlyOperator = packedLinear("lowbit::linear_weight_only", linearWeightOnly, null);

/**
 * lowbit::gate_halves, with SiLU, of y = x W^T + bias, with x quantized as in one of the operators above. n is a multiple
 * of 32. Programs do not name these operators: load-time fusion makes them of two calls (src/runtime/fusion.ts).
 */
const gated: LinearOptions = {
  isFused: true,
  // The memory plan keeps inputs apart only from the first call's result, which the fused call does not write.
  readFirst: ["activations"],
  columns(n, args) {
    if (n % 32 !== 0) args.fail("n", `expected a multiple of 32 but found ${n}`);
    return n / 2;
  },
};
export const linearA8SwigluOperators: readonly Operator[] = [
  packedLinear("lowbit::linear_8bit_act_swiglu", linearA8Swiglu, null, gated),
  packedLinear("lowbit::linear_8bit_block_act_swiglu", linearA8BlocksSwiglu, null, gated),
];

/** y = x W^T + bias, with float weights [n, k] in f32, f16 or bf16 (aten::linear, whose weights are f32 in PyTorch). */
export const linearFloatOperator = defineOperator({
  schema: "aten::linear.out(Tensor input, Tensor weight, Tensor? bias=None, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: linearFloat,
  rowwise: ["input"],
  shape(args) {
    const input = args.tensor("input", "f32");
    const weight = args.tensor("weight", "f32", "f16", "bf16");
    const bias = args.optionalTensor("bias", "f32");
    const [n, k] = weight.shape;
    if (weight.shape.length !== 2 || input.shape.at(-1) !== k)
      args.fail("weight", `expected shape [n, ${input.shape.at(-1)}] but found [${weight.shape}]`);
    if (bias && !isSameShape(bias.shape, [n])) args.fail("bias", `expected shape [${n}] but found [${bias.shape}]`);
    return { dtype: "f32", shape: [...input.shape.slice(0, -1), n!] };
  },
  multiplications: (args) => elementCount(args.tensor("input").shape) * args.tensor("weight").shape[0]!,
  query: (args) => ({ layout: null, bits: null, m: rowCount(args.tensor("input").shape) }),
  prepare(args) {
    const weight = args.tensor("weight");
    return {
      m: rowCount(args.tensor("input").shape),
      n: weight.shape[0]!,
      k: weight.shape[1]!,
      x: args.tensor("input").data as Float32Array,
      weights: { dtype: weight.dtype, data: weight.data as Float32Array | Uint16Array },
      bias: (args.optionalTensor("bias")?.data as Float32Array | undefined) ?? null,
      y: args.tensor("out").data as Float32Array,
    };
  },
});
