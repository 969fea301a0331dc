/** Properties of weights in the panel layouts: those that code is generated for, and those that it reads at run time. */
import type { WeightSpec } from "../../../quantized.ts";
import type { PackedWeights } from "../../contract.ts";
import { BLOCK_COLUMNS } from "../../families/linear/activations.ts";
import { GROUPS_OF_SUPER, panelGeometry } from "../../layout/panel-geometry.ts";

/** Rows of a panel16 panel. */
export const PANEL_ROWS = 16;
/** Rows of a 128-bit vector, four bytes each: a quad. */
const QUAD_ROWS = 4;
/** Quads of a panel16 panel. */
export const QUADS = PANEL_ROWS / QUAD_ROWS;
const HEADER_MARK = 15;
export const LEVELS_OFFSET = 40;

/** Properties that code is specialised for. */
export interface PanelShape {
  /** Rows of a panel: 16, or 32 where the bit fields of a byte belong to different rows. */
  readonly rows: number;
  readonly bits: number;
  /** Weights of a stored group, a multiple of 32. */
  readonly groupLength: number;
  /** Weights of a stored group without padding; the last one may have fewer. */
  readonly groupSize: number;
  /**
   * Groups with their own scales in a stored group: 2 for groups of 16, else 1; and the padded and unpadded length of one of
   * them.
   */
  readonly parts: number;
  readonly partLength: number;
  readonly partSize: number;
  /** Whether activations are quantized in blocks; number of blocks in a part, otherwise 1; and the padded length of a block. */
  readonly inBlocks: boolean;
  readonly blocks: number;
  readonly blockLength: number;
  readonly scaleType: WeightSpec["scaleDType"];
  /**
   * Whether scales are float16 without minima, loaded too small by a constant factor that sums are multiplied by at the end.
   */
  readonly hasHalfScales: boolean;
  readonly hasMinima: boolean;
  readonly minimaOffset: number;
  /** Bytes of the factors of one super-group of integer scales for all rows; 0 where all groups share their factor. */
  readonly superBytes: number;
  /** Stored groups that share a factor. */
  readonly groupsOfSuper: number;
  /** Whether no scale is negative. */
  readonly hasPositiveScales: boolean;
  readonly hasZeros: boolean;
  /** Zero point of groups whose integer scale is odd, where zero points are not stored; else 0. */
  readonly oddZero: number;
  readonly hasLevels: boolean;
  /** Whether levels fit 7 bits. */
  readonly hasNarrowLevels: boolean;
  readonly hasBias: boolean;
  /** Byte offsets in a group of its zero points and its vectors. */
  readonly zerosOffset: number;
  readonly vectorsOffset: number;
  readonly groupBytes: number;
}

/** Sizes that code reads at run time. */
export interface PanelSizes {
  readonly n: number;
  readonly k: number;
  readonly groups: number;
  readonly panels: number;
  /** Offset of the first panel's first group in the buffer. */
  readonly firstPanel: number;
  /** Bytes of the scale factors before a panel's first group. */
  readonly frontBytes: number;
  readonly panelBytes: number;
  /** Offset from a panel's first group. */
  readonly correctionOffset: number;
}

const shapes = new WeakMap<PackedWeights, PanelShape>();

/** The shape of weights, computed once for opened weights. */
export function panelShape(weights: PackedWeights): PanelShape {
  const known = shapes.get(weights) ?? shapeOf(weights);
  shapes.set(weights, known);
  return known;
}

function shapeOf({ spec, hasBias, bytes, layout, levels }: PackedWeights): PanelShape {
  const { bits, k, groupSize, scaleDType: scaleType, hasZeros, hasLevels, hasMinima = false, oddZero = 0 } = spec;
  const rows = layout.nr;
  const { parts, groupLength, ...places } = panelGeometry(rows, spec, hasBias);
  const { minimaOffset, superBytes, zerosOffset, vectorsOffset, groupBytes } = places;
  return {
    ...{ rows, bits, groupLength, groupSize: Math.min(parts * groupSize, k), parts },
    ...{ partLength: groupLength / parts, partSize: parts === 1 ? Math.min(groupSize, k) : groupSize },
    ...{ inBlocks: false, blocks: 1, blockLength: groupLength / parts },
    ...{ scaleType, hasHalfScales: scaleType === "f16" && !hasMinima, hasMinima },
    hasPositiveScales: bytes[HEADER_MARK] === 1,
    ...{ hasZeros, oddZero, hasLevels, hasBias },
    hasNarrowLevels: levels?.every((level) => level >= -64 && level < 64) ?? false,
    ...{ minimaOffset, superBytes, groupsOfSuper: GROUPS_OF_SUPER },
    ...{ zerosOffset, vectorsOffset, groupBytes },
  };
}

const blockShapes = new WeakMap<PanelShape, PanelShape>();

/** The shape for activations quantized in blocks. */
export function inBlocks(shape: PanelShape): PanelShape {
  const blockLength = Math.min(shape.partLength, BLOCK_COLUMNS);
  const made = { inBlocks: true, blocks: shape.partLength / blockLength, blockLength, hasHalfScales: false };
  const known = blockShapes.get(shape) ?? { ...shape, ...made };
  blockShapes.set(shape, known);
  return known;
}

export function panelSizes({ spec, hasBias }: PackedWeights, { rows }: PanelShape): PanelSizes {
  const { groups, panels, panelBytes, correctionOffset, firstPanel, frontBytes } = panelGeometry(rows, spec, hasBias);
  return { n: spec.n, k: spec.k, groups, panels, panelBytes, correctionOffset, firstPanel, frontBytes };
}

/** Number of quads in a panel. */
export function quadsOf({ rows }: PanelShape): number {
  return rows / QUAD_ROWS;
}

const keys = new WeakMap<PanelShape, string>();

/** Key of code for a shape. */
export function shapeKey(shape: PanelShape): string {
  const known = keys.get(shape) ?? keyOf(shape);
  keys.set(shape, known);
  return known;
}

function keyOf(shape: PanelShape): string {
  const { bits, groupLength, groupSize, parts } = shape;
  const length = groupLength === groupSize ? `${groupSize}` : `${groupSize}of${groupLength}`;
  const size = `${length}${parts > 1 ? "p" : ""}`;
  const marks = [
    { f32: "f", f16: "h", i8: "i", e4m3: "e" }[shape.scaleType],
    shape.hasMinima ? "m" : "",
    shape.hasPositiveScales ? "" : "n",
    shape.oddZero !== 0 ? `z${shape.oddZero}` : shape.hasZeros ? "z" : "",
    shape.hasLevels ? (shape.hasNarrowLevels ? "l7" : "l") : "",
    shape.hasBias ? "b" : "",
    shape.inBlocks ? "k" : "",
  ];
  return `w${bits}_n${shape.rows}_g${size}_${marks.join("")}`;
}
