/**
 * Reads bitsandbytes' matrices. 4-bit ones are one stream of codes, the first of two in the high bits, with a largest magnitude
 * (`absmax`) for each block of the stream, in 8 bits with double quantization; a `quant_state` tensor has the sizes as JSON.
 * int8 ones have a largest magnitude (`SCB`) for each row.
 */

import { byteSize } from "../../dtype.ts";
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import type { QuantizedWeights, WeightSpec } from "../../quantized.ts";
import { bytesOf, elementCount, isSameShape } from "../../tensor.ts";
import type { ComputedMatrix } from "../computed-tensors.ts";
import { decodeUtf8, describe, type JsonObject, parseObject } from "../json.ts";
import type { QuantizedFiles, QuantizedFormat } from "./files.ts";

const STATE = /^(.+)\.weight\.quant_state\.bitsandbytes__(\w+)$/;
const types = ["nf4", "fp4"];
/** Most bytes of a module's JSON, which has some 200. */
const STATE_MAX = 1 << 16;
const BLOCK_MAX = 1 << 20;
/** Integer that stands for a row's largest magnitude. */
const LARGEST = 127;

export const bitsAndBytes: QuantizedFormat = {
  name: "bitsandbytes",
  methods: ["bitsandbytes"],
  async read(files) {
    const matrices: ComputedMatrix[] = [];
    for (const name of files.tensors.names) {
      const [, module, type] = STATE.exec(name) ?? [];
      if (module === undefined || type === undefined) continue;
      if (!types.includes(type))
        throw new UnsupportedError(
          `${files.folder}, tensor ${name}: expected type ${types.join(" or ")} but found ${type}`,
        );
      matrices.push(await fourBits(files, module, type));
    }
    for (const module of files.modules("weight.absmax"))
      if (!types.some((type) => files.tensors.has(`${module}.weight.quant_state.bitsandbytes__${type}`)))
        files.info(`${module}.weight.quant_state.bitsandbytes__${types[0]}`, ["u8"]);
    for (const module of files.modules("weight"))
      if (files.tensors.info(`${module}.weight`).dtype === "i8") matrices.push(await eightBits(files, module));
    return matrices;
  },
};

/** Contents of a `quant_state` tensor. */
interface State {
  readonly shape: readonly [number, number];
  readonly blockSize: number;
  readonly nested: { readonly blockSize: number; readonly offset: number } | null;
}

async function stateOf(files: QuantizedFiles, name: string): Promise<State> {
  const { shape } = files.info(name, ["u8"], 1);
  if (shape[0]! > STATE_MAX) throw files.shapeError(name, `at most ${STATE_MAX} bytes of JSON`, shape);
  const what = `tensor ${name}`;
  const text = decodeUtf8(files.folder, what, (await files.tensors.read(name)).data as Uint8Array);
  const state = parseObject(files.folder, what, text);
  const fail = (field: string, expected: string, value: unknown) =>
    new InvalidFileError(files.folder, `${what}: ${field}: expected ${expected} but found ${describe(value)}`);
  const size = (field: string, from: JsonObject, most: number) => {
    const value = from[field];
    if (Number.isSafeInteger(value) && (value as number) > 0 && (value as number) <= most) return value as number;
    throw fail(field, `a whole number from 1 to ${most}`, value);
  };
  const { shape: sizes, nested_offset: offset, nested_blocksize: nested } = state;
  const isSize = (value: unknown) =>
    Number.isSafeInteger(value) && (value as number) > 0 && (value as number) < 2 ** 31;
  if (!Array.isArray(sizes) || sizes.length !== 2 || !sizes.every(isSize)) throw fail("shape", "two sizes", sizes);
  const isNested = nested !== undefined && nested !== null;
  if (isNested && !Number.isFinite(offset)) throw fail("nested_offset", "a number", offset);
  return {
    shape: sizes as unknown as readonly [number, number],
    blockSize: size("blocksize", state, BLOCK_MAX),
    nested: isNested ? { blockSize: size("nested_blocksize", state, BLOCK_MAX), offset: offset as number } : null,
  };
}

