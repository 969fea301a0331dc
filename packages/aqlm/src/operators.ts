/**
 * AQLM's operators. `aqlm::code2x8_lut_matmat` is upstream's, for two codebooks of 8 bits and groups of 8 inputs;
 * `aqlm::code_matmat` takes every form. Codes are packed (u8, with a header), or plain in upstream's order
 * (i8 or i16 [k / inGroup, n / outGroup, codebooks], as ExecuTorch programs have them).
 */
import {
  type Arguments,
  isSameShape,
  type OperatorDefinition,
  ShapeError,
  type StoredMatrix,
  type Tensor,
  type TensorSpec,
} from "lowbit/extension";
import type { AqlmArgs } from "./arguments.ts";
import { type AqlmForm, checkForm, describeForm, type Floats, formCounts, formName } from "./form.ts";
import { aqlmKernels } from "./kernels.ts";
import { codesIntact, type OpenCodes, openCodes, packedByteLength, packedLayout } from "./layout.ts";

const ARGUMENTS = "Tensor input, Tensor codes, Tensor codebooks, Tensor scales, Tensor? bias=None";

function product(sizes: readonly number[]): number {
  return sizes.reduce((total, size) => total * size, 1);
}

/** The form that the specs of a call's arguments say; ShapeError when they contradict each other. */
function formOf(args: Arguments<TensorSpec>): AqlmForm {
  const input = args.tensor("input", "f32");
  const codes = args.tensor("codes", "u8", "i8", "i16");
  const vectors = args.tensor("codebooks", "f32", "f16");
  const scales = args.tensor("scales", "f32", "f16");
  const [codebooks, entries, outGroup, inGroup] = vectors.shape;
  if (vectors.shape.length !== 4 || Math.log2(entries!) % 1 !== 0)
    args.fail("codebooks", `expected [codebooks, 2^bits, out group, in group] but found [${vectors.shape}]`);
  const outputs = product(scales.shape);
  const form: AqlmForm = {
    n: outputs * outGroup!,
    k: input.shape.at(-1) ?? 1,
    ...{ codebooks: codebooks!, bits: Math.log2(entries!), outGroup: outGroup!, inGroup: inGroup! },
  };
  checkForm(`${args.schema.name}, argument codebooks`, form);
  if (args.schema.name === CODE2X8 && !is2x8(form))
    args.fail("codebooks", `expected 2x8 in groups of 8 inputs but found ${formName(form)} in groups of ${inGroup}`);
  checkCodes(args, form, codes);
  const bias = args.optionalTensor("bias", "f32");
  if (bias && !isSameShape(bias.shape, [form.n]))
    args.fail("bias", `expected shape [${form.n}] but found [${bias.shape}]`);
  return form;
}

function checkCodes(args: Arguments<TensorSpec>, form: AqlmForm, { dtype, shape }: TensorSpec): void {
  const { outputs, inputs } = formCounts(form);
  if (dtype === "u8") {
    const expected = packedByteLength(form);
    if (!isSameShape(shape, [expected]))
      args.fail("codes", `expected ${expected} packed bytes for [${form.n}, ${form.k}] but found [${shape}]`);
    return;
  }
  const plain = form.bits <= 8 ? "i8" : "i16";
  const sizes = [inputs, outputs, form.codebooks];
  if (dtype !== plain || !isSameShape(shape, sizes))
    args.fail("codes", `expected ${plain} [${sizes}], or packed u8, but found ${dtype} [${shape}]`);
}

function open(args: Arguments<Tensor>): OpenCodes {
  const form = formOf(args);
  const { dtype, data } = args.tensor("codes");
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (dtype !== "u8") return { form, layout: "aqlm_plain", bytes };
  const codes = openCodes(bytes, `${args.schema.name}, argument codes`);
  for (const field of Object.keys(form) as (keyof AqlmForm)[])
    if (codes.form[field] !== form[field])
      throw new ShapeError(
        `${args.schema.name}, argument codes: expected ${field} ${form[field]} but the header says ${codes.form[field]}`,
      );
  return codes;
}

function storedMatrix(args: Arguments<TensorSpec>): StoredMatrix {
  const form = formOf(args);
  const packed = args.tensor("codes").dtype === "u8";
  return {
    argument: "codes",
    parts: ["codebooks", "scales"],
    shape: [form.n, form.k],
    bits: (form.codebooks * form.bits) / (form.inGroup * form.outGroup),
    groupSize: form.inGroup,
    form: describeForm(form),
    layout: packed ? packedLayout(form) : "aqlm_plain",
    scaleType: args.tensor("scales").dtype === "f16" ? "f16" : "f32",
    ...(packed && { intact: codesIntact }),
  };
}

function definition(name: string) {
  return {
    schema: `${name}.out(${ARGUMENTS}, *, Tensor(a!) out) -> Tensor(a!)`,
    kernels: aqlmKernels,
    rowwise: ["input"],
    shape(args) {
      const { n } = formOf(args);
      return { dtype: "f32", shape: [...args.tensor("input").shape.slice(0, -1), n] };
    },
    multiplications: (args) => product(args.tensor("input").shape) * formOf(args).n,
    query(args) {
      return { layout: open(args).layout, bits: null, m: product(args.tensor("input").shape.slice(0, -1)) };
    },
    prepare: (args) => ({
      m: product(args.tensor("input").shape.slice(0, -1)),
      x: args.tensor("input").data as Float32Array,
      codes: open(args),
      vectors: args.tensor("codebooks").data as Floats,
      scales: args.tensor("scales").data as Floats,
      bias: (args.optionalTensor("bias")?.data as Float32Array | undefined) ?? null,
      y: args.tensor("out").data as Float32Array,
    }),
    storedMatrix,
  } satisfies OperatorDefinition<AqlmArgs>;
}

/** Whether upstream's operator takes weights of this form. */
export function is2x8({ codebooks, bits, inGroup }: AqlmForm): boolean {
  return codebooks === 2 && bits === 8 && inGroup === 8;
}

export const CODE2X8 = "aqlm::code2x8_lut_matmat";
export const CODE_MATMAT = "aqlm::code_matmat";

export const aqlmOperators: readonly OperatorDefinition<AqlmArgs>[] = [definition(CODE2X8), definition(CODE_MATMAT)];
