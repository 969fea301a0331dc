/**
 * What AQLM weights are: codes into codebooks of short vectors, and a scale for each group of rows.
 * `W[o * outGroup + r][g * inGroup + j] = scales[o] * sum over c of codebooks[c][codes[o][g][c]][r][j]`
 * (Egiazarian et al. 2024, "Extreme Compression of Large Language Models via Additive Quantization").
 */
import { InvalidArgumentError, ShapeError, UnsupportedError } from "lowbit/extension";

/** Sizes of AQLM weights [n, k]. */
export interface AqlmForm {
  /** Rows of the matrix. */
  readonly n: number;
  /** Columns of the matrix. */
  readonly k: number;
  /** Number of codebooks, whose vectors are summed. */
  readonly codebooks: number;
  /** Bits of a code: a codebook has 2^bits vectors. */
  readonly bits: number;
  /** Columns that one code stands for. */
  readonly inGroup: number;
  /** Rows that one code stands for. */
  readonly outGroup: number;
}

/** f32 values, or bit patterns of f16. */
export type Floats = Float32Array | Uint16Array;

/** Weights as numbers. */
export interface AqlmWeights extends AqlmForm {
  /** Codes [n / outGroup, k / inGroup, codebooks], unsigned. */
  readonly codes: Uint8Array | Uint16Array;
  /** Vectors of the codebooks [codebooks, 2^bits, outGroup, inGroup]. */
  readonly vectors: Floats;
  /** Scales [n / outGroup] of the rows. */
  readonly scales: Floats;
}

/** Kernels sum in 16 bits at most so many byte lookups of a block. */
export const CODEBOOKS_MAX = 16;
export const BITS_MAX = 16;
const GROUP_MAX = 64;

/** "2x8": codebooks times bits, as AQLM's checkpoints are named. */
export function formName({ codebooks, bits }: Pick<AqlmForm, "codebooks" | "bits">): string {
  return `${codebooks}x${bits}`;
}

/** "aqlm 2x8, groups of 8", or "aqlm 1x16, groups of 8 inputs by 2 outputs". */
export function describeForm(form: AqlmForm): string {
  const { inGroup, outGroup } = form;
  const groups = outGroup === 1 ? `${inGroup}` : `${inGroup} inputs by ${outGroup} outputs`;
  return `aqlm ${formName(form)}, groups of ${groups}`;
}

/** Groups of rows and of inputs, vectors of a codebook. */
export function formCounts(form: AqlmForm): { outputs: number; inputs: number; entries: number } {
  return { outputs: form.n / form.outGroup, inputs: form.k / form.inGroup, entries: 2 ** form.bits };
}

/** InvalidArgumentError for what are no weights of AQLM. */
export function checkWeights(weights: AqlmForm & { readonly codes: unknown; readonly vectors: unknown }): void {
  if (!weights || !(weights.n >= 1) || !ArrayBuffer.isView(weights.codes) || !ArrayBuffer.isView(weights.vectors))
    throw new InvalidArgumentError("weights: expected sizes, codes, vectors and scales of AQLM");
}

/** UnsupportedError for a variant that no kernel knows, ShapeError for sizes that are empty or not whole groups. */
export function checkForm(where: string, form: AqlmForm): void {
  const { n, k, codebooks, bits, inGroup, outGroup } = form;
  const known = (name: string, value: number, max: number) => {
    if (!Number.isInteger(value) || value < 1 || value > max)
      throw new UnsupportedError(`${where}: expected AQLM weights with ${name} of 1..${max} but found ${value}`);
  };
  known("num_codebooks", codebooks, CODEBOOKS_MAX);
  known("nbits_per_codebook", bits, BITS_MAX);
  known("in_group_size", inGroup, GROUP_MAX);
  known("out_group_size", outGroup, GROUP_MAX);
  if (inGroup % 8 !== 0)
    throw new UnsupportedError(`${where}: expected an in_group_size divisible by 8 but found ${inGroup}`);
  if (!(n >= 1 && k >= 1))
    throw new ShapeError(`${where}: expected AQLM weights of at least [1, 1] but found [${n}, ${k}]`);
  if (k % inGroup !== 0 || n % outGroup !== 0)
    throw new ShapeError(
      `${where}: expected in groups of ${inGroup} and out groups of ${outGroup} to divide [${n}, ${k}]`,
    );
}

/** An array for `count` codes. */
export function codeArray(bits: number, count: number): Uint8Array | Uint16Array {
  return bits <= 8 ? new Uint8Array(count) : new Uint16Array(count);
}

/** Bits that a weight takes, codebooks and scales included. */
export function aqlmBitsPerWeight(form: AqlmForm): number {
  if (!(form?.n >= 1)) throw new ShapeError("form: expected sizes n and k, codebooks, bits and groups of AQLM weights");
  const { outputs, inputs, entries } = formCounts(form);
  const codeBits = outputs * inputs * form.codebooks * form.bits;
  const vectorBits = 16 * form.codebooks * entries * form.outGroup * form.inGroup;
  return (codeBits + vectorBits + 16 * outputs) / (form.n * form.k);
}
