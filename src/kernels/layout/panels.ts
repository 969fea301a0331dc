/**
 * What the panel layouts have in common: everything but where a weight lies in the vectors of its group.
 *
 *     header, 64 bytes
 *     per panel of rows (n padded with zero rows), rounded up to 64 bytes:
 *       per group (k padded to a multiple of 32 inside each group):
 *         scales, one a row (f16 or f32)    [zero points i8, one a row]
 *         vectors
 *       corrections f32, one a row: sum over k of (level - zero) * scale, for the activation zero point
 *       [biases f32, one a row]
 *
 * Integers are stored unsigned, q + 2^(bits-1). 4-bit group 32 costs 4.5 bits a weight, 2-bit group 32 costs 2.5.
 */
import { f16Table, f32ToF16 } from "../../half.ts";
import { groupCount, type QuantizedWeights, type WeightSpec } from "../../quantized.ts";
import type { PackedLayout, PackedWeights, WeightRow } from "../contract.ts";
import { type FieldTable, fieldTables } from "./fields.ts";
import { HEADER_BYTES, writeHeader } from "./header.ts";

/** Four consecutive k of a row are four bytes of a vector. */
const KR = 4;
/** Native kernels count the bits of a panel's weights in 32 bits. */
const PANEL_BYTES_MAX = 2 ** 28;
/** All field tables divide 32 consecutive k. */
const K_STEP = 32;

/** What distinguishes a panel layout. */
export interface PanelOptions extends Pick<PackedLayout, "id" | "name" | "suits"> {
  /** Rows of a panel. */
  readonly rows: number;
  /** Bytes of a vector. */
  readonly vectorBytes: number;
  /** Stored vector bytes are exclusive-ored with this. */
  readonly flip: number;
  /** Where, from a group's first vector, the first vector of weights 4 step .. 4 step + 3 of row `lane` has them. */
  byteOf(table: FieldTable, lane: number, step: number): number;
  /** Which field of the table they are. */
  fieldOf(table: FieldTable, lane: number, step: number): number;
}

/** Offsets, in bytes, of the parts of a buffer. */
interface PanelGeometry {
  readonly groups: number;
  /** From the start of a group to its zero points and its vectors. */
  readonly zerosOffset: number;
  readonly vectorsOffset: number;
  readonly groupBytes: number;
  /** From the start of a panel. */
  readonly correctionOffset: number;
  readonly biasOffset: number;
  readonly panelBytes: number;
  readonly panels: number;
}

function panelGeometry(rows: number, spec: WeightSpec, hasBias: boolean): PanelGeometry {
  const groups = groupCount(spec);
  const groupLength = roundUp(Math.min(spec.groupSize, spec.k), K_STEP);
  const zerosOffset = rows * (spec.scaleDType === "f16" ? 2 : 4);
  const vectorsOffset = zerosOffset + (spec.hasZeros ? rows : 0);
  const groupBytes = vectorsOffset + (rows * groupLength * spec.bits) / 8;
  const correctionOffset = groups * groupBytes;
  const biasOffset = correctionOffset + 4 * rows;
  const panelBytes = roundUp(biasOffset + (hasBias ? 4 * rows : 0), 64);
  const panels = Math.ceil(spec.n / rows);
  return { groups, zerosOffset, vectorsOffset, groupBytes, correctionOffset, biasOffset, panelBytes, panels };
}

function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}

/** A layout of panels. */
export function panelLayout(options: PanelOptions): PackedLayout {
  const { id, name, suits, rows } = options;
  const layout: PackedLayout = {
    id,
    name,
    ...(suits && { suits }),
    nr: rows,
    kr: KR,
    sr: 1,

    refusal(spec) {
      if (spec.hasLevels && spec.bits > 4) return `codebooks of more than 4 bits are not stored, found ${spec.bits}`;
      const { panelBytes } = panelGeometry(rows, spec, true);
      if (panelBytes > PANEL_BYTES_MAX) return `${rows} rows may take ${PANEL_BYTES_MAX} bytes, not ${panelBytes}`;
      return null;
    },

    byteLength(spec, hasBias) {
      const { panels, panelBytes } = panelGeometry(rows, spec, hasBias);
      return HEADER_BYTES + panels * panelBytes;
    },

    pack(weights, bias, target) {
      const geometry = panelGeometry(rows, weights, bias !== null);
      for (let row = 0; row < weights.n; row++) packRow(options, geometry, { weights, bias, row }, target);
      if (options.flip) flipVectors(options.flip, geometry, target);
      const mark = weights.scales.some((scale) => scale < 0 || Object.is(scale, -0)) ? 0 : 1;
      writeHeader(target, layout, { spec: weights, hasBias: bias !== null, levels: weights.levels, mark });
    },

    readRow(packed, row, target) {
      const { spec, bytes } = packed;
      const geometry = panelGeometry(rows, spec, packed.hasBias);
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
      const panel = HEADER_BYTES + Math.floor(row / rows) * geometry.panelBytes;
      const lane = row % rows;
      const halves = f16Table();
      for (let group = 0; group < geometry.groups; group++) {
        const start = panel + group * geometry.groupBytes;
        target.scales[group] =
          spec.scaleDType === "f16"
            ? halves[view.getUint16(start + 2 * lane, true)]!
            : view.getFloat32(start + 4 * lane, true);
        target.zeros[group] = spec.hasZeros ? view.getInt8(start + geometry.zerosOffset + lane) : 0;
        readGroup(options, packed, { lane, group, at: start + geometry.vectorsOffset }, target);
      }
    },

    readBias(packed, row) {
      if (!packed.hasBias) return 0;
      const { biasOffset, panelBytes } = panelGeometry(rows, packed.spec, true);
      const offset = HEADER_BYTES + Math.floor(row / rows) * panelBytes + biasOffset + 4 * (row % rows);
      return new DataView(packed.bytes.buffer, packed.bytes.byteOffset).getFloat32(offset, true);
    },
  };
  return layout;
}

