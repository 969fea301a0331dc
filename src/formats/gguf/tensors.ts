/** A tensor source over a GGUF file: floats as stored, block formats dequantized, or low-bit where a packed layout fits. */
import type { ByteSource } from "../../byte-source.ts";
import { byteSize, type DType, viewOf } from "../../dtype.ts";
import { InvalidArgumentError, InvalidFileError, UnsupportedError } from "../../errors.ts";
import { f32ToF16 } from "../../half.ts";
import type { QuantizedWeights, ScaleDType } from "../../quantized.ts";
import { elementCount, type Tensor } from "../../tensor.ts";
import { quote } from "../json.ts";
import type { LowBitTensor, OpenTensors } from "../tensor-source.ts";
import { type Block, type BlockFormat, emptyBlock } from "./block-format.ts";
import { blockFormats, dequantizeBlocks } from "./blocks.ts";
import type { GgufHeader, GgufTensor } from "./header.ts";
import { largeTwoBits } from "./small-blocks.ts";

/** Storage types of plain numbers. */
const plainTypes = new Map<number, { readonly name: string; readonly dtype: DType }>([
  [0, { name: "F32", dtype: "f32" }],
  [1, { name: "F16", dtype: "f16" }],
  [30, { name: "BF16", dtype: "bf16" }],
  [26, { name: "I32", dtype: "i32" }],
  [27, { name: "I64", dtype: "i64" }],
]);

/** Names of unsupported types, for messages. */
const otherTypes: Readonly<Record<number, string>> = {
  9: "Q8_1",
  15: "Q8_K",
  24: "I8",
  25: "I16",
  28: "F64",
};

/** Place and type of one tensor in the file. */
interface Stored {
  readonly tensor: GgufTensor;
  readonly start: number;
  /** Bytes of a row of the leading dimension; of the whole tensor for vectors. */
  readonly rowBytes: number;
  readonly dtype: DType;
  readonly format: BlockFormat | null;
}

export interface GgufTensors extends OpenTensors {
  /** Name of the storage type, such as "Q4_K". */
  storedType(name: string): string;
  /** The tensor's quantized weights; null when its format has no exact counterpart here. */
  lowBit(name: string): LowBitTensor | null;
}

/** The file's tensors by their own names. An unsupported type is an error only when such a tensor is read. */
export function ggufTensors(source: ByteSource, header: GgufHeader): GgufTensors {
  const { name: file, size } = source;
  const tensors = new Map(header.tensors.map((tensor) => [tensor.name, tensor]));
  const formats = hasLargeTwoBits(header, size)
    ? blockFormats.map((format) => (format.id === largeTwoBits.id ? largeTwoBits : format))
    : blockFormats;

  const stored = (name: string): Stored => {
    const tensor = tensors.get(name);
    if (!tensor) throw new InvalidFileError(file, `has no tensor ${quote(name)} among its ${tensors.size}`);
    const format = formats.find(({ id }) => id === tensor.type) ?? null;
    const plain = plainTypes.get(tensor.type);
    if (!format && !plain) throw unsupported(file, tensor);
    const columns = tensor.shape.at(-1) ?? 1;
    if (format && columns % format.size !== 0)
      throw new InvalidFileError(file, `tensor ${quote(name)}: ${columns} columns are no blocks of ${format.size}`);
    const columnBytes = format ? (columns / format.size) * format.bytes : columns * byteSize(plain!.dtype);
    const rowBytes = columnBytes * elementCount(tensor.shape.slice(1, -1));
    const start = header.dataStart + tensor.offset;
    const bytes = tensor.shape.length > 1 ? rowBytes * tensor.shape[0]! : columnBytes;
    if (start + bytes > size)
      throw new InvalidFileError(
        file,
        `tensor ${quote(name)} ends at ${start + bytes}, after the file's ${size} bytes`,
      );
    return { tensor, start, rowBytes, format, dtype: plain?.dtype ?? "f32" };
  };
  const load = async (item: Stored, shape: readonly number[], at: number, length: number): Promise<Tensor> => {
    const bytes = await source.read(item.start + at, length);
    const count = elementCount(shape);
    if (!item.format) {
      const whole = bytes.byteOffset % 8 === 0 ? bytes : new Uint8Array(bytes);
      return { dtype: item.dtype, shape, data: viewOf(item.dtype, whole.buffer, whole.byteOffset, count) };
    }
    const data = new Float32Array(count);
    dequantizeBlocks(item.format, bytes, data);
    return { dtype: "f32", shape, data };
  };
  return {
    names: [...tensors.keys()],
    has: (name) => tensors.has(name),
    info(name) {
      const { dtype, tensor } = stored(name);
      return { dtype, shape: tensor.shape };
    },
    storedType: (name) => stored(name).format?.name ?? plainTypes.get(tensors.get(name)!.type)!.name,
    async read(name) {
      const item = stored(name);
      const { shape } = item.tensor;
      return load(item, shape, 0, shape.length > 1 ? item.rowBytes * shape[0]! : item.rowBytes);
    },
    async readRows(name, firstRow, rowCount) {
      const item = stored(name);
      const [rows, ...rest] = item.tensor.shape;
      const whole = Number.isSafeInteger(firstRow) && Number.isSafeInteger(rowCount) && firstRow >= 0 && rowCount >= 0;
      if (rows === undefined || rest.length === 0 || !whole || firstRow + rowCount > rows)
        throw new InvalidArgumentError(
          `readRows: tensor ${quote(name)} [${item.tensor.shape}] has no rows ${firstRow} to ${firstRow + rowCount}`,
        );
      return load(item, [rowCount, ...rest], firstRow * item.rowBytes, rowCount * item.rowBytes);
    },
    lowBit(name) {
      const { tensor, format, start, rowBytes: leadingBytes } = stored(name);
      const { shape } = tensor;
      if (!format || format.isLattice || shape.length < 2 || shape.length > 3) return null;
      // The matrices of a stack are treated as rows of one matrix.
      const n = elementCount(shape.slice(0, -1));
      const rowBytes = (leadingBytes * shape[0]!) / n;
      const spec = specOf(format, [n, shape.at(-1)!]);
      const read = (first: number, count: number) => source.read(start + first * rowBytes, count * rowBytes);
      const rows = async (first: number, count: number) =>
        integers(format, { ...spec, n: count }, await read(first, count));
      const found = { ...factsOf(format), spec, rows };
      if (!format.hasMinima) return found;
      const { k, scaleDType: dtype } = spec;
      const minimaOf = async (first: number, count: number) =>
        minima(format, { n: count, k, dtype }, await read(first, count));
      return { ...found, minima: { dtype, rows: minimaOf } };
    },
    close: () => source.close(),
  };
}

