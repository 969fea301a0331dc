/**
 * Reads MLX's quantized matrices in safetensors: codes packed in 32-bit words, and a scale for each group of columns. In mode
 * "affine", weight = scale * integer + bias; in the other modes codes are small floats, and scales are bytes of e8m0 or e4m3.
 * config.json gives mode, bits and group size.
 */
import { InvalidFileError, ShapeError, UnsupportedError } from "../errors.ts";
import type { QuantizedWeights, WeightSpec } from "../quantized.ts";
import { bytesOf, isSameShape, toFloat32 } from "../tensor.ts";
import { type ComputedMatrix, withComputed } from "./computed-tensors.ts";
import { isObject, type JsonObject } from "./json.ts";
import { float4Matrix } from "./quantized/float4.ts";
import { float8Values } from "./quantized/small-floats.ts";
import type { OpenTensors } from "./tensor-source.ts";

/** Bits, group size and scale type of the floating-point modes. */
const floatModes = {
  mxfp4: { bits: 4, groupSize: 32, scales: "F8_E8M0" },
  mxfp8: { bits: 8, groupSize: 32, scales: "F8_E8M0" },
  nvfp4: { bits: 4, groupSize: 16, scales: "F8_E4M3" },
} as const;

type FloatMode = keyof typeof floatModes;

interface Packing {
  readonly mode: "affine" | FloatMode;
  readonly bits: number;
  readonly groupSize: number;
}

/** The source `tensors` with packed matrices dequantized, when the config has MLX's `quantization`. */
export function withMlx(file: string, tensors: OpenTensors, config: JsonObject): OpenTensors {
  const { quantization } = config;
  if (!isObject(quantization)) return tensors;
  const modules = tensors.names
    .filter((name) => name.endsWith(".scales") && tensors.has(name.replace(/scales$/, "weight")))
    .map((name) => name.slice(0, -".scales".length));
  const matrices = modules.map((module) => {
    const own = quantization[module];
    const packing = packingOf(file, module, isObject(own) ? own : quantization);
    const { mode } = packing;
    return mode === "affine" ? affineMatrix(file, module, tensors, packing) : floatMatrix(file, module, tensors, mode);
  });
  return withComputed(tensors, matrices);
}

function packingOf(file: string, module: string, settings: JsonObject): Packing {
  const { bits, group_size: groupSize, mode = "affine" } = settings;
  const isFloat = typeof mode === "string" && Object.hasOwn(floatModes, mode);
  if (mode !== "affine" && !isFloat)
    throw new UnsupportedError(
      `${file}: quantization mode "${String(mode)}" of ${module} is not supported, only affine, ${Object.keys(floatModes).join(", ")}`,
    );
  if (isFloat) {
    const own = floatModes[mode as FloatMode];
    if ((bits ?? own.bits) !== own.bits || (groupSize ?? own.groupSize) !== own.groupSize)
      throw new InvalidFileError(
        file,
        `quantization of ${module}: expected ${own.bits} bits in groups of ${own.groupSize} for mode ${mode}`,
      );
    return { mode: mode as FloatMode, bits: own.bits, groupSize: own.groupSize };
  }
  const isSize = (value: unknown): value is number => Number.isInteger(value) && (value as number) > 0;
  if (!isSize(bits) || bits > 8 || !isSize(groupSize))
    throw new InvalidFileError(file, `quantization of ${module}: expected bits 1 to 8 and a group_size`);
  return { mode: "affine", bits, groupSize };
}

/** Shape of a module, from its packed words, checked against its tensors of group values. */
function shapeOf(
  file: string,
  tensors: OpenTensors,
  { module, bits, groupSize, groups }: Omit<Packing, "mode"> & { module: string; groups: readonly string[] },
): readonly [number, number] {
  const name = `${module}.weight`;
  const { dtype, shape } = tensors.info(name);
  const [n = 0, words = 0] = shape;
  const columns = (32 * words) / bits;
  for (const part of groups)
    if (!isSameShape(tensors.info(part).shape, [n, columns / groupSize]))
      throw new ShapeError(
        `${file}, tensor ${part}: expected [${n},${columns / groupSize}] but found [${tensors.info(part).shape}]`,
      );
  if (dtype !== "u32" || shape.length !== 2 || !Number.isInteger(columns))
    throw new ShapeError(
      `${file}, tensor ${name}: expected 32-bit words of ${bits}-bit integers but found ${dtype} [${shape}]`,
    );
  return [n, columns];
}

