/**
 * Packed codes: a header that says what they are, then codes in the order in which kernels read them.
 *
 *     header, 64 bytes, little endian:
 *        0 u32 magic "LBA1"   4 u16 version   6 u8 bytes of a code   7 u8 codebooks   8 u8 bits
 *        9 u8 in group   10 u8 out group   11 u8 groups of a block   12 u32 outputs of a tile
 *       16 u32 n   20 u32 k   24 u32 0   28 u32 checksum of the codes
 *       32 u64 byte length, header included   40 .. 59 zeros   60 u32 checksum of bytes 0..59
 *     for each block of 16 input groups (the last may be shorter), for each tile of 64 outputs, padded with code 0:
 *       for each group of the block, for each codebook: 64 codes, of outputs 0, 32, 1, 33, …, 31, 63
 *
 * One thread reads a block of inputs with a table of its own from one end to the other, so codes are one stream.
 * Kernels that look up bytes sum odd and even ones apart, which in this order leaves outputs side by side.
 */
import { checksum, InvalidArgumentError, ShapeError } from "lowbit/extension";
import { type AqlmForm, type AqlmWeights, checkForm, checkWeights, codeArray, formCounts } from "./form.ts";

export const HEADER_BYTES = 64;
const MAGIC = 0x3141424c;
const VERSION = 1;
/** Outputs of a tile; native/codes.h has the same. */
export const TILE = 64;
/** Input groups of a block. */
export const BLOCK = 16;

/** Codes in memory: packed, or in upstream's order [k / inGroup, n / outGroup, codebooks]. */
export interface OpenCodes {
  /** Sizes of the matrix and of its codes. */
  readonly form: AqlmForm;
  /** Layout of the codes, as `layoutOf` chooses it. */
  readonly layout: AqlmLayout;
  /** The whole buffer, header included. */
  readonly bytes: Uint8Array;
}

/** `aqlm_tiles8`: packed, one output a code, 8 bits. `aqlm_tiles`: packed, any other form. `aqlm_plain`: upstream's. */
export type AqlmLayout = "aqlm_tiles8" | "aqlm_tiles" | "aqlm_plain";
export const packedLayouts: readonly AqlmLayout[] = ["aqlm_tiles8", "aqlm_tiles"];

export function packedLayout({ bits, outGroup }: AqlmForm): AqlmLayout {
  return bits === 8 && outGroup === 1 ? "aqlm_tiles8" : "aqlm_tiles";
}

const codeBytes = ({ bits }: AqlmForm) => (bits <= 8 ? 1 : 2);

/** Size of packed codes, header included. */
export function packedByteLength(form: AqlmForm): number {
  const { outputs, inputs } = formCounts(form);
  return HEADER_BYTES + Math.ceil(outputs / TILE) * TILE * inputs * form.codebooks * codeBytes(form);
}

/** Index, among packed codes, of the code of an output and a group in codebook 0; codebooks are TILE apart. */
export function codeIndex(form: AqlmForm, output: number, group: number): number {
  const { outputs, inputs } = formCounts(form);
  const first = group - (group % BLOCK);
  const length = Math.min(BLOCK, inputs - first);
  const tiles = Math.ceil(outputs / TILE);
  const place = output % TILE;
  const lane = place < TILE / 2 ? 2 * place : 2 * place + 1 - TILE;
  const row = first * tiles + ((output - place) / TILE) * length + (group - first);
  return row * form.codebooks * TILE + lane;
}

/** Packs codes. ShapeError, which says where, for too few or too many of them, and for one beyond its codebook. */
export function packCodes(weights: AqlmWeights, where = "AQLM codes"): Uint8Array {
  checkWeights(weights);
  checkCodes(weights, where);
  const target = new Uint8Array(packedByteLength(weights));
  const { outputs, inputs } = formCounts(weights);
  const { codebooks, codes } = weights;
  const packed = codesOf(weights, target);
  for (let output = 0; output < outputs; output++)
    for (let group = 0; group < inputs; group++) {
      const from = (output * inputs + group) * codebooks;
      const to = codeIndex(weights, output, group);
      for (let c = 0; c < codebooks; c++) packed[to + c * TILE] = codes[from + c]!;
    }
  writeHeader(weights, target);
  return target;
}

