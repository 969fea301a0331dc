/** ExecuTorch's quantized_decomposed operators that language models call. */

import type { Arguments, TensorSpec } from "../../ops/call-arguments.ts";
import { rowBytes } from "../../ops/embedding.ts";
import { defineOperator, type Operator } from "../../ops/operator.ts";
import { type Routine, routine } from "../../ops/operator-registry.ts";
import { elementCount, isSameShape } from "../../tensor.ts";
import {
  chooseRowParameters,
  dequantizeRowsReference,
  type QuantizedEmbeddingArgs,
  type QuantizeRowsArgs,
  quantizedEmbeddingReference,
  quantizeRowsReference,
} from "../kernels/quantized.ts";

const embeddingBits = { embedding_2bit: 2, embedding_4bit: 4, embedding_byte: 8 } as const;

function embeddingShape(args: Arguments<TensorSpec>, bits: number): TensorSpec {
  const weight = args.tensor("weight", "u8", "i8").shape;
  const scales = args.tensor("weight_scales", "f32", "f16").shape;
  const zeros = args.optionalTensor("weight_zero_points");
  const [rows, rowBytes] = weight;
  if (weight.length !== 2) args.fail("weight", `expected shape [rows, bytes] but found [${weight}]`);
  const dim = (rowBytes! * 8) / bits;
  const groups = scales[1] ?? 1;
  if (scales.length < 1 || scales.length > 2 || scales[0] !== rows || dim % groups !== 0)
    args.fail("weight_scales", `expected shape [${rows}, a divisor of ${dim}] but found [${scales}]`);
  if (zeros && !isSameShape(zeros.shape, scales))
    args.fail("weight_zero_points", `expected shape [${scales}] but found [${zeros.shape}]`);
  return { dtype: "f32", shape: [...args.tensor("indices", "i64", "i32").shape, dim] };
}

const embedding = (name: keyof typeof embeddingBits, overload: "out" | "dtype_out"): Operator =>
  defineOperator<QuantizedEmbeddingArgs>({
    schema: `quantized_decomposed::${name}.${overload}(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, Tensor indices, ${overload === "out" ? "" : "int? dtype=None, "}*, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [quantizedEmbeddingReference],
    indices: { argument: "indices", limit: (args) => args.tensor("weight").shape[0]! },
    bytes: (args) => rowBytes(args, ["weight", "weight_scales", "weight_zero_points"], args.tensor("weight").shape[0]!),
    shape: (args) => embeddingShape(args, embeddingBits[name]),
    prepare: (args) => ({
      bits: embeddingBits[name],
      weight: args.tensor("weight"),
      scales: args.tensor("weight_scales"),
      zeros: args.optionalTensor("weight_zero_points"),
      indices: args.tensor("indices"),
      out: args.tensor("out"),
    }),
  });

/** ExecuTorch's ScalarType of int8, the only type to which rows are quantized here. */
const INT8 = 1;

function checkInt8(args: Arguments<TensorSpec>): void {
  if (args.number("dtype") !== INT8) args.fail("dtype", `only int8 is supported, found type ${args.number("dtype")}`);
}

function checkRowParameters(args: Arguments<TensorSpec>): readonly number[] {
  const { shape } = args.tensor("input");
  const rows = elementCount(shape.slice(0, -1));
  for (const name of ["scales", "zero_points"])
    if (elementCount(args.tensor(name).shape) !== rows)
      args.fail(name, `expected one value for each of ${rows} rows but found shape [${args.tensor(name).shape}]`);
  return shape;
}

const rowOperator = (schema: string, dtype: "i8" | "f32"): Operator =>
  defineOperator<QuantizeRowsArgs>({
    schema: `quantized_decomposed::${schema}, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: [dtype === "i8" ? quantizeRowsReference : dequantizeRowsReference],
    shape(args) {
      checkInt8(args);
      return { dtype, shape: checkRowParameters(args) };
    },
    prepare: (args) => ({
      x: args.tensor("input"),
      scales: args.tensor("scales"),
      zeros: args.tensor("zero_points"),
      min: args.number("quant_min"),
      max: args.number("quant_max"),
      out: args.tensor("out"),
    }),
  });

export const quantizedDecomposedOperators: readonly Operator[] = [
  ...(Object.keys(embeddingBits) as (keyof typeof embeddingBits)[]).flatMap((name) => [
    embedding(name, "out"),
    embedding(name, "dtype_out"),
  ]),
  rowOperator(
    "quantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, int dtype",
    "i8",
  ),
  rowOperator(
    "dequantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, int dtype, int output_dtype",
    "f32",
  ),
];

export const quantizedDecomposedRoutines: readonly Routine[] = [
  routine(
    "quantized_decomposed::choose_qparams_per_token_asymmetric.out(Tensor input, int dtype, *, Tensor(a!) scale_out, Tensor(b!) zero_point_out) -> (Tensor(a!), Tensor(b!))",
    (args, [scale = "f64", zero = "i64"]) => {
      checkInt8(args);
      const input = args.tensor("input", "f32").shape;
      if (input.length === 0) args.fail("input", "expected rows but found a scalar");
      const shape = input.with(-1, 1);
      return [
        { dtype: scale, shape },
        { dtype: zero, shape },
      ];
    },
    (args) => chooseRowParameters(args.tensor("input"), args.tensor("scale_out"), args.tensor("zero_point_out")),
  ),
];
