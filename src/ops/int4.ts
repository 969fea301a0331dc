/**
 * PyTorch's 4-bit operators, for packing and for the product with dynamically quantized activations:
 * aten::_dyn_quant_pack_4bit_weight and _dyn_quant_matmul_4bit (aten/native/cpu/int4mm_kernel), and the names of the first
 * proposal, _kai_weights_pack_int4 and _kai_input_quant_mm_int4, where a group size of 0 means per channel. Activations are
 * quantized as everywhere in lowbit, which differs from PyTorch's kernels by single roundings.
 */

import type { Cpu, Kernel } from "../kernels/contract.ts";
import { int4Pack, linearA8 } from "../kernels/families/index.ts";
import { type Bf16LinearArgs, withBf16Rows } from "../kernels/families/linear/bf16-rows.ts";
import type { PackedLinearArgs } from "../kernels/families/linear/fields.ts";
import type { Int4PackArgs } from "../kernels/families/packing/int4-reference.ts";
import { fastPacker } from "../kernels/families/packing/packer.ts";
import { openPackedWithin } from "../kernels/layout/packed.ts";
import { packedQuery, selectableLayouts, selectLayout } from "../kernels/select.ts";
import type { WeightSpec } from "../quantized.ts";
import { elementCount, isSameShape, type Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import { rowCount } from "./linear.ts";
import { defineOperator, type Operator, overload } from "./operator.ts";

/** Names of the arguments with the sizes, which the two generations of operators call differently. */
interface ShapeNames {
  readonly n: string;
  readonly k: string;
  readonly groupSize: string;
}

const dynNames: ShapeNames = { n: "out_features", k: "in_features", groupSize: "block_size" };
const kaiNames: ShapeNames = { n: "n", k: "k", groupSize: "groupsize" };

/** Spec of the weights: per channel (block size k, or 0) with f32 scales, else per group with bf16 or f32 scales. */
function specOf(args: Arguments<TensorSpec>, names: ShapeNames): WeightSpec {
  const [n, k] = [args.integer(names.n, 1), args.integer(names.k, 1)];
  const given = args.integer(names.groupSize, 0);
  const groupSize = given === 0 ? k : given;
  if (k % 2 !== 0) args.fail(names.k, `expected an even number but found ${k}`);
  if (groupSize < 1 || k % groupSize !== 0 || (groupSize !== k && groupSize % 32 !== 0))
    args.fail(names.groupSize, `expected k = ${k} or a multiple of 32 that divides it but found ${given}`);
  return { bits: 4, n, k, groupSize, hasZeros: false, hasLevels: false, scaleDType: "f32" };
}

function packOperator(schema: string, names: ShapeNames, inputs: { weights: string; scales: string }): Operator {
  return defineOperator({
    schema,
    kernels: int4Pack,
    isPacking: true,
    shape(args) {
      const spec = specOf(args, names);
      const groups = spec.k / spec.groupSize;
      const { shape } = args.tensor(inputs.weights, "u8");
      const scales = args.tensor(inputs.scales, "f32", "bf16");
      if (!isSameShape(shape, [spec.n, spec.k / 2]))
        args.fail(inputs.weights, `expected shape [${spec.n}, ${spec.k / 2}] but found [${shape}]`);
      if (elementCount(scales.shape) !== spec.n * groups)
        args.fail(inputs.scales, `expected ${spec.n * groups} scales but found shape [${scales.shape}]`);
      const bias = biasOf(args);
      if (bias && !isSameShape(bias.shape, [spec.n]))
        args.fail("bias", `expected shape [${spec.n}] but found [${bias.shape}]`);
      // The size must be the same on every CPU, so it is that of the largest layout.
      const sizes = selectableLayouts(spec).map((layout) => layout.byteLength(spec, bias !== null));
      return { dtype: "u8", shape: [Math.max(...sizes)] };
    },
    prepare: (args, cpu) => ({
      spec: specOf(args, names),
      ...packingFor(specOf(args, names), cpu),
      nibbles: args.tensor(inputs.weights).data as Uint8Array,
      scales: args.tensor(inputs.scales).data as Float32Array | Uint16Array,
      bias: (biasOf(args)?.data as Float32Array | undefined) ?? null,
      target: args.tensor("out").data as Uint8Array,
    }),
  });
}

/** The layout for a CPU, and the packer for it. */
function packingFor(spec: WeightSpec, cpu: Cpu): Pick<Int4PackArgs, "layout" | "packer"> {
  const layout = selectLayout(spec, cpu);
  return { layout, packer: (target) => fastPacker(layout, target, cpu) };
}

function biasOf<T extends TensorSpec>(args: Arguments<T>): T | null {
  return args.schema.args.some(({ name }) => name === "bias") ? args.optionalTensor("bias", "f32") : null;
}

/** A product whose activations and result have one type: f32, or bf16 as in PyTorch since 2.10. */
function matmulOperator(schema: string, names: ShapeNames, inputs: { x: string; packed: string }): Operator {
  return overload(matmulOf(schema, names, { ...inputs, dtype: "f32", kernels: linearA8 }), {
    operator: matmulOf(schema, names, { ...inputs, dtype: "bf16", kernels: linearA8.map(withBf16Rows) }),
    fits: (args) => args.tensor(inputs.x).dtype === "bf16",
  });
}

function matmulOf<A extends PackedLinearArgs | Bf16LinearArgs>(
  schema: string,
  names: ShapeNames,
  inputs: { x: string; packed: string; dtype: "f32" | "bf16"; kernels: readonly Kernel<A>[] },
): Operator {
  const open = (args: Arguments<Tensor>) => {
    const packed = openPackedWithin(args.tensor(inputs.packed).data as Uint8Array, specOf(args, names));
    if (packed.spec.bits !== 4) args.fail(inputs.packed, `expected weights of 4 bits but found ${packed.spec.bits}`);
    return packed;
  };
  return defineOperator<A>({
    schema,
    kernels: inputs.kernels,
    bits: [4],
    shape(args) {
      const { n, k } = specOf(args, names);
      const { shape, dtype } = args.tensor(inputs.x, inputs.dtype);
      args.tensor(inputs.packed, "u8");
      if (shape.at(-1) !== k) args.fail(inputs.x, `expected last dimension ${k} but found shape [${shape}]`);
      return { dtype, shape: [...shape.slice(0, -1), n] };
    },
    multiplications: (args) => elementCount(args.tensor(inputs.x).shape) * specOf(args, names).n,
    query: (args) => packedQuery(open(args), rowCount(args.tensor(inputs.x).shape)),
    prepare: (args) =>
      ({
        m: rowCount(args.tensor(inputs.x).shape),
        x: args.tensor(inputs.x).data,
        weights: open(args),
        y: args.tensor("out").data,
      }) as A,
  });
}

export const int4Operators: readonly Operator[] = [
  packOperator(
    "aten::_dyn_quant_pack_4bit_weight.out(Tensor weights, Tensor scales_zeros, Tensor? bias, int block_size, int in_features, int out_features, *, Tensor(a!) out) -> Tensor(a!)",
    dynNames,
    { weights: "weights", scales: "scales_zeros" },
  ),
  matmulOperator(
    "aten::_dyn_quant_matmul_4bit.out(Tensor inp, Tensor packed_weights, int block_size, int in_features, int out_features, *, Tensor(a!) out) -> Tensor(a!)",
    dynNames,
    { x: "inp", packed: "packed_weights" },
  ),
  packOperator(
    "aten::_kai_weights_pack_int4.out(Tensor weight, Tensor scales, int n, int k, int groupsize, *, Tensor(a!) out) -> Tensor(a!)",
    kaiNames,
    { weights: "weight", scales: "scales" },
  ),
  matmulOperator(
    "aten::_kai_input_quant_mm_int4.out(Tensor input, Tensor packed_weight, int m, int n, int k, int groupsize, *, Tensor(a!) out) -> Tensor(a!)",
    kaiNames,
    { x: "input", packed: "packed_weight" },
  ),
];