function checkCodes(weights: AqlmWeights, where: string): void {
  const { codes, codebooks } = weights;
  const { outputs, inputs, entries } = formCounts(weights);
  const count = outputs * inputs * codebooks;
  if (codes.length !== count)
    throw new ShapeError(
      `${where}: expected ${count} of [${outputs}, ${inputs}, ${codebooks}] but found ${codes.length}`,
    );
  if (entries === 2 ** (8 * codes.BYTES_PER_ELEMENT)) return;
  const at = codes.findIndex((code) => code >= entries);
  if (at >= 0) throw new ShapeError(`${where}: expected 0..${entries - 1} but found ${codes[at]} at ${at}`);
}

/** The inverse of `packCodes`. */
export function unpackCodes(open: OpenCodes): Uint8Array | Uint16Array {
  if (!open?.form || !(open.bytes instanceof Uint8Array))
    throw new InvalidArgumentError("codes: expected a form and its packed bytes");
  const { form, bytes } = open;
  const { outputs, inputs } = formCounts(form);
  const packed = codesOf(form, bytes);
  const codes = codeArray(form.bits, outputs * inputs * form.codebooks);
  for (let output = 0; output < outputs; output++)
    for (let group = 0; group < inputs; group++) {
      const to = (output * inputs + group) * form.codebooks;
      const from = codeIndex(form, output, group);
      for (let c = 0; c < form.codebooks; c++) codes[to + c] = packed[from + c * TILE]!;
    }
  return codes;
}

/** The codes of a packed buffer. */
export function codesOf(form: AqlmForm, bytes: Uint8Array): Uint8Array | Uint16Array {
  const start = bytes.byteOffset + HEADER_BYTES;
  const length = bytes.length - HEADER_BYTES;
  return codeBytes(form) === 1
    ? new Uint8Array(bytes.buffer, start, length)
    : new Uint16Array(bytes.buffer, start, length / 2);
}

function writeHeader(form: AqlmForm, target: Uint8Array): void {
  const view = new DataView(target.buffer, target.byteOffset, HEADER_BYTES);
  view.setUint32(0, MAGIC, true);
  view.setUint16(4, VERSION, true);
  const fields = [codeBytes(form), form.codebooks, form.bits, form.inGroup, form.outGroup, BLOCK];
  for (const [i, value] of fields.entries()) view.setUint8(6 + i, value);
  view.setUint32(12, TILE, true);
  view.setUint32(16, form.n, true);
  view.setUint32(20, form.k, true);
  view.setUint32(28, checksum(target.subarray(HEADER_BYTES)), true);
  view.setBigUint64(32, BigInt(target.length), true);
  view.setUint32(60, checksum(target.subarray(0, 60)), true);
}

/** Opens packed codes and checks the header; ShapeError says where and what is wrong. */
export function openCodes(bytes: Uint8Array, where = "packed AQLM codes"): OpenCodes {
  const fail = (problem: string): never => {
    throw new ShapeError(`${where}: ${problem}`);
  };
  if (bytes.length < HEADER_BYTES) fail(`expected at least ${HEADER_BYTES} bytes but found ${bytes.length}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
  const magic = view.getUint32(0, true);
  if (magic !== MAGIC) fail(`expected magic 0x${MAGIC.toString(16)} but found 0x${magic.toString(16)}`);
  if (view.getUint32(60, true) !== checksum(bytes.subarray(0, 60)))
    fail("the header's checksum does not match; the buffer is damaged");
  const version = view.getUint16(4, true);
  if (version !== VERSION) fail(`expected version ${VERSION} but found ${version}; export the model again`);
  const [width, codebooks, bits, inGroup, outGroup, block] = bytes.subarray(6, 12) as Iterable<number> as number[];
  const form: AqlmForm = {
    n: view.getUint32(16, true),
    k: view.getUint32(20, true),
    ...{ codebooks: codebooks!, bits: bits!, inGroup: inGroup!, outGroup: outGroup! },
  };
  checkForm(where, form);
  if (block !== BLOCK || view.getUint32(12, true) !== TILE || width !== codeBytes(form))
    fail(`expected tiles of ${TILE} outputs and ${BLOCK} groups; export the model again`);
  if (bytes.byteOffset % width! !== 0)
    fail(`expected a place that is a multiple of ${width} bytes but found ${bytes.byteOffset}`);
  const expected = packedByteLength(form);
  if (bytes.length !== expected || view.getBigUint64(32, true) !== BigInt(expected))
    fail(`expected ${expected} bytes but found ${bytes.length}`);
  return { form, layout: packedLayout(form), bytes };
}

/** Whether the codes still have the checksum that their header promises. */
export function codesIntact(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
  return checksum(bytes.subarray(HEADER_BYTES)) === view.getUint32(28, true);
}
