/**
 * The panel layouts, apart from where a weight lies in the vectors of its group:
 *
 *     header, 64 bytes
 *     per panel of rows (n padded with zero rows), rounded up to 64 bytes:
 *       [per 256 k, where scales are integers: their factors f16, one a row; those of minima likewise] up to 64 bytes
 *       [where scales are e4m3: their factors f32, one a row] up to 64 bytes
 *       per group (k padded to a multiple of 32 inside each group), or per two groups of 16 whose scales take a byte:
 *         scales, one a row and group (f16, f32, i8 or e4m3)    [minima likewise, negated]    [zero points i8, one a row,
 *         unless the parity of integer scales tells them]
 *         vectors
 *       corrections f32, one a row: the sum of the row's weights, for the activation zero point
 *       [biases f32, one a row]
 *
 * Integers are stored unsigned, q + 2^(bits-1). 4-bit groups of 32 take 4.5 bits per weight and 2-bit groups of 32 take 2.5;
 * GGUF's Q4_K takes 4.625, Q6_K 6.5625, NVFP4 4.5.
 */
import { e4m3Table } from "../../float8.ts";
import { f16Table } from "../../half.ts";
import { storesZeros, type WeightSpec } from "../../quantized.ts";
import type { PackedLayout, PackedWeights, WeightRow } from "../contract.ts";
import { type FieldTable, fieldTables } from "./fields.ts";
import { HEADER_BYTES, SUMMED_COLUMNS_MAX, sizeRefusal } from "./header.ts";
import { type PanelGeometry, panelGeometry, scaleBytes } from "./panel-geometry.ts";
import { PanelPacker } from "./panel-packer.ts";

/** Consecutive k of a row that are four bytes of a vector. */
const KR = 4;
/** Widths that support groups of 16 with integer scales. */
const PAIRED_BITS: readonly number[] = [2, 3, 4, 6];
/** Group size and bits of weights with e4m3 scales: NVFP4. */
const E4M3_GROUP = 16;
const E4M3_BITS = 4;
/** Properties of a particular panel layout. */
export interface PanelOptions extends Pick<PackedLayout, "id" | "name" | "suits"> {
  /** Rows of a panel. */
  readonly rows: number;
  /** Bytes of a vector. */
  readonly vectorBytes: number;
  /** Mask that stored vector bytes are XORed with. */
  readonly flip: number;
  /** Byte offset, from a group's first vector, of weights 4 step .. 4 step + 3 of row `lane` in their first vector. */
  byteOf(table: FieldTable, lane: number, step: number): number;
  /** Index of their field in the table. */
  fieldOf(table: FieldTable, lane: number, step: number): number;
}

/** Makes a panel layout. */
export function panelLayout(options: PanelOptions): PackedLayout {
  const { id, name, suits, rows } = options;
  const geometries = new WeakMap<PackedWeights, PanelGeometry>();
  const geometryOf = (packed: PackedWeights): PanelGeometry => {
    const known = geometries.get(packed);
    if (known) return known;
    const geometry = panelGeometry(rows, packed.spec, packed.hasBias);
    geometries.set(packed, geometry);
    return geometry;
  };
  const layout: PackedLayout = {
    id,
    name,
    ...(suits && { suits }),
    nr: rows,
    kr: KR,
    sr: 1,
    isOfPanels: true,

    refusal(spec) {
      if (spec.hasLevels && spec.bits > 4) return `codebooks of more than 4 bits are not stored, found ${spec.bits}`;
      if (spec.k > SUMMED_COLUMNS_MAX) return `k may be ${SUMMED_COLUMNS_MAX} at most, not ${spec.k}`;
      return scaleRefusal(spec) ?? oddZeroRefusal(spec) ?? sizeRefusal(spec);
    },

    byteLength(spec, hasBias) {
      const { panels, panelBytes } = panelGeometry(rows, spec, hasBias);
      return HEADER_BYTES + panels * panelBytes;
    },

    packer: (target) => new PanelPacker(options, layout, target),

    readRow(packed, row, target) {
      const geometry = geometryOf(packed);
      const { parts, groupBytes, vectorsOffset } = geometry;
      const panel = geometry.firstPanel + Math.floor(row / rows) * geometry.panelBytes;
      const lane = row % rows;
      const readScales = scaleReader(packed, geometry, rows);
      for (let group = 0; group < target.scales.length; group++) {
        const part = group % parts;
        const start = panel + Math.floor(group / parts) * groupBytes;
        const place = { lane, group, part, start };
        readScales(place, target);
        readGroup(options, packed, place, start + vectorsOffset, target);
      }
    },

    readBias(packed, row) {
      if (!packed.hasBias) return 0;
      const { firstPanel, biasOffset, panelBytes } = geometryOf(packed);
      const offset = firstPanel + Math.floor(row / rows) * panelBytes + biasOffset + 4 * (row % rows);
      return new DataView(packed.bytes.buffer, packed.bytes.byteOffset).getFloat32(offset, true);
    },
  };
  return layout;
}

