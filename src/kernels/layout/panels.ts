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
import type { LayoutPacker, PackedLayout, PackedWeights, PackTarget, WeightRow } from "../contract.ts";
import { type FieldTable, fieldTables } from "./fields.ts";
import { HEADER_BYTES, SUMMED_COLUMNS_MAX, sizeRefusal, writeHeader } from "./header.ts";
import { GroupPacker } from "./panel-pack.ts";

/** Four consecutive k of a row are four bytes of a vector. */
const KR = 4;
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
export interface PanelGeometry {
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

export function panelGeometry(rows: number, spec: WeightSpec, hasBias: boolean): PanelGeometry {
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
      if (spec.k > SUMMED_COLUMNS_MAX) return `k may be ${SUMMED_COLUMNS_MAX} at most, not ${spec.k}`;
      return sizeRefusal(spec);
    },

    byteLength(spec, hasBias) {
      const { panels, panelBytes } = panelGeometry(rows, spec, hasBias);
      return HEADER_BYTES + panels * panelBytes;
    },

    packer: (target) => new PanelPacker(options, layout, target),

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

/** Packs rows of one buffer. */
class PanelPacker implements LayoutPacker {
  readonly #options: PanelOptions;
  readonly #layout: PackedLayout;
  readonly #spec: WeightSpec;
  readonly #bias: Float32Array | null;
  readonly #target: Uint8Array;
  readonly #view: DataView;
  readonly #geometry: PanelGeometry;
  readonly #groups: GroupPacker;
  #levels: Int8Array | null = null;
  #hasNegativeScale = false;

  constructor(options: PanelOptions, layout: PackedLayout, { spec, bias, target }: PackTarget) {
    this.#options = options;
    this.#layout = layout;
    this.#spec = spec;
    this.#bias = bias;
    this.#target = target;
    this.#view = new DataView(target.buffer, target.byteOffset, target.length);
    this.#geometry = panelGeometry(options.rows, spec, bias !== null);
    this.#groups = new GroupPacker(options, spec.bits, Math.min(spec.groupSize, spec.k), target);
  }

  add(part: QuantizedWeights, firstRow: number): void {
    this.#levels = part.levels;
    this.#groups.from(part.qvals);
    for (let row = 0; row < part.n; row++) this.#addRow(part, row, firstRow + row);
  }

  finish(): void {
    if (this.#options.flip) flipVectors(this.#options.flip, this.#geometry, this.#target);
    const content = { spec: this.#spec, hasBias: this.#bias !== null, levels: this.#levels };
    writeHeader(this.#target, this.#layout, { ...content, mark: this.#hasNegativeScale ? 0 : 1 });
  }

  /** The correction is the sum of (level - zero) * scale over the row, in double precision. */
  #addRow(part: QuantizedWeights, from: number, row: number): void {
    const { rows } = this.#options;
    const { groups, groupBytes, zerosOffset, vectorsOffset, panelBytes } = this.#geometry;
    const { k, groupSize, scales, zeros, scaleDType } = part;
    const panel = HEADER_BYTES + Math.floor(row / rows) * panelBytes;
    const lane = row % rows;
    let correction = 0;
    for (let group = 0; group < groups; group++) {
      const start = panel + group * groupBytes;
      const index = from * groups + group;
      const scale = scales[index]!;
      const zero = zeros ? zeros[index]! : 0;
      if (!(scale > 0) && (scale < 0 || Object.is(scale, -0))) this.#hasNegativeScale = true;
      if (scaleDType === "f16") this.#view.setUint16(start + 2 * lane, f32ToF16(scale), true);
      else this.#view.setFloat32(start + 4 * lane, scale, true);
      if (zeros) this.#view.setInt8(start + zerosOffset + lane, zero);
      const first = from * k + group * groupSize;
      const count = Math.min(k - group * groupSize, groupSize);
      const sum = this.#groups.pack(first, count, lane, start + vectorsOffset);
      correction += ((part.levels ? levelSum(part, first, count) : sum) - count * zero) * scale;
    }
    this.#view.setFloat32(panel + this.#geometry.correctionOffset + 4 * lane, correction, true);
    if (this.#bias) this.#view.setFloat32(panel + this.#geometry.biasOffset + 4 * lane, this.#bias[row]!, true);
  }
}

/** Sum of the codebook's levels of `count` weights. */
function levelSum({ bits, qvals, levels }: QuantizedWeights, first: number, count: number): number {
  const offset = 1 << (bits - 1);
  let sum = 0;
  for (let i = first; i < first + count; i++) sum += levels![qvals[i]! + offset]!;
  return sum;
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
