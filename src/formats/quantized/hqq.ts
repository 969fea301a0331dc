/**
 * Reads HQQ's matrices from its saved state dict: `W_q` has the integers of a view of the matrix, [groups, group_size] for axis
 * 1 and [group_size, groups] for axis 0, packed along its first dimension, the first part of it in the highest bits. weight =
 * (q - zero) * scale, where both are floats; other tensors of a module give its sizes.
 */
import { byteSize } from "../../dtype.ts";
import { UnsupportedError } from "../../errors.ts";
import { groupCount, type QuantizedWeights, type WeightSpec } from "../../quantized.ts";
import { bytesOf, elementCount, toFloat32 } from "../../tensor.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import type { LowBitTensor } from "../tensor-source.ts";
import { floatTypes, type QuantizedFiles, type QuantizedFormat } from "./files.ts";

/** Bits of an integer, integers in a word, and bytes of a word. */
const packings = {
  "8bit_u8": { bits: 8, perWord: 1, bytes: 1 },
  "4bit_u8": { bits: 4, perWord: 2, bytes: 1 },
  "3bit_32": { bits: 3, perWord: 10, bytes: 4 },
  "2bit_u8": { bits: 2, perWord: 4, bytes: 1 },
  "1bit_u8": { bits: 1, perWord: 8, bytes: 1 },
} as const;

type Packing = (typeof packings)[keyof typeof packings];

export const hqq: QuantizedFormat = {
  name: "HQQ",
  methods: ["hqq"],
  async read(files) {
    const matrices: ComputedMatrix[] = [];
    for (const module of files.modules("W_q")) matrices.push(await hqqMatrix(files, module));
    return matrices;
  },
};

/** Layout of a module, from its tensors. */
interface Layout {
  readonly shape: readonly [number, number];
  readonly axis: 0 | 1;
  readonly groupSize: number;
  readonly bits: number;
  readonly packing: Packing;
  /** Shape of the view. */
  readonly view: readonly [number, number];
  /** Number of rows of packed words. */
  readonly step: number;
}

/** The value of a tensor of one element; null without the tensor. */
async function scalar(files: QuantizedFiles, name: string): Promise<number | null> {
  if (!files.tensors.has(name)) return null;
  files.expect(name, ["i32", "u8", "i64", "f32"], [], [1]);
  return Number((await files.tensors.read(name)).data[0]);
}

async function layoutOf(files: QuantizedFiles, module: string): Promise<Layout> {
  const part = (name: string) => `${module}.${name}`;
  for (const name of ["quant_scale", "quant_zero"])
    if (await scalar(files, part(name)))
      throw new UnsupportedError(
        `${files.folder}, tensor ${part(name)}: scales and zero points that are quantized themselves are not supported; quantize with quant_scale and quant_zero false`,
      );
  files.expect(part("shape"), ["i64", "i32"], [2]);
  const shape = Array.from((await files.tensors.read(part("shape"))).data as BigInt64Array, Number);
  const [n = 0, k = 0] = shape;
  if (!shape.every((size) => Number.isSafeInteger(size) && size > 0 && size < 2 ** 31))
    throw files.valueError(part("shape"), "two sizes", shape.join(", "));
  const axis = await scalar(files, part("axis"));
  if (axis !== 0 && axis !== 1) throw files.valueError(part("axis"), "0 or 1", axis ?? "none");
  const isByChannel = (await scalar(files, part("channel_wise"))) !== 0;
  const groupSize = (isByChannel ? await scalar(files, part("group_size")) : null) ?? (axis === 1 ? k : n);
  if (!Number.isSafeInteger(groupSize) || groupSize < 1 || (n * k) % groupSize !== 0)
    throw files.valueError(part("group_size"), `a divisor of ${n} x ${k}`, groupSize);
  const bits = await scalar(files, part("nbits"));
  if (bits !== null && !(bits > 0 && bits <= 8)) throw files.valueError(part("nbits"), "bits up to 8", bits);
  const packing = await packingOf(files, part("packing"), bits ?? 0);
  if (bits !== null && Math.ceil(bits) > packing.bits)
    throw files.valueError(part("nbits"), `at most ${packing.bits} bits, as packing says,`, bits);
  const view = axis === 1 ? ([(n * k) / groupSize, groupSize] as const) : ([groupSize, (n * k) / groupSize] as const);
  const step = packing.bits === 3 ? Math.ceil(view[0] / packing.perWord) : view[0] / packing.perWord;
  return {
    shape: [n, k],
    axis,
    groupSize,
    bits: Math.min(packing.bits, Math.ceil(bits ?? packing.bits)),
    packing,
    view,
    step,
  };
}

async function packingOf(files: QuantizedFiles, name: string, bits: number): Promise<Packing> {
  const byBits = bits === 3 ? "3bit_32" : bits > 4 ? "8bit_u8" : `${Math.ceil(bits)}bit_u8`;
  const known = files.tensors.has(name);
  if (known && files.info(name, ["u8"], 1).shape[0]! > 32)
    throw files.shapeError(name, "a name", files.tensors.info(name).shape);
  const found = known ? String.fromCharCode(...((await files.tensors.read(name)).data as Uint8Array)) : byBits;
  if (Object.hasOwn(packings, found)) return packings[found as keyof typeof packings];
  throw files.valueError(name, Object.keys(packings).join(", "), JSON.stringify(found));
}

