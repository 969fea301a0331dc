/**
 * Reading of `.ptd` files: named tensors that programs leave outside, so that several can share them (ExecuTorch's
 * extension/flat_tensor/serialize/flat_tensor.fbs).
 *
 *     0 u32 root | 4 "FT01" | 8 "FH01" | 12 u32 length = 40
 *     16 u64 FlatBuffer offset | 24 u64 FlatBuffer bytes | 32 u64 segment base | 40 u64 segment bytes
 */
import type { ByteSource } from "../byte-source.ts";
import type { DType } from "../dtype.ts";
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { type FlatTable, rootTable } from "./flatbuffer-reader.ts";
import type { Constant } from "./program.ts";
import * as schema from "./schema.ts";
import { alignmentOf, checkSegments, dataOf, noSegment } from "./segments.ts";

const HEADER_END = 48;
const HEADER_LENGTH = 40;
/** Most bytes of the tables, as in programs. */
const TABLE_BYTES_MAX = 1 << 26;

/** A tensor in a file; `spec` is null for data that is no tensor. */
export interface NamedTensor extends Constant {
  readonly file: string;
  readonly spec: { readonly dtype: DType | undefined; readonly sizes: readonly number[] } | null;
}

interface Header {
  readonly tableEnd: number;
  readonly segmentBase: number;
}

/**
 * Reads a file of tensors, by name. Their data is read from `source` on demand, so it must stay open. InvalidFileError when
 * the file is damaged or no such file, UnsupportedError for another version of the format.
 */
export async function readTensorFile(source: ByteSource): Promise<ReadonlyMap<string, NamedTensor>> {
  const { tableEnd, segmentBase } = parseHeader(source, await source.read(0, Math.min(source.size, HEADER_END)));
  const root = rootTable(source.name, await source.read(0, tableEnd));
  const version = root.uint32(schema.FlatTensor.version);
  if (version !== schema.VERSION)
    throw new UnsupportedError(
      `${source.name}: version: expected schema version ${schema.VERSION}, which is the newest known, but found ${version}`,
    );
  const segments = (root.tables(schema.FlatTensor.segments) ?? []).map((segment) => ({
    offset: segment.uint64(schema.DataSegment.offset),
    size: segment.uint64(schema.DataSegment.size),
  }));
  checkSegments(source, segmentBase, segments);
  const dataAt = dataOf(source, segmentBase);
  // Names of one segment share one object.
  const constants = segments.map(({ offset, size }) => ({
    data: dataAt(offset, size),
    alignment: alignmentOf(segmentBase + offset),
  }));
  const tensors = new Map<string, NamedTensor>();
  for (const named of root.tables(schema.FlatTensor.named_data) ?? []) {
    const key = named.string(schema.TensorData.key) ?? named.fail(schema.TensorData.key, "expected a text");
    const index = named.uint32(schema.TensorData.segment_index);
    const constant = constants[index];
    if (!constant) throw new InvalidFileError(source.name, `tensor ${key}: ${noSegment(segments.length, index)}`);
    if (tensors.has(key)) throw new InvalidFileError(source.name, `there are two tensors of the name "${key}"`);
    tensors.set(key, { ...constant, file: source.name, spec: specOf(named.table(schema.TensorData.tensor_layout)) });
  }
  return tensors;
}

function specOf(layout: FlatTable | null): NamedTensor["spec"] {
  if (!layout) return null;
  const { scalar_type, sizes } = schema.TensorLayout;
  return { dtype: schema.dtypeOfScalarType(layout.uint8(scalar_type)), sizes: layout.int32s(sizes) ?? [] };
}

function parseHeader(source: ByteSource, start: Uint8Array): Header {
  const { name } = source;
  const textAt = (offset: number) => String.fromCharCode(...start.subarray(offset, offset + 4));
  if (start.length < HEADER_END || textAt(4) !== "FT01" || textAt(8) !== "FH01")
    throw new InvalidFileError(
      name,
      `expected a .ptd file of tensors, with "FT01" and "FH01" at bytes 4 and 8, but found ${JSON.stringify(textAt(4) + textAt(8))}`,
    );
  const view = new DataView(start.buffer, start.byteOffset, start.length);
  const length = view.getUint32(12, true);
  if (length < HEADER_LENGTH)
    throw new InvalidFileError(name, `expected a header of at least ${HEADER_LENGTH} bytes but it says ${length}`);
  const [offset, bytes, segmentBase, segmentBytes] = [16, 24, 32, 40].map((at) => {
    const value = Number(view.getBigUint64(at, true));
    if (!Number.isSafeInteger(value)) throw new InvalidFileError(name, `its header gives ${value} at byte ${at}`);
    return value;
  }) as [number, number, number, number];
  const tableEnd = offset + bytes;
  const expected = Math.max(tableEnd, segmentBase + segmentBytes);
  if (tableEnd < HEADER_END || (segmentBase > 0 && segmentBase < tableEnd))
    throw new InvalidFileError(name, `its tables end at byte ${tableEnd} and its segments start at ${segmentBase}`);
  if (expected > source.size)
    throw new InvalidFileError(name, `expected ${expected} bytes but found ${source.size}: it is truncated`);
  if (tableEnd > TABLE_BYTES_MAX)
    throw new UnsupportedError(`${name}: its tables have ${tableEnd} bytes, more than ${TABLE_BYTES_MAX}`);
  return { tableEnd, segmentBase };
}
