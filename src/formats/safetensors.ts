/** Reads safetensors files: the header once, then each tensor or range of rows by one positioned read. */
import type { ByteSource } from "../byte-source.ts";
import { byteSize, type DType, viewOf } from "../dtype.ts";
import { InvalidArgumentError, InvalidFileError, UnsupportedError } from "../errors.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import { quote } from "./json.ts";
import { headerLength, PREFIX_BYTES, parseHeader, type StoredTensor } from "./safetensors-header.ts";
import type { OpenTensors, TensorInfo } from "./tensor-source.ts";

interface StoredTensorInfo extends TensorInfo {
  /** Offset of the tensor in the file in bytes; not necessarily a multiple of the element size. */
  readonly byteOffset: number;
  /** Bytes of the tensor. */
  readonly byteLength: number;
}

/** One open safetensors file. `names` is in the order of the data, so that reading in that order is sequential. */
export interface TensorFile extends OpenTensors {
  /** Type, shape and offset of a tensor; InvalidFileError when there is none of this name. */
  info(name: string): StoredTensorInfo;
  /** Strings of `__metadata__`; empty when the file has none. */
  readonly metadata: ReadonlyMap<string, string>;
}

/**
 * Reads and checks the header. InvalidFileError for any violation of the format, gaps and overlaps included. The result's
 * `close` closes `source`; on an error the source stays open. Format: https://github.com/huggingface/safetensors
 */
export async function openSafetensors(source: ByteSource): Promise<TensorFile> {
  const file = source.name;
  if (source.size < PREFIX_BYTES)
    throw new InvalidFileError(file, `expected a safetensors file but it has only ${source.size} bytes`);
  const length = headerLength(file, await source.read(0, PREFIX_BYTES), source.size);
  const dataStart = PREFIX_BYTES + length;
  const header = parseHeader(file, await source.read(PREFIX_BYTES, length), source.size - dataStart);
  const stored = new Map(header.tensors.map((tensor) => [tensor.name, tensor]));

  const info = (name: string): StoredTensorInfo => {
    const tensor = stored.get(name);
    if (!tensor) throw new InvalidFileError(file, `has no tensor ${quote(name)} among its ${stored.size}`);
    return {
      dtype: readableType(file, tensor),
      shape: tensor.shape,
      byteOffset: dataStart + tensor.begin,
      byteLength: tensor.end - tensor.begin,
    };
  };
  const load = async (dtype: DType, shape: readonly number[], byteOffset: number): Promise<Tensor> => {
    const count = elementCount(shape);
    const bytes = aligned(await source.read(byteOffset, count * byteSize(dtype)), dtype);
    return { dtype, shape, data: viewOf(dtype, bytes.buffer, bytes.byteOffset, count) };
  };
  return {
    names: [...stored.keys()],
    metadata: header.metadata,
    has: (name) => stored.has(name),
    info,
    async read(name) {
      const { dtype, shape, byteOffset } = info(name);
      return load(dtype, shape, byteOffset);
    },
    async readRows(name, firstRow, rowCount) {
      const { dtype, shape, byteOffset } = info(name);
      checkRows(name, shape, firstRow, rowCount);
      const row = shape.slice(1);
      return load(dtype, [rowCount, ...row], byteOffset + firstRow * elementCount(row) * byteSize(dtype));
    },
    storedType(name) {
      const tensor = stored.get(name);
      return tensor && tensor.dtype === null ? tensor.storedType : info(name).dtype;
    },
    close: () => source.close(),
  };
}

const bytesAsFloats: ReadonlySet<string> = new Set(["F8_E4M3", "F8_E5M2", "F8_E8M0"]);

/** The type that a tensor is read as. 8-bit floats are read as bytes; `storedType` says what they are. */
function readableType(file: string, { name, dtype, storedType }: StoredTensor): DType {
  if (dtype) return dtype;
  if (bytesAsFloats.has(storedType)) return "u8";
  throw new UnsupportedError(
    `${file}: tensor ${quote(name)} is stored as ${storedType}, which cannot be read; ` +
      "use a checkpoint in float32, float16 or bfloat16",
  );
}

/** The bytes, copied unless they are aligned for an array of `dtype`. */
function aligned(bytes: Uint8Array, dtype: DType): Uint8Array {
  return bytes.byteOffset % byteSize(dtype) === 0 ? bytes : new Uint8Array(bytes);
}

function checkRows(name: string, shape: readonly number[], firstRow: number, rowCount: number): void {
  const rows = shape[0];
  if (rows === undefined) throw new InvalidArgumentError(`readRows: tensor ${quote(name)} is a scalar and has no rows`);
  const whole = Number.isSafeInteger(firstRow) && Number.isSafeInteger(rowCount) && firstRow >= 0 && rowCount >= 0;
  if (!whole || firstRow + rowCount > rows)
    throw new InvalidArgumentError(
      `readRows: tensor ${quote(name)} has ${rows} rows; rows ${firstRow} to ${firstRow + rowCount} are not all in it`,
    );
}
