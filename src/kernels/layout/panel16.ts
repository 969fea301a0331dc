/**
 * `panel16`: lowbit's own layout of quantized weights, one for WebAssembly, AVX-512, AMX and the reference.
 *
 *     header, 64 bytes
 *     per panel of 16 rows (n padded with zero rows), rounded up to 64 bytes:
 *       per group (k padded to a multiple of 32 inside each group):
 *         16 scales (f16 or f32)    [16 zero points i8]
 *         64-byte vectors: lane r (4 bytes) belongs to row r; byte j of field f is weight k = 4 f + j
 *       16 corrections f32: sum over k of (level - zero) * scale, for the activation zero point
 *       [16 biases f32]
 *
 * Integers are stored unsigned, q + 2^(bits-1). 4-bit group 32 costs 4.5 bits a weight, 2-bit group 32 costs 2.5.
 */
import { f16Table, f32ToF16 } from "../../half.ts";
import { groupCount, type QuantizedWeights, type WeightSpec } from "../../quantized.ts";
import type { PackedLayout, PackedWeights, WeightRow } from "../contract.ts";
import { type FieldTable, fieldTables } from "./fields.ts";
import { HEADER_BYTES, writeHeader } from "./header.ts";

const ROWS = 16;
const LANE_BYTES = 4;
const VECTOR_BYTES = ROWS * LANE_BYTES;
/** All field tables divide 32 consecutive k. */
const K_STEP = 32;

/** Offsets, in bytes, of the parts of a buffer. */
export interface PanelGeometry {
  readonly groups: number;
  /** Weights of a group as stored, a multiple of 32. */
  readonly groupLength: number;
  readonly scaleBytes: number;
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

export function panelGeometry(spec: WeightSpec, hasBias: boolean): PanelGeometry {
  const groups = groupCount(spec);
  const groupLength = roundUp(Math.min(spec.groupSize, spec.k), K_STEP);
  const scaleBytes = spec.scaleDType === "f16" ? 2 : 4;
  const zerosOffset = ROWS * scaleBytes;
  const vectorsOffset = zerosOffset + (spec.hasZeros ? ROWS : 0);
  const groupBytes = vectorsOffset + (ROWS * groupLength * spec.bits) / 8;
  const correctionOffset = groups * groupBytes;
  const biasOffset = correctionOffset + 4 * ROWS;
  const panelBytes = roundUp(biasOffset + (hasBias ? 4 * ROWS : 0), 64);
  const panels = Math.ceil(spec.n / ROWS);
  return {
    groups,
    groupLength,
    scaleBytes,
    zerosOffset,
    vectorsOffset,
    groupBytes,
    correctionOffset,
    biasOffset,
    panelBytes,
    panels,
  };
}

function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}

export const panel16: PackedLayout = {
  id: 1,
  name: "panel16",
  nr: ROWS,
  kr: LANE_BYTES,
  sr: 1,

  refusal(spec) {
    if (spec.hasLevels && spec.bits > 4) return `codebooks of more than 4 bits are not stored, found ${spec.bits}`;
    return null;
  },

  byteLength(spec, hasBias) {
    const { panels, panelBytes } = panelGeometry(spec, hasBias);
    return HEADER_BYTES + panels * panelBytes;
  },

  pack(weights, bias, target) {
    const geometry = panelGeometry(weights, bias !== null);
    const view = new DataView(target.buffer, target.byteOffset, target.length);
    for (let row = 0; row < weights.n; row++) {
      const panel = HEADER_BYTES + Math.floor(row / ROWS) * geometry.panelBytes;
      const lane = row % ROWS;
      for (let group = 0; group < geometry.groups; group++) {
        const start = panel + group * geometry.groupBytes;
        const index = row * geometry.groups + group;
        const scale = weights.scales[index]!;
        if (weights.scaleDType === "f16") view.setUint16(start + 2 * lane, f32ToF16(scale), true);
        else view.setFloat32(start + 4 * lane, scale, true);
        if (weights.zeros) target[start + geometry.zerosOffset + lane] = weights.zeros[index]!;
        packGroup(weights, row, group, target, start + geometry.vectorsOffset + lane * LANE_BYTES);
      }
      view.setFloat32(panel + geometry.correctionOffset + 4 * lane, correction(weights, row), true);
      if (bias) view.setFloat32(panel + geometry.biasOffset + 4 * lane, bias[row]!, true);
    }
    writeHeader(target, panel16, { spec: weights, hasBias: bias !== null, levels: weights.levels });
  },

  readRow(packed, row, target) {
    const { spec, bytes } = packed;
    const geometry = panelGeometry(spec, packed.hasBias);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const panel = HEADER_BYTES + Math.floor(row / ROWS) * geometry.panelBytes;
    const lane = row % ROWS;
    const halves = f16Table();
    const fields = fieldTables[spec.bits]!;
    for (let group = 0; group < geometry.groups; group++) {
      const start = panel + group * geometry.groupBytes;
      target.scales[group] =
        spec.scaleDType === "f16"
          ? halves[view.getUint16(start + 2 * lane, true)]!
          : view.getFloat32(start + 4 * lane, true);
      target.zeros[group] = spec.hasZeros ? view.getInt8(start + geometry.zerosOffset + lane) : 0;
      readGroup(packed, fields, group, start + geometry.vectorsOffset + lane * LANE_BYTES, target);
    }
  },

  readBias(packed, row) {
    if (!packed.hasBias) return 0;
    const { biasOffset, panelBytes } = panelGeometry(packed.spec, true);
    const offset = HEADER_BYTES + Math.floor(row / ROWS) * panelBytes + biasOffset + 4 * (row % ROWS);
    return new DataView(packed.bytes.buffer, packed.bytes.byteOffset).getFloat32(offset, true);
  },
};

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

function packGroup(weights: QuantizedWeights, row: number, group: number, target: Uint8Array, at: number): void {
  const { k, groupSize, qvals, bits } = weights;
  const { vectors, fields } = fieldTables[bits]!;
  const offset = 1 << (bits - 1);
  const first = group * groupSize;
  const count = Math.min(k, first + groupSize) - first;
  for (let i = 0; i < count; i++) {
    const unsigned = qvals[row * k + first + i]! + offset;
    const block = Math.floor(i / (4 * fields.length));
    const byte = at + block * vectors * VECTOR_BYTES + (i % 4);
    for (const piece of fields[(i >> 2) % fields.length]!) {
      const value = (unsigned >> piece.at) & ((1 << piece.width) - 1);
      target[byte + piece.vector * VECTOR_BYTES]! |= value << piece.shift;
    }
  }
}

function readGroup(packed: PackedWeights, table: FieldTable, group: number, at: number, target: WeightRow): void {
  const { k, groupSize, bits } = packed.spec;
  const { vectors, fields } = table;
  const { bytes } = packed;
  const offset = 1 << (bits - 1);
  const first = group * groupSize;
  const count = Math.min(k, first + groupSize) - first;
  const step = 4 * fields.length;
  for (let field = 0; field < fields.length; field++) {
    const pieces = fields[field]!;
    for (let j = 0; j < 4; j++) {
      let byte = at + j;
      for (let i = 4 * field + j; i < count; i += step) {
        let unsigned = 0;
        for (let p = 0; p < pieces.length; p++) {
          const { vector, shift, width, at: place } = pieces[p]!;
          unsigned |= ((bytes[byte + vector * VECTOR_BYTES]! >> shift) & ((1 << width) - 1)) << place;
        }
        target.qvals[first + i] = unsigned - offset;
        byte += vectors * VECTOR_BYTES;
      }
    }
  }
}