/** Why scales and minima cannot be stored exactly; null if they can. */
function scaleRefusal({ bits, groupSize, scaleDType, hasMinima, hasZeros, hasLevels }: WeightSpec): string | null {
  if (hasMinima && (hasZeros || hasLevels)) return "minima are stored neither with zero points nor with codebooks";
  if (scaleDType === "e4m3") {
    if (groupSize === E4M3_GROUP && bits === E4M3_BITS && hasLevels && !hasZeros) return null;
    return `scales are e4m3 in groups of ${E4M3_GROUP} of a codebook of ${E4M3_BITS} bits without zero points`;
  }
  const isPaired = groupSize === 16 && PAIRED_BITS.includes(bits);
  if (scaleDType !== "i8" || groupSize === 32 || isPaired) return null;
  return `scales are integers in groups of 32, or of 16 where weights have ${PAIRED_BITS.join(", ")} bits, not of ${groupSize} with ${bits} bits`;
}

/** Why zero points of odd scales cannot be read; null if they can, or if there are none. */
function oddZeroRefusal({ scaleDType, hasZeros, hasLevels, oddZero }: WeightSpec): string | null {
  if (oddZero === undefined || (scaleDType === "i8" && hasZeros && hasLevels)) return null;
  return "zero points of odd scales are for codebooks with integer scales";
}

/** A group of a row: its lane, its index, its part of the stored group, and where that begins. */
interface GroupPlace {
  readonly lane: number;
  readonly group: number;
  readonly part: number;
  readonly start: number;
}

/** Makes a reader of scale, zero point and minimum of a group. */
function scaleReader({ spec, bytes }: PackedWeights, geometry: PanelGeometry, rows: number) {
  const { minimaOffset, zerosOffset, frontBytes, superBytes, firstPanel, groupBytes, panelBytes } = geometry;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const halves = f16Table();
  const { scaleDType, hasMinima, oddZero = 0 } = spec;
  const hasStoredZeros = storesZeros(spec);
  const factorBytes = scaleDType === "e4m3" ? 4 : 2;
  /** The scale or minimum at `at`, times its factor at `factor` for factored types. */
  const valueAt = (at: number, factor: number) => {
    if (scaleDType === "f32") return view.getFloat32(at, true);
    if (scaleDType === "f16") return halves[view.getUint16(at, true)]!;
    if (scaleDType === "e4m3") return e4m3Table()[view.getUint8(at)]! * view.getFloat32(factor, true);
    return view.getInt8(at) * halves[view.getUint16(factor, true)]!;
  };
  return ({ lane, group, part, start }: GroupPlace, target: WeightRow): void => {
    const inPanel = (start - firstPanel) % panelBytes;
    const factors =
      start - inPanel - frontBytes + Math.floor(inPanel / groupBytes / 8) * superBytes + factorBytes * lane;
    const at = start + scaleBytes[scaleDType] * (part * rows + lane);
    target.scales[group] = valueAt(at, factors);
    target.zeros[group] = hasStoredZeros ? view.getInt8(start + zerosOffset + lane) : oddZero * (view.getInt8(at) & 1);
    target.minima[group] = hasMinima ? 0 - valueAt(at + minimaOffset, factors + 2 * rows) : 0;
  };
}

function readGroup(
  options: PanelOptions,
  packed: PackedWeights,
  { lane, group, part }: GroupPlace,
  at: number,
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
    const step = (part * groupSize + i) / KR;
    const start = at + options.byteOf(table, lane, step);
    const pieces = table.fields[options.fieldOf(table, lane, step)]!;
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
