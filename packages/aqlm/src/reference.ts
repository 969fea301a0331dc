/** AQLM as plain loops: the definition, and the fallback for every form. Sums are in double precision. */
import { f16Table, type Kernel } from "lowbit/extension";
import type { AqlmArgs } from "./arguments.ts";
import { type AqlmForm, type AqlmWeights, checkWeights, type Floats, formCounts } from "./form.ts";
import { codeIndex, codesOf, type OpenCodes, packedLayouts, TILE } from "./layout.ts";

/** Float32 values of f32 or f16 data. */
export function floatsOf(data: Floats): Float32Array {
  if (data instanceof Float32Array) return data;
  const table = f16Table();
  return Float32Array.from(data, (bits) => table[bits]!);
}

/** Float32 values [n, k] of AQLM weights: sums of vectors in double precision, times the scale. */
export function dequantizeAqlm(weights: AqlmWeights): Float32Array {
  checkWeights(weights);
  const { n, k, codebooks, outGroup, inGroup } = weights;
  const { outputs, inputs, entries } = formCounts(weights);
  const vectors = floatsOf(weights.vectors);
  const scales = floatsOf(weights.scales);
  const result = new Float32Array(n * k);
  for (let output = 0; output < outputs; output++)
    for (let group = 0; group < inputs; group++)
      for (let r = 0; r < outGroup; r++)
        for (let j = 0; j < inGroup; j++) {
          let sum = 0;
          for (let c = 0; c < codebooks; c++) {
            const code = weights.codes[(output * inputs + group) * codebooks + c]!;
            sum += vectors[((c * entries + code) * outGroup + r) * inGroup + j]!;
          }
          result[(output * outGroup + r) * k + group * inGroup + j] = scales[output]! * sum;
        }
  return result;
}

/** A function that reads the code of an output, a group and a codebook; bits beyond the form's are ignored. */
function codeReader({ form, layout, bytes }: OpenCodes): (output: number, group: number, c: number) => number {
  const mask = 2 ** form.bits - 1;
  if (layout !== "aqlm_plain") {
    const packed = codesOf(form, bytes);
    return (output, group, c) => packed[codeIndex(form, output, group) + c * TILE]! & mask;
  }
  const { outputs } = formCounts(form);
  const plain = form.bits <= 8 ? bytes : new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
  return (output, group, c) => plain[(group * outputs + output) * form.codebooks + c]! & mask;
}

/** Decodes the outGroup rows of one output, without the scale: [outGroup, k]. */
function rowDecoder(codes: OpenCodes, vectors: Float32Array): (output: number, rows: Float64Array) => void {
  const { k, codebooks, outGroup, inGroup } = codes.form;
  const { inputs, entries } = formCounts(codes.form);
  const codeAt = codeReader(codes);
  return (output, rows) => {
    rows.fill(0);
    for (let group = 0; group < inputs; group++)
      for (let c = 0; c < codebooks; c++) {
        const from = (c * entries + codeAt(output, group, c)) * outGroup * inGroup;
        for (let r = 0; r < outGroup; r++)
          for (let j = 0; j < inGroup; j++) rows[r * k + group * inGroup + j]! += vectors[from + r * inGroup + j]!;
      }
  };
}

export const aqlmReference: Kernel<AqlmArgs> = {
  name: "aqlm_f32_cx_1x1x1_reference",
  target: "reference",
  layouts: [...packedLayouts, "aqlm_plain"],
  bits: null,
  needs: [],
  mStep: 1,
  nStep: 1,
  bind({ m, x, codes, vectors, scales, bias, y }) {
    const form: AqlmForm = codes.form;
    const { n, k, outGroup } = form;
    const rows = new Float64Array(outGroup * k);
    const decode = rowDecoder(codes, floatsOf(vectors));
    const scale = floatsOf(scales);
    return () => {
      for (let output = 0; output < n / outGroup; output++) {
        decode(output, rows);
        for (let r = 0; r < outGroup; r++) {
          const row = output * outGroup + r;
          for (let i = 0; i < m; i++) {
            let sum = 0;
            for (let c = 0; c < k; c++) sum += rows[r * k + c]! * x[i * k + c]!;
            y[i * n + row] = sum * scale[output]! + (bias ? bias[row]! : 0);
          }
        }
      }
    };
  },
};