/** Sum of (level - zero) * scale over a row, in double precision. */
function correction(weights: QuantizedWeights, row: number): number {
  const { k, groupSize, qvals, scales, zeros, levels } = weights;
  const groups = groupCount(weights);
  const offset = 1 << (weights.bits - 1);
  let sum = 0;
  for (let group = 0; group < groups; group++) {
    const end = Math.min(k, (group + 1) * groupSize);
    const zero = zeros ? zeros[row * groups + group]! : 0;
    let levelSum = 0;
    for (let c = group * groupSize; c < end; c++) {
      const q = qvals[row * k + c]!;
      levelSum += (levels ? levels[q + offset]! : q) - zero;
    }
    sum += levelSum * scales[row * groups + group]!;
  }
  return sum;
}

interface RowSource {
  readonly weights: QuantizedWeights;
  readonly bias: Float32Array | null;
  readonly row: number;
}

function packRow(options: PanelOptions, geometry: PanelGeometry, source: RowSource, target: Uint8Array): void {
  const { weights, bias, row } = source;
  const view = new DataView(target.buffer, target.byteOffset, target.length);
  const panel = HEADER_BYTES + Math.floor(row / options.rows) * geometry.panelBytes;
  const lane = row % options.rows;
  for (let group = 0; group < geometry.groups; group++) {
    const start = panel + group * geometry.groupBytes;
    const index = row * geometry.groups + group;
    const scale = weights.scales[index]!;
    if (weights.scaleDType === "f16") view.setUint16(start + 2 * lane, f32ToF16(scale), true);
    else view.setFloat32(start + 4 * lane, scale, true);
    if (weights.zeros) target[start + geometry.zerosOffset + lane] = weights.zeros[index]!;
    packGroup(options, weights, { row, group, at: start + geometry.vectorsOffset }, target);
  }
  view.setFloat32(panel + geometry.correctionOffset + 4 * lane, correction(weights, row), true);
  if (bias) view.setFloat32(panel + geometry.biasOffset + 4 * lane, bias[row]!, true);
}

function packGroup(
  options: PanelOptions,
  weights: QuantizedWeights,
  { row, group, at }: { row: number; group: number; at: number },
  target: Uint8Array,
): void {
  const { k, groupSize, qvals, bits } = weights;
  const { vectorBytes, rows } = options;
  const table = fieldTables[bits]!;
  const offset = 1 << (bits - 1);
  const lane = row % rows;
  const first = row * k + group * groupSize;
  const count = Math.min(k - group * groupSize, groupSize);
  for (let i = 0; i < count; i += KR) {
    const start = at + options.byteOf(table, lane, i / KR);
    const pieces = table.fields[options.fieldOf(table, lane, i / KR)]!;
    for (let j = 0; j < KR && i + j < count; j++) {
      const unsigned = qvals[first + i + j]! + offset;
      for (const piece of pieces) {
        const value = (unsigned >> piece.at) & ((1 << piece.width) - 1);
        target[start + j + piece.vector * vectorBytes]! |= value << piece.shift;
      }
    }
  }
}

function flipVectors(flip: number, geometry: PanelGeometry, target: Uint8Array): void {
  const { groups, groupBytes, vectorsOffset, panelBytes, panels } = geometry;
  for (let panel = 0; panel < panels; panel++)
    for (let group = 0; group < groups; group++) {
      const start = HEADER_BYTES + panel * panelBytes + group * groupBytes;
      for (let i = start + vectorsOffset; i < start + groupBytes; i++) target[i]! ^= flip;
    }
}

function readGroup(
  options: PanelOptions,
  packed: PackedWeights,
  { lane, group, at }: { lane: number; group: number; at: number },
  target: WeightRow,
): void {
  const { k, groupSize, bits } = packed.spec;
  const { vectorBytes, flip } = options;
  const { bytes } = packed;
  const table = fieldTables[bits]!;
  const offset = 1 << (bits - 1);
  const first = group * groupSize;
  const count = Math.min(k - first, groupSize);
  for (let i = 0; i < count; i += KR) {
    const start = at + options.byteOf(table, lane, i / KR);
    const pieces = table.fields[options.fieldOf(table, lane, i / KR)]!;
    for (let j = 0; j < KR && i + j < count; j++) {
      let unsigned = 0;
      for (let p = 0; p < pieces.length; p++) {
        const { vector, shift, width, at: place } = pieces[p]!;
        unsigned |= (((bytes[start + j + vector * vectorBytes]! ^ flip) >> shift) & ((1 << width) - 1)) << place;
      }
      target.qvals[first + i + j] = unsigned - offset;
    }
  }
}