async function hqqMatrix(files: QuantizedFiles, module: string): Promise<ComputedMatrix> {
  const layout = await layoutOf(files, module);
  const { shape, axis, groupSize, bits, packing, view, step } = layout;
  const [n, k] = shape;
  const [packed, scale, zero] = [`${module}.W_q`, `${module}.scale`, `${module}.zero`] as const;
  const words = files.info(packed, ["u8", "i32", "f32", "f16", "bf16"]);
  const groups = (n * k) / groupSize;
  for (const name of [scale, zero]) {
    const found = elementCount(files.info(name, floatTypes).shape);
    if (found !== groups && found !== 1)
      throw files.shapeError(name, `${groups} values, one a group,`, files.tensors.info(name).shape);
  }
  if (elementCount(words.shape) * byteSize(words.dtype) !== step * view[1] * packing.bytes)
    throw files.shapeError(packed, `${step} x ${view[1]} words of ${packing.bytes} bytes`, words.shape);
  const integers = async (isEnd: boolean) => {
    const bytes = bytesOf((await files.readWhole(module, "W_q", isEnd)).data);
    return packing.bytes === 1 ? bytes : new Uint32Array(bytes.slice().buffer);
  };
  const mask = (1 << packing.bits) - 1;
  /** The integer at a row and column of the view. */
  const at = (values: Uint8Array | Uint32Array, row: number, column: number) =>
    (values[(row % step) * view[1] + column]! >>> (packing.bits * (packing.perWord - 1 - Math.floor(row / step)))) &
    mask;
  const codes = async (first: number, count: number) => {
    const values = await integers(first + count === n);
    const result = new Uint8Array(count * k);
    for (let i = 0, index = first * k; i < result.length; i++, index++)
      result[i] = at(values, Math.floor(index / view[1]), index % view[1]);
    const bad = bits < packing.bits ? result.findIndex((code) => code >= 1 << bits) : -1;
    if (bad >= 0) throw files.valueError(packed, `integers of ${bits} bits, as nbits says,`, result[bad]!);
    return result;
  };
  const groupOf = (index: number) => (axis === 1 ? Math.floor(index / groupSize) : index % groups);
  const parameters = async (name: string) => {
    const values = toFloat32(await files.tensors.read(name));
    const bad = values.findIndex((value) => !Number.isFinite(value));
    if (bad >= 0) throw files.valueError(name, "finite numbers", `${values[bad]} at ${bad}`);
    return values.length === groups ? values : new Float32Array(groups).fill(values[0]!);
  };
  return {
    ...{ name: `${module}.weight`, shape, stored: `HQQ ${bits}-bit` },
    parts: files.tensors.names.filter((name) => name.startsWith(`${module}.`) && name !== `${module}.bias`),
    lowBit: axis === 1 && k % groupSize === 0 ? kept(layout, { codes, parameters, scale, zero }) : null,
    async rows(first, count) {
      const [q, scales, zeros] = [await codes(first, count), await parameters(scale), await parameters(zero)];
      const values = new Float32Array(q.length);
      for (let i = 0; i < q.length; i++) {
        const group = groupOf(first * k + i);
        values[i] = Math.fround(q[i]! - zeros[group]!) * scales[group]!;
      }
      return values;
    },
  };
}

interface Reads {
  readonly scale: string;
  readonly zero: string;
  codes(first: number, count: number): Promise<Uint8Array>;
  parameters(name: string): Promise<Float32Array>;
}

/** The matrix as q * scale - zero * scale: integers and scales as stored, with a minimum -zero * scale for each group. */
function kept({ shape: [n, k], bits, groupSize }: Layout, { codes, parameters, scale, zero }: Reads): LowBitTensor {
  const spec: WeightSpec = { bits, n, k, groupSize, hasZeros: true, hasLevels: false, scaleDType: "f32" };
  const perRow = groupCount(spec);
  const lowest = -(1 << (bits - 1));
  const slice = (values: Float32Array, first: number, count: number) =>
    values.slice(first * perRow, (first + count) * perRow);
  return {
    stored: `HQQ ${bits}-bit`,
    spec,
    async rows(first, count): Promise<QuantizedWeights> {
      const stored = await codes(first, count);
      const qvals = new Int8Array(stored.length);
      for (let i = 0; i < qvals.length; i++) qvals[i] = stored[i]! + lowest;
      const scales = slice(await parameters(scale), first, count);
      return { ...spec, n: count, qvals, scales, zeros: new Int8Array(scales.length).fill(lowest), levels: null };
    },
    minima: {
      dtype: "f32",
      async rows(first, count) {
        const scales = slice(await parameters(scale), first, count);
        const zeros = slice(await parameters(zero), first, count);
        return { dtype: "f32", shape: [count, perRow], data: scales.map((value, i) => -value * zeros[i]!) };
      },
    },
  };
}