/** A matrix of e2m1 or e4m3 codes with one-byte scales. */
function floatMatrix(file: string, module: string, tensors: OpenTensors, mode: FloatMode): ComputedMatrix {
  const [name, scale] = [`${module}.weight`, `${module}.scales`];
  const { bits, groupSize, scales: scaleType } = floatModes[mode];
  const shape = shapeOf(file, tensors, { module, bits, groupSize, groups: [scale] });
  if (tensors.info(scale).dtype !== "u8")
    throw new ShapeError(`${file}, tensor ${scale}: expected bytes but found ${tensors.info(scale).dtype}`);
  const values = float8Values(scaleType)!;
  const bytes = async (first: number, count: number) => bytesOf((await tensors.readRows(name, first, count)).data);
  const scales = async (first: number, count: number) => {
    const codes = (await tensors.readRows(scale, first, count)).data as Uint8Array;
    const found = Float32Array.from(codes, (code) => values[code]!);
    const bad = found.findIndex(Number.isNaN);
    if (bad >= 0)
      throw new InvalidFileError(
        file,
        `tensor ${scale}: expected numbers but found code ${codes[bad]} from row ${first} on`,
      );
    return found;
  };
  const source = { name, shape, groupSize, stored: `MLX ${mode}`, parts: [name, scale], bytes, scales };
  if (bits === 4) return float4Matrix({ ...source, hasE4m3Scales: scaleType === "F8_E4M3" });
  const floats = float8Values("F8_E4M3")!;
  return {
    ...{ name, shape, stored: source.stored, parts: source.parts, lowBit: null },
    async rows(first, count) {
      const [codes, factors] = [await bytes(first, count), await scales(first, count)];
      const result = Float32Array.from(codes, (code, i) => floats[code]! * factors[Math.floor(i / groupSize)]!);
      const bad = result.findIndex(Number.isNaN);
      if (bad >= 0) throw new InvalidFileError(file, `tensor ${name}: expected numbers but found code ${codes[bad]}`);
      return result;
    },
  };
}

function affineMatrix(
  file: string,
  module: string,
  tensors: OpenTensors,
  { bits, groupSize }: Packing,
): ComputedMatrix {
  const [name, scales, biases] = [`${module}.weight`, `${module}.scales`, `${module}.biases`];
  const [n, columns] = shapeOf(file, tensors, { module, bits, groupSize, groups: [scales, biases] });
  const [words, groups] = [(columns * bits) / 32, columns / groupSize];
  const stored = `MLX ${bits}-bit`;
  const readPacked = async (first: number, count: number) =>
    (await tensors.readRows(name, first, count)).data as Uint32Array;
  const spec: WeightSpec = {
    ...{ bits, n, k: columns, groupSize, hasZeros: true, hasLevels: false },
    scaleDType: tensors.info(scales).dtype === "f16" ? "f16" : "f32",
  };
  const minimaDType = floatType(file, tensors, biases);
  floatType(file, tensors, scales);
  return {
    name,
    shape: [n, columns],
    stored,
    parts: [name, scales, biases],
    lowBit: {
      stored,
      spec,
      async rows(first, count) {
        const scale = toFloat32(await tensors.readRows(scales, first, count));
        return integers({ ...spec, n: count }, await readPacked(first, count), scale);
      },
      minima: { dtype: minimaDType, rows: (first, count) => tensors.readRows(biases, first, count) },
    },
    async rows(first, count) {
      const packed = await readPacked(first, count);
      const scale = toFloat32(await tensors.readRows(scales, first, count));
      const bias = toFloat32(await tensors.readRows(biases, first, count));
      const values = new Float32Array(count * columns);
      for (let row = 0; row < count; row++)
        for (let c = 0; c < columns; c++) {
          const group = row * groups + Math.floor(c / groupSize);
          values[row * columns + c] = scale[group]! * integerAt(packed, row * words, c, bits) + bias[group]!;
        }
      return values;
    },
  };
}

function floatType(file: string, tensors: OpenTensors, name: string): "f32" | "f16" | "bf16" {
  const { dtype } = tensors.info(name);
  if (dtype !== "f32" && dtype !== "f16" && dtype !== "bf16")
    throw new ShapeError(`${file}, tensor ${name}: expected f32, f16 or bf16 but found ${dtype}`);
  return dtype;
}

/** Centers the stored integers, which begin at 0: subtracts 2^(bits-1), which makes the zero points -2^(bits-1). */
function integers(spec: WeightSpec, packed: Uint32Array, scales: Float32Array): QuantizedWeights {
  const { n, k, bits } = spec;
  const lowest = -(1 << (bits - 1));
  const qvals = new Int8Array(n * k);
  for (let row = 0, i = 0; row < n; row++)
    for (let c = 0; c < k; c++, i++) qvals[i] = integerAt(packed, row * (packed.length / n), c, bits) + lowest;
  return { ...spec, qvals, scales, zeros: new Int8Array(scales.length).fill(lowest), levels: null };
}

/** Integer `c` of a bit stream that begins at word `start`, lowest bits first. */
function integerAt(packed: Uint32Array, start: number, c: number, bits: number): number {
  const bit = c * bits;
  const word = start + (bit >> 5);
  const shift = bit & 31;
  const low = packed[word]! >>> shift;
  const high = shift + bits > 32 ? packed[word + 1]! << (32 - shift) : 0;
  return (low | high) & ((1 << bits) - 1);
}