function unsupported(file: string, { name, type }: GgufTensor): UnsupportedError {
  const known = [...plainTypes.values(), ...blockFormats].map((format) => format.name).join(", ");
  return new UnsupportedError(
    `${file}: tensor ${quote(name)} is stored as ${otherTypes[type] ?? `type ${type}`}, which is not supported, only ${known}`,
  );
}

/**
 * Whether the file's Q2_0 blocks have 128 weights, as before the format changed to 64. If so, each tensor takes less space, up to
 * the next tensor, than blocks of 64 would. The last tensor ends with the file, which may be truncated, so it counts only if
 * there is no other Q2_0 tensor.
 */
function hasLargeTwoBits({ tensors, dataStart }: GgufHeader, fileSize: number): boolean {
  const offsets = tensors.map(({ offset }) => offset).toSorted((a, b) => a - b);
  const twoBits = tensors.filter(({ type }) => type === largeTwoBits.id);
  const followed = twoBits.filter(({ offset }) => offset < offsets.at(-1)!);
  const rooms = (followed.length > 0 ? followed : twoBits).map(({ offset, shape }) => {
    const end = offsets.find((other) => other > offset) ?? fileSize - dataStart;
    return { room: end - offset, needed: (elementCount(shape) / 64) * 18 };
  });
  return (
    rooms.some(({ room, needed }) => room < needed) &&
    !rooms.some(({ room, needed }) => room >= needed && needed > 2048)
  );
}

/** The weight spec of a format. Integers of formats with minima begin at 0: their zero point is the lowest signed integer. */
function specOf(
  { bits, groupSize, levels, halfScales, hasMinima, zero }: BlockFormat,
  [n, k]: readonly [number, number],
) {
  const scaleDType = halfScales ? ("f16" as const) : ("f32" as const);
  return { bits, n, k, groupSize, hasZeros: hasMinima || zero !== 0, hasLevels: levels !== null, scaleDType };
}

/** Facts about a tensor's weights that are known without reading it. */
function factsOf({ name, levels, factored }: BlockFormat): Pick<LowBitTensor, "stored" | "levels" | "factored"> {
  return { stored: name, ...(levels && { levels }), ...(factored && { factored }) };
}

/** Decodes blocks one after the other; `take` copies what it needs. */
function eachBlock(format: BlockFormat, data: Uint8Array, take: (block: Block, index: number) => void): void {
  const block = emptyBlock(format);
  for (let at = 0, index = 0; at < data.length; at += format.bytes, index++) {
    format.decode(data, at, block);
    take(block, index);
  }
}

/** Reads integers and scales as stored, with the factors of factored scales. */
function integers(format: BlockFormat, spec: LowBitTensor["spec"], data: Uint8Array): QuantizedWeights {
  const { size, bits, groupSize, levels, hasMinima, factored } = format;
  const lowest = -(1 << (bits - 1));
  const zero = hasMinima ? lowest : format.zero;
  const qvals = new Int8Array(spec.n * spec.k);
  const scales = new Float32Array(qvals.length / groupSize);
  const superSize = factored === "e4m3" ? spec.k : size;
  const superScales = factored ? new Float32Array(qvals.length / superSize) : undefined;
  const superMinima = factored && hasMinima ? new Float32Array(qvals.length / size) : undefined;
  eachBlock(format, data, (block, index) => {
    qvals.set(block.q, index * size);
    scales.set(block.scales, (index * size) / groupSize);
    if (superScales) superScales[Math.floor((index * size) / superSize)] = block.factors[0]!;
    if (superMinima) superMinima[index] = block.factors[1]!;
  });
  if (hasMinima) for (let i = 0; i < qvals.length; i++) qvals[i]! += lowest;
  const zeros = spec.hasZeros ? new Int8Array(scales.length).fill(zero) : null;
  const factors = { ...(superScales && { superScales }), ...(superMinima && { superMinima }) };
  return { ...spec, qvals, scales, zeros, levels, ...factors };
}

/** Minima of the blocks [n, groups]. */
function minima(
  format: BlockFormat,
  { n, k, dtype }: { n: number; k: number; dtype: ScaleDType },
  data: Uint8Array,
): Tensor {
  const { size, groupSize } = format;
  const groups = k / groupSize;
  const values = new Float32Array(n * groups);
  eachBlock(format, data, (block, index) => values.set(block.minima, (index * size) / groupSize));
  return { dtype, shape: [n, groups], data: dtype === "f16" ? Uint16Array.from(values, f32ToF16) : values };
}
