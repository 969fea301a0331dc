/**
 * File format of saved sequences, little-endian:
 *
 *     0 u32 magic "LBSQ"    4 u32 version    8 u32 bytes of the header    12 u32 CRC-32C of bytes 0..11 and of the header
 *     16 header, JSON (`FileHeader`)
 *     u32 [tokens]: ids
 *     by page, then by kind of layers: blocks as kernels keep them, with zeros after the last token
 *     of recurrent layers: the state at `boundary`, if that is not 0, then the state after all tokens, if that is another
 *     u32 CRC-32C of all bytes before
 */
import { InvalidFileError } from "../errors.ts";
import { parseJson } from "../json-text.ts";
import { crc32c } from "./crc32c.ts";
import type { SequenceLayout } from "./layout.ts";
import { firstPageRead } from "./page-store.ts";

const MAGIC = 0x5153424c;
const VERSION = 1;
export const PREFIX_BYTES = 16;
export const CHECKSUM_BYTES = 4;
/** Most bytes of a header; names of programs and branches are shorter. */
const HEADER_BYTES_MAX = 1 << 20;
/** Most characters of a header that an error message quotes. */
const QUOTED_MAX = 200;

/** Program, KV cache type and layout of a sequence: it can be restored only where all are equal. */
interface FileIdentity {
  readonly program: string;
  readonly type: string;
  readonly pagePositions: number;
  readonly kinds: readonly unknown[];
  readonly stateBytes: number;
}

/** Which sequence a file holds, and which parts of it. */
export interface FileContent {
  readonly branch: string;
  readonly tokens: number;
  /** By kind of layers: the first page whose block is in the file, at most the first page that the next token reads. */
  readonly firstPages: readonly number[];
  /** Last page boundary whose recurrent state is known; 0 for none. */
  readonly boundary: number;
}

function identity(layout: SequenceLayout, program: string): FileIdentity {
  const { type, pagePositions, kinds, shape } = layout;
  return {
    program,
    type,
    pagePositions,
    kinds: kinds.map(({ kvHeads, headDim, window, layers }) => ({ kvHeads, headDim, window, layers })),
    stateBytes: shape.stateBytes,
  };
}

/** Encodes everything that comes before the ids. */
export function encodeHeader(layout: SequenceLayout, program: string, content: FileContent): Uint8Array {
  const text = new TextEncoder().encode(JSON.stringify({ ...identity(layout, program), ...content }));
  const bytes = new Uint8Array(PREFIX_BYTES + text.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint32(4, VERSION, true);
  view.setUint32(8, text.length, true);
  bytes.set(text, PREFIX_BYTES);
  view.setUint32(12, headerChecksum(bytes), true);
  return bytes;
}

/** Bytes of the header after a file's first 16 bytes. InvalidFileError when they do not begin a file of a sequence. */
export function headerLength(file: string, prefix: Uint8Array): number {
  const view = new DataView(prefix.buffer, prefix.byteOffset, prefix.length);
  const [magic, version, length] = [0, 4, 8].map((offset) => view.getUint32(offset, true)) as [number, number, number];
  if (magic !== MAGIC)
    throw new InvalidFileError(file, `expected a saved sequence, which begins with "LBSQ", but found other bytes`);
  if (version !== VERSION)
    throw new InvalidFileError(file, `expected version ${VERSION} of saved sequences but found ${version}`);
  if (length > HEADER_BYTES_MAX)
    throw new InvalidFileError(file, `expected a header of at most ${HEADER_BYTES_MAX} bytes but found ${length}`);
  return length;
}

/** Decodes and checks the header. InvalidFileError when it is damaged, or of a sequence that `layout` cannot hold. */
export function decodeHeader(file: string, bytes: Uint8Array, layout: SequenceLayout, program: string): FileContent {
  const found = new DataView(bytes.buffer, bytes.byteOffset).getUint32(12, true);
  checkSum(file, "header", headerChecksum(bytes), found);
  const header = parseHeader(file, bytes.subarray(PREFIX_BYTES));
  for (const [name, expected] of Object.entries(identity(layout, program)))
    if (JSON.stringify(header[name]) !== JSON.stringify(expected))
      throw new InvalidFileError(file, `${name}: expected ${quoted(expected)} but found ${quoted(header[name])}`);
  const { branch, tokens, firstPages, boundary } = header;
  const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
  if (typeof branch !== "string" || !isCount(tokens) || !isCount(boundary))
    throw new InvalidFileError(file, `expected a branch, tokens and a boundary but found ${quoted(header)}`);
  const last = layout.kinds.map((_, kind) => firstPageRead(layout.shape, kind, tokens));
  const isFirst = (page: unknown, kind: number) => isCount(page) && page <= last[kind]!;
  if (!Array.isArray(firstPages) || firstPages.length !== last.length || !firstPages.every(isFirst))
    throw new InvalidFileError(file, `firstPages: expected at most ${quoted(last)} but found ${quoted(firstPages)}`);
  const isBoundary = boundary % layout.pagePositions === 0 && boundary <= tokens;
  if (!isBoundary || (boundary > 0 && layout.shape.stateBytes === 0))
    throw new InvalidFileError(file, `boundary: expected the end of a page of ${tokens} tokens but found ${boundary}`);
  return { branch, tokens, firstPages, boundary };
}

/** InvalidFileError where the checksum of a part of a file is wrong. */
export function checkSum(file: string, part: string, expected: number, found: number): void {
  const hex = (sum: number) => `0x${sum.toString(16).padStart(8, "0")}`;
  if (expected !== found)
    throw new InvalidFileError(
      file,
      `checksum of the ${part}: expected ${hex(expected)} but found ${hex(found)}; the file is damaged`,
    );
}

/** Positions whose recurrent states are in a file. */
export function statesInFile({ shape }: SequenceLayout, { tokens, boundary }: FileContent): number[] {
  if (shape.stateBytes === 0 || tokens === 0) return [];
  return boundary > 0 && boundary < tokens ? [boundary, tokens] : [tokens];
}

/** Pages and kinds whose blocks are in a file, in the file's order. */
export function* blocksInFile(
  { shape }: SequenceLayout,
  { tokens, firstPages }: FileContent,
): Generator<{ page: number; kind: number }> {
  for (let page = 0; page * shape.positions < tokens; page++)
    for (const [kind, first] of firstPages.entries()) if (page >= first) yield { page, kind };
}

/** Bytes of a whole file. */
export function fileBytes(layout: SequenceLayout, headerBytes: number, content: FileContent): number {
  const { kinds, stateBytes } = layout.shape;
  let bytes = headerBytes + 4 * content.tokens + CHECKSUM_BYTES;
  for (const { kind } of blocksInFile(layout, content)) bytes += kinds[kind]!.byteLength;
  return bytes + statesInFile(layout, content).length * stateBytes;
}

function headerChecksum(bytes: Uint8Array): number {
  return crc32c(bytes.subarray(PREFIX_BYTES), crc32c(bytes.subarray(0, 12)));
}

function parseHeader(file: string, bytes: Uint8Array): Record<string, unknown> {
  const text = new TextDecoder().decode(bytes);
  try {
    const header = parseJson(text);
    if (typeof header === "object" && header !== null) return header as Record<string, unknown>;
  } catch (cause) {
    throw new InvalidFileError(file, `expected a header of JSON but found ${quoted(text)}`, { cause });
  }
  throw new InvalidFileError(file, `expected a header with fields but found ${quoted(text)}`);
}

function quoted(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > QUOTED_MAX ? `${text.slice(0, QUOTED_MAX)}…` : text;
}
