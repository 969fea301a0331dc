/**
 * Reads `.pte` files: header, tables, segments and places of constants, all of them checked. The data itself stays in the
 * file until its `DataSource` is read.
 */
import { checkOptions, unexpected } from "../arguments.ts";
import type { ByteSource } from "../byte-source.ts";
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { isSameShape } from "../tensor.ts";
import { type DecodedProgram, decodeProgram, type ProgramTable } from "./decode.ts";
import { renewOperators } from "./former-operators.ts";
import { type FileHeader, HEADER_END, parseHeader } from "./header.ts";
import type { Constant, DataSource, Method, Program } from "./program.ts";
import { alignmentOf, checkSegments, dataOf, type Locate, noSegment } from "./segments.ts";
import { type NamedTensor, readTensorFile } from "./tensor-file.ts";
import { CONSTANT_ALIGNMENT_MIN, tensorBytes, verifyProgram } from "./verify.ts";

/**
 * Most bytes of the tables: a program of a billion weights has 200 KB; larger ones contain data of delegates, which lowbit
 * does not run.
 */
const PROGRAM_BYTES_MAX = 1 << 26;

interface ProgramFile {
  readonly header: FileHeader;
  readonly table: DecodedProgram;
}

/** Bytes of a program file by what they hold; the parts add up to `total`. */
export interface ProgramLayout {
  /** Bytes of the whole file. */
  readonly total: number;
  /** Bytes of headers and FlatBuffer. */
  readonly program: number;
  /** Bytes of constants, which are mostly weights. */
  readonly constants: number;
  /** Bytes of data that the file holds by name. */
  readonly namedData: number;
  /** Bytes of other segments, such as the blobs of delegates. */
  readonly otherSegments: number;
  /** Bytes between the parts. */
  readonly padding: number;
}

/** Options of `readProgram`: files of tensors (`.ptd`) that the program refers to. */
export interface ReadOptions {
  /** Files of tensors (.ptd) that the program keeps outside itself; several programs may share one. */
  readonly data?: readonly ByteSource[];
}

/**
 * Reads a program. Constants and named data are read from `source` and from the files of tensors on demand, so these must
 * stay open. InvalidFileError when the file is damaged or no program, UnsupportedError for what lowbit cannot represent.
 * Constants at one offset become one object. Of delegates only the ids are kept.
 */
export async function readProgram(source: ByteSource, options: ReadOptions = {}): Promise<Program> {
  checkOptions(options);
  const { data = [] } = options;
  checkSource("source", source);
  if (!Array.isArray(data)) throw unexpected("data", "a list of files", data);
  for (const file of data) checkSource("data", file);
  const { header, table } = await readTables(source);
  const dataAt = dataOf(source, header.segmentBase);
  const constants = locateConstants(source.name, table, header.segmentBase, dataAt);
  const program = {
    file: source.name,
    methods: table.methods.map(renewOperators),
    constants: [...constants, ...(await externalConstants(source.name, table, data))],
    namedData: locateNamedData(source.name, table, dataAt),
  };
  verifyProgram(program, (place, problem) => {
    throw new InvalidFileError(source.name, `${place}: ${problem}`);
  });
  return program;
}

function checkSource(name: string, source: Partial<ByteSource> | null): void {
  if (typeof source?.read !== "function" || typeof source.size !== "number")
    throw unexpected(name, "what openFile() gives", source);
}

/** Bytes of each part of a program file, for reports. Throws as `readProgram` does. */
export async function programLayout(source: ByteSource): Promise<ProgramLayout> {
  const { header, table } = await readTables(source);
  const named = new Set(table.namedData.map(({ segment }) => segment));
  let constants = 0;
  let namedData = 0;
  let otherSegments = 0;
  table.segments.forEach(({ size }, index) => {
    if (named.has(index)) namedData += size;
    else if (table.constants?.segment === index) constants += size;
    else otherSegments += size;
  });
  const padding = source.size - header.programBytes - constants - namedData - otherSegments;
  return { total: source.size, program: header.programBytes, constants, namedData, otherSegments, padding };
}

async function readTables(source: ByteSource): Promise<ProgramFile> {
  const start = await source.read(0, Math.min(source.size, HEADER_END));
  const header = parseHeader(source.name, start, source.size);
  if (header.programBytes > PROGRAM_BYTES_MAX)
    throw new UnsupportedError(
      `${source.name}: its program has ${header.programBytes} bytes, more than ${PROGRAM_BYTES_MAX}; ` +
        "export its data in segments",
    );
  const table = decodeProgram(source.name, await source.read(0, header.programBytes));
  checkSegments(source, header.segmentBase, table.segments);
  return { header, table };
}