async function fourBits(files: QuantizedFiles, module: string, type: string): Promise<ComputedMatrix> {
  const name = `${module}.weight`;
  const part = (ending: string) => `${name}.${ending}`;
  const { shape, blockSize, nested } = await stateOf(files, part(`quant_state.bitsandbytes__${type}`));
  const [n, k] = shape;
  const blocks = Math.ceil((n * k) / blockSize);
  const { dtype, shape: found } = files.info(name, ["u8", "i8", "f16", "bf16", "f32"]);
  if (elementCount(found) * byteSize(dtype) !== Math.ceil((n * k) / 2))
    throw files.shapeError(name, `${Math.ceil((n * k) / 2)} bytes for [${shape}]`, found);
  files.expect(part("absmax"), nested ? ["u8"] : ["f32"], [blocks]);
  files.expect(part("quant_map"), ["f32"], [16]);
  if (nested) {
    files.expect(part("nested_absmax"), ["f32"], [Math.ceil(blocks / nested.blockSize)]);
    files.expect(part("nested_quant_map"), ["f32"], [256]);
  }
  const floats = async (ending: string, isEnd: boolean): Promise<Float32Array> => {
    const values = (await files.readWhole(module, `weight.${ending}`, isEnd)).data as Float32Array;
    const bad = values.findIndex((value) => !Number.isFinite(value));
    if (bad >= 0) throw files.valueError(part(ending), "finite numbers", `${values[bad]} at ${bad}`);
    return values;
  };
  const magnitudes = async (isEnd: boolean): Promise<Float32Array> => {
    if (!nested) return floats("absmax", isEnd);
    const stored = (await files.readWhole(module, "weight.absmax", isEnd)).data;
    const outer = await floats("nested_absmax", isEnd);
    const map = await floats("nested_quant_map", isEnd);
    // Each step is rounded to float32, as in bitsandbytes.
    return Float32Array.from(
      stored as Uint8Array,
      (code, i) => Math.fround(map[code]! * outer[Math.floor(i / nested.blockSize)]!) + nested.offset,
    );
  };
  return {
    ...{ name, shape, stored: `bitsandbytes ${type.toUpperCase()}`, lowBit: null },
    parts: files.partsOf(module, [
      "weight",
      ...["absmax", "quant_map", "nested_absmax", "nested_quant_map", `quant_state.bitsandbytes__${type}`].map(
        (ending) => `weight.${ending}`,
      ),
    ]),
    async rows(first, count) {
      const isEnd = first + count === n;
      const map = await floats("quant_map", isEnd);
      const scales = await magnitudes(isEnd);
      const codes = await codesOf(files, name, first * k, count * k);
      const result = new Float32Array(count * k);
      for (let i = 0; i < result.length; i++)
        result[i] = map[codes[i]!]! * scales[Math.floor((first * k + i) / blockSize)]!;
      const bad = result.findIndex((value) => !Number.isFinite(value));
      if (bad >= 0) throw files.valueError(part("absmax"), "finite scales", result[bad]!);
      return result;
    },
  };
}

/** Codes `first` to `first` + `count` - 1 of the stream in a tensor of any type. */
async function codesOf(files: QuantizedFiles, name: string, first: number, count: number): Promise<Uint8Array> {
  const { dtype, shape } = files.tensors.info(name);
  const rowBytes = byteSize(dtype) * elementCount(shape.slice(1));
  const begin = Math.floor(first / 2 / rowBytes);
  const end = Math.ceil((first + count) / 2 / rowBytes);
  const bytes = bytesOf((await files.tensors.readRows(name, begin, end - begin)).data);
  const codes = new Uint8Array(count);
  for (let i = 0, at = first - 2 * begin * rowBytes; i < count; i++, at++)
    codes[i] = at & 1 ? bytes[at >> 1]! & 15 : bytes[at >> 1]! >> 4;
  return codes;
}

async function eightBits(files: QuantizedFiles, module: string): Promise<ComputedMatrix> {
  const [name, scales, format] = [`${module}.weight`, `${module}.SCB`, `${module}.weight_format`] as const;
  const [n = 0, k = 0] = files.info(name, ["i8"], 2).shape;
  if (!isSameShape(files.info(scales, ["f32"]).shape, [1, n])) files.expect(scales, ["f32"], [n]);
  if (files.tensors.has(format)) {
    files.expect(format, ["u8"], [], [1]);
    const [order] = (await files.tensors.read(format)).data as Uint8Array;
    if (order !== 0) throw files.valueError(format, "0, rows in order,", order!);
  }
  const spec: WeightSpec = { bits: 8, n, k, groupSize: k, hasZeros: false, hasLevels: false, scaleDType: "f32" };
  const read = async (first: number, count: number): Promise<QuantizedWeights> => {
    const qvals = (await files.tensors.readRows(name, first, count)).data as Int8Array;
    const largest = (await files.tensors.read(scales)).data as Float32Array;
    const own = Float32Array.from({ length: count }, (_, row) => largest[first + row]! / LARGEST);
    const bad = own.findIndex((scale) => !Number.isFinite(scale));
    if (bad >= 0) throw files.valueError(scales, "finite scales", `${own[bad]} at ${first + bad}`);
    return { ...spec, n: count, qvals, scales: own, zeros: null, levels: null };
  };
  return {
    ...{
      name,
      shape: [n, k],
      stored: "bitsandbytes int8",
      parts: files.partsOf(module, ["weight", "SCB", "weight_format"]),
    },
    lowBit: { stored: "bitsandbytes int8", spec, rows: read },
    async rows(first, count) {
      const { qvals } = await read(first, count);
      const largest = (await files.tensors.read(scales)).data as Float32Array;
      const values = new Float32Array(qvals.length);
      for (let row = 0, i = 0; row < count; row++)
        for (let c = 0; c < k; c++, i++) values[i] = Math.fround(qvals[i]! * largest[first + row]!) / LARGEST;
      return values;
    },
  };
}
