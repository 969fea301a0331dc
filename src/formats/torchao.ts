/**
 * Reads and writes TorchAO's quantized tensors in safetensors (torchao.prototype.safetensors): integers, scales and zero points
 * of an `IntxUnpackedToInt8Tensor` are separate tensors, and the file's metadata describes them.
 */
import { InvalidFileError, ShapeError, UnsupportedError } from "../errors.ts";
import { type ActivationKind, dequantize, groupCount, type QuantizedWeights, type WeightSpec } from "../quantized.ts";
import { isSameShape, toFloat32 } from "../tensor.ts";
import { type ComputedMatrix, withComputed } from "./computed-tensors.ts";
import { describe, isObject, type JsonObject, parseObject } from "./json.ts";
import type { TensorEntry } from "./safetensors-writer.ts";
import type { OpenTensors } from "./tensor-source.ts";

const INTX = "IntxUnpackedToInt8Tensor";
/** Tensor classes whose bytes are in the order of a specific kernel. */
const OPAQUE = /Opaque|TilePacked|Preshuffled|PlainInt32|Marlin/;
/** Tensor classes that version 1 of TorchAO's configurations makes, which TorchAO itself has not loaded since torch 2.11. */
const VERSION_1 = /^torchao\.dtypes\.|AffineQuantizedTensor|LinearActivationQuantizedTensor/;
const INT8_ACTIVATIONS = "int8_asym_per_token";

/** The source `tensors` with the quantized matrices that `metadata` describes dequantized. */
export function withTorchao(
  file: string,
  tensors: OpenTensors,
  metadata: ReadonlyMap<string, string> | undefined,
): OpenTensors {
  const matrices: ComputedMatrix[] = [];
  for (const [name, text] of metadata ?? []) {
    if (!text.startsWith("{") || tensors.has(name)) continue;
    const fields = parseObject(file, `metadata of ${name}`, text);
    if (fields._type === "Tensor") continue;
    if (fields._type !== INTX)
      throw new UnsupportedError(
        `${file}: tensor ${name} is a ${describe(fields._type)}, only ${INTX} is supported${adviceOn(String(fields._type))}`,
      );
    matrices.push(intxMatrix(file, name, tensors, isObject(fields._data) ? fields._data : {}));
  }
  return withComputed(tensors, matrices);
}

/** What to do about a tensor of a class that is not read, by its name; empty where nothing is known. */
export function adviceOn(type: string): string {
  if (VERSION_1.test(type))
    return "; that type is of version 1 of TorchAO's configurations: quantize the float weights again with version 2";
  if (OPAQUE.test(type))
    return "; that type is packed for kernels of one machine: save the model with intx_packing_format UNPACKED_TO_INT8, or take its float weights";
  return "";
}

/** Number of bits of a target type: "int4" → 4. */
function bitsOf(file: string, name: string, { target_dtype: type }: JsonObject): number {
  const text = isObject(type) ? type._data : type;
  const bits = /^(?:torch\.)?int([1-8])$/.exec(String(text))?.[1];
  if (!bits) throw new InvalidFileError(file, `metadata of ${name}: expected target_dtype int1 to int8`);
  return Number(bits);
}

const divides = (size: number, whole: number) => Number.isInteger(size) && size > 0 && whole % size === 0;