/**
 * The file says only where a constant starts. It ends before the next one; its data are the bytes of the largest tensor on
 * it, the rest is padding.
 */
function locateConstants(file: string, table: ProgramTable, base: number, dataAt: Locate): readonly Constant[] {
  if (!table.constants) return [];
  const segment = table.segments[table.constants.segment];
  if (!segment)
    throw new InvalidFileError(file, `constant_segment: ${noSegment(table.segments.length, table.constants.segment)}`);
  const offsets = table.constants.offsets.slice(1);
  const starts = [...new Set(offsets)].sort((a, b) => a - b);
  const needed = bytesByOffset(table.methods, offsets);
  const constants = new Map<number, Constant>();
  starts.forEach((start, index) => {
    const position = base + segment.offset + start;
    const alignment = alignmentOf(position);
    if (start < 0 || start > segment.size || alignment < CONSTANT_ALIGNMENT_MIN)
      throw new InvalidFileError(
        file,
        `constant ${offsets.indexOf(start)}: expected a multiple of ${CONSTANT_ALIGNMENT_MIN} ` +
          `in a segment of ${segment.size} bytes but found offset ${start}`,
      );
    const extent = (starts[index + 1] ?? segment.size) - start;
    const byteLength = Math.min(extent, needed.get(start) ?? extent);
    constants.set(start, { data: dataAt(segment.offset + start, byteLength), alignment });
  });
  return offsets.map((offset) => constants.get(offset)!);
}

/** The external tensors of a program, from files. UnsupportedError lists those that no file has. */
async function externalConstants(
  file: string,
  table: DecodedProgram,
  files: readonly ByteSource[],
): Promise<readonly Constant[]> {
  const tensors = new Map<string, NamedTensor>();
  for (const source of files)
    for (const [key, tensor] of await readTensorFile(source)) {
      const other = tensors.get(key);
      if (other) throw new InvalidFileError(source.name, `tensor "${key}" is in ${other.file} too`);
      tensors.set(key, tensor);
    }
  const missing = table.externals.filter((key) => !tensors.has(key));
  if (missing.length > 0)
    throw new UnsupportedError(
      `${file}: tensors ${missing.join(", ")} are stored outside of it; give the .ptd file that has them (--data, option data)`,
    );
  checkExternals(table, tensors);
  return table.externals.map((key) => tensors.get(key)!);
}

/** InvalidFileError for an external tensor whose dtype or sizes differ from the program's. */
function checkExternals({ methods, externals }: DecodedProgram, tensors: ReadonlyMap<string, NamedTensor>): void {
  for (const { name: method, values } of methods)
    for (const value of values) {
      if (value.kind !== "tensor" || value.constant === null || !externals.includes(value.name ?? "")) continue;
      const { spec, file } = tensors.get(value.name!)!;
      if (spec && (spec.dtype !== value.dtype || !isSameShape(spec.sizes, value.sizes)))
        throw new InvalidFileError(
          file,
          `tensor ${value.name}: method ${method} expects ${value.dtype} [${value.sizes}] but it is ${spec.dtype ?? "of an unknown type"} [${spec.sizes}]`,
        );
    }
}

/** Bytes of the largest tensor at each offset. */
function bytesByOffset(methods: readonly Method[], offsets: readonly number[]): Map<number, number> {
  const needed = new Map<number, number>();
  for (const { values } of methods)
    for (const value of values) {
      if (value.kind !== "tensor" || value.constant === null) continue;
      const offset = offsets[value.constant];
      if (offset !== undefined) needed.set(offset, Math.max(tensorBytes(value), needed.get(offset) ?? 0));
    }
  return needed;
}

/** Named data by key; keys of one segment share one DataSource. */
function locateNamedData(file: string, table: ProgramTable, dataAt: Locate): ReadonlyMap<string, DataSource> {
  const sources = table.segments.map(({ offset, size }) => dataAt(offset, size));
  const namedData = new Map<string, DataSource>();
  table.namedData.forEach(({ key, segment }, index) => {
    const source = sources[segment];
    if (!source) throw new InvalidFileError(file, `named_data[${index}]: ${noSegment(sources.length, segment)}`);
    if (namedData.has(key)) throw new InvalidFileError(file, `named_data[${index}]: there are two of the key "${key}"`);
    namedData.set(key, source);
  });
  return namedData;
}
