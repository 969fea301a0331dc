/** What kernels know of weights in the panel layouts when they are generated, and what they are told when they run. */
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

/** The facts that code is specialised to. */
export interface PanelShape {
  /** Rows of a panel: 16, or 32 where the fields of a byte belong to different rows. */
  readonly rows: number;
  readonly bits: number;
  /** Weights of a group as stored, a multiple of 32. */
  readonly groupLength: number;
  /** Weights of a group, but for the last. */
  readonly groupSize: number;
  /** Groups with scales of their own in one as stored: 2 of 16, else 1; and of one of them what the two say. */
  readonly parts: number;
  readonly partLength: number;
  readonly partSize: number;
  /** Whether activations have a scale for each block; and such blocks of a part, or 1, and their columns as stored. */
  readonly inBlocks: boolean;
  readonly blocks: number;
  readonly blockLength: number;
  readonly scaleType: WeightSpec["scaleDType"];
  /** Whether scales are float16 that all sums may be too small by a factor for, and no minima stand beside them. */
  readonly hasHalfScales: boolean;
  readonly hasMinima: boolean;
  readonly minimaOffset: number;
  /** Of the factors of integer scales of some groups of all rows; 0 where all groups share theirs. */
  readonly superBytes: number;
  /** Groups that share a factor. */
  readonly groupsOfSuper: number;
  /** No scale is negative. */
  readonly hasPositiveScales: boolean;
  readonly hasZeros: boolean;
  readonly hasLevels: boolean;
  /** Whether levels have 7 bits. */
  readonly hasNarrowLevels: boolean;
  readonly hasBias: boolean;
  /** From the start of a group to its zero points and its vectors. */
  readonly zerosOffset: number;
  readonly vectorsOffset: number;
  readonly groupBytes: number;
}

/** The sizes that code reads when it runs. */
export interface PanelSizes {
  readonly n: number;
  readonly k: number;
  readonly groups: number;
  readonly panels: number;
  /** From the start of the buffer to the first panel's first group. */
  readonly firstPanel: number;
  /** Bytes of the factors of scales, in front of a panel's first group. */
  readonly frontBytes: number;
  readonly panelBytes: number;
  /** From the start of a panel's first group. */
  readonly correctionOffset: number;
}

const shapes = new WeakMap<PackedWeights, PanelShape>();

/** The shape of weights; worked out once for weights that are opened once. */
export function panelShape(weights: PackedWeights): PanelShape {
  const known = shapes.get(weights) ?? shapeOf(weights);
  shapes.set(weights, known);
  return known;
}

function shapeOf({ spec, hasBias, bytes, layout, levels }: PackedWeights): PanelShape {
  const { bits, k, groupSize, scaleDType: scaleType, hasZeros, hasLevels, hasMinima = false } = spec;
  const rows = layout.nr;
  const { parts, groupLength, ...places } = panelGeometry(rows, spec, hasBias);
  const { minimaOffset, superBytes, zerosOffset, vectorsOffset, groupBytes } = places;
  return {
    ...{ rows, bits, groupLength, groupSize: Math.min(parts * groupSize, k), parts },
    ...{ partLength: groupLength / parts, partSize: parts === 1 ? Math.min(groupSize, k) : groupSize },
    ...{ inBlocks: false, blocks: 1, blockLength: groupLength / parts },
    ...{ scaleType, hasHalfScales: scaleType === "f16" && !hasMinima, hasMinima },
    hasPositiveScales: bytes[HEADER_MARK] === 1,
    ...{ hasZeros, hasLevels, hasBias },
    hasNarrowLevels: levels?.every((level) => level >= -64 && level < 64) ?? false,
    ...{ minimaOffset, superBytes, groupsOfSuper: GROUPS_OF_SUPER },
    ...{ zerosOffset, vectorsOffset, groupBytes },
  };
}

const blockShapes = new WeakMap<PanelShape, PanelShape>();

/** The same weights for activations in blocks. */
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

/** Quads of a panel. */
export function quadsOf({ rows }: PanelShape): number {
  return rows / QUAD_ROWS;
}

const keys = new WeakMap<PanelShape, string>();

/** A name for code of a shape. */
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
    shape.hasZeros ? "z" : "",
    shape.hasLevels ? (shape.hasNarrowLevels ? "l7" : "l") : "",
    shape.hasBias ? "b" : "",
    shape.inBlocks ? "k" : "",
  ];
  return `w${bits}_n${shape.rows}_g${size}_${marks.join("")}`;
}