function intxMatrix(file: string, name: string, tensors: OpenTensors, data: JsonObject): ComputedMatrix {
  const [qdata, scale, zero] = partNames(name);
  const [n = 0, k = 0] = tensors.info(qdata).shape;
  const scaleInfo = tensors.info(scale);
  const bits = bitsOf(file, name, data);
  const block = Array.isArray(data.block_size) ? data.block_size : [];
  const groupSize = Number(block[1]);
  if (tensors.info(qdata).shape.length !== 2 || block.length !== 2 || block[0] !== 1 || !divides(groupSize, k))
    throw new UnsupportedError(
      `${file}: tensor ${name}: only matrices with blocks [1, a divisor of ${k}] are supported`,
    );
  const spec: WeightSpec = {
    bits,
    n,
    k,
    groupSize,
    hasZeros: true,
    hasLevels: false,
    scaleDType: scaleInfo.dtype === "f16" ? "f16" : "f32",
  };
  const groups = groupCount(spec);
  for (const field of [scale, zero])
    if (!isSameShape(tensors.info(field).shape, [n, groups]))
      throw new ShapeError(
        `${file}, tensor ${field}: expected [${n},${groups}] but found [${tensors.info(field).shape}]`,
      );
  const read = async (first: number, count: number): Promise<QuantizedWeights> => {
    const qvals = await tensors.readRows(qdata, first, count);
    const scales = toFloat32(await tensors.readRows(scale, first, count));
    const zeros = await tensors.readRows(zero, first, count);
    if (qvals.dtype !== "i8" || zeros.dtype !== "i8")
      throw new ShapeError(`${file}, tensor ${name}: expected int8 integers and zero points`);
    checkRange(file, name, qvals.data as Int8Array, bits);
    return { ...spec, n: count, qvals: qvals.data as Int8Array, scales, zeros: zeros.data as Int8Array, levels: null };
  };
  return {
    name,
    shape: [n, k],
    stored: `${INTX} int${bits}`,
    parts: [qdata, scale, zero],
    lowBit: {
      stored: `${INTX} int${bits}`,
      spec,
      activations: activationsOf(file, name, data),
      rows: read,
    },
    rows: async (first, count) => dequantize(await read(first, count)),
  };
}

/** Kind of activations. UnsupportedError for an unknown one. */
function activationsOf(file: string, name: string, { activation_quantization: kind = null }: JsonObject) {
  if (kind === null) return "float";
  if (kind === INT8_ACTIVATIONS) return "int8_per_token";
  throw new UnsupportedError(
    `${file}: metadata of ${name}: expected activation_quantization null or "${INT8_ACTIVATIONS}" but found ${describe(kind)}`,
  );
}

/** InvalidFileError for integers that exceed their bits and would be cut when packed. */
function checkRange(file: string, name: string, values: Int8Array, bits: number): void {
  const limit = 2 ** (bits - 1);
  for (const value of values)
    if (value < -limit || value >= limit)
      throw new InvalidFileError(file, `tensor ${name} holds ${value}, which is no integer of ${bits} bits`);
}

/** Names of the tensors of a quantized parameter: "a.weight" → "a._weight_qdata" and others. */
function partNames(name: string): readonly [string, string, string] {
  const [, module, parameter] = /^(?:(.*)\.)?([^.]+)$/.exec(name)!;
  const part = (field: string) => `${module === undefined ? "" : `${module}.`}_${parameter}_${field}`;
  return [part("qdata"), part("scale"), part("zero_point")];
}

/** The three tensors of a matrix to write. Each calls `load` again, since files have all scales before all integers. */
export function intxEntries(name: string, spec: WeightSpec, load: () => Promise<QuantizedWeights>): TensorEntry[] {
  const [qdata, scale, zero] = partNames(name);
  const groups = groupCount(spec);
  const { n, k } = spec;
  return [
    { name: qdata, dtype: "i8", shape: [n, k], data: async () => (await load()).qvals },
    { name: scale, dtype: "f32", shape: [n, groups], data: async () => (await load()).scales },
    {
      name: zero,
      dtype: "i8",
      shape: [n, groups],
      data: async () => (await load()).zeros ?? new Int8Array(n * groups),
    },
  ];
}

/** The file's metadata about a matrix. */
export function intxMetadata({ bits, groupSize, k }: WeightSpec, activations: ActivationKind): string {
  const type = (data: string) => ({ _type: "torch.dtype", _data: data });
  return JSON.stringify({
    _type: INTX,
    _data: {
      target_dtype: type(`int${bits}`),
      block_size: [1, Math.min(groupSize, k)],
      dtype: type("float32"),
      activation_quantization: activations === "float" ? null : INT8_ACTIVATIONS,
    },
    _tensor_data_names: ["qdata", "scale", "zero_point"],
  });
}
