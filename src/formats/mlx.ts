/**
 * MLX's quantized matrices in safetensors: integers packed in 32-bit words, with a scale and a bias for each group along
 * the columns; a weight is scale * integer + bias. config.json says bits and group size.
 */
import { InvalidFileError, ShapeError, UnsupportedError } from "../errors.ts";
import type { QuantizedWeights, WeightSpec } from "../quantized.ts";
import { isSameShape, toFloat32 } from "../tensor.ts";
import { type ComputedMatrix, withComputed } from "./computed-tensors.ts";
import { isObject, type JsonObject } from "./json.ts";
import type { OpenTensors } from "./tensor-source.ts";

interface Packing {
  readonly bits: number;
  readonly groupSize: number;
}

/** `tensors` with packed matrices as matrices, when the config has MLX's `quantization`. */
export function withMlx(file: string, tensors: OpenTensors, config: JsonObject): OpenTensors {
  const { quantization } = config;
  if (!isObject(quantization)) return tensors;
  const modules = tensors.names
    .filter((name) => name.endsWith(".scales") && tensors.has(name.replace(/scales$/, "biases")))
    .map((name) => name.slice(0, -".scales".length));
  const matrices = modules.map((module) => {
    const own = quantization[module];
    return mlxMatrix(file, module, tensors, packingOf(file, module, isObject(own) ? own : quantization));
  });
  return withComputed(tensors, matrices);
}

function packingOf(file: string, module: string, { bits, group_size: groupSize, mode }: JsonObject): Packing {
  if (mode !== undefined && mode !== "affine")
    throw new UnsupportedError(
      `${file}: quantization mode "${String(mode)}" of ${module} is not supported, only affine`,
    );
  const isSize = (value: unknown): value is number => Number.isInteger(value) && (value as number) > 0;
  if (!isSize(bits) || bits > 8 || !isSize(groupSize))
    throw new InvalidFileError(file, `quantization of ${module}: expected bits 1 to 8 and a group_size`);
  return { bits, groupSize };
}

function mlxMatrix(file: string, module: string, tensors: OpenTensors, { bits, groupSize }: Packing): ComputedMatrix {
  const [name, scales, biases] = [`${module}.weight`, `${module}.scales`, `${module}.biases`];
  const { dtype, shape } = tensors.info(name);
  const [n = 0, words = 0] = shape;
  const columns = (32 * words) / bits;
  const groups = columns / groupSize;
  for (const part of [scales, biases])
    if (!isSameShape(tensors.info(part).shape, [n, groups]))
      throw new ShapeError(
        `${file}, tensor ${part}: expected [${n},${groups}] but found [${tensors.info(part).shape}]`,
      );
  if (dtype !== "u32" || shape.length !== 2 || !Number.isInteger(columns))
    throw new ShapeError(
      `${file}, tensor ${name}: expected 32-bit words of ${bits}-bit integers but found ${dtype} [${shape}]`,
    );
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

/** The integers less 2^(bits-1), and that as their zero points: they are stored from 0 on. */
function integers(spec: WeightSpec, packed: Uint32Array, scales: Float32Array): QuantizedWeights {
  const { n, k, bits } = spec;
  const lowest = -(1 << (bits - 1));
  const qvals = new Int8Array(n * k);
  for (let row = 0, i = 0; row < n; row++)
    for (let c = 0; c < k; c++, i++) qvals[i] = integerAt(packed, row * (packed.length / n), c, bits) + lowest;
  return { ...spec, qvals, scales, zeros: new Int8Array(scales.length).fill(lowest), levels: null };
}

/** Integer `c` of a stream of bits that begins at word `start`, lowest bits first. */
function integerAt(packed: Uint32Array, start: number, c: number, bits: number): number {
  const bit = c * bits;
  const word = start + (bit >> 5);
  const shift = bit & 31;
  const low = packed[word]! >>> shift;
  const high = shift + bits > 32 ? packed[word + 1]! << (32 - shift) : 0;
  return (low | high) & ((1 << bits) - 1);
}
