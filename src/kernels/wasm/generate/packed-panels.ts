/** What kernels know of weights in the panel layouts when they are generated, and what they are told when they run. */
import { groupCount } from "../../../quantized.ts";
import type { PackedWeights } from "../../contract.ts";
import { HEADER_BYTES } from "../../layout/header.ts";

/** Rows of a panel16 panel. */
export const PANEL_ROWS = 16;
/** Rows of a 128-bit vector, four bytes each: a quad. */
const QUAD_ROWS = 4;
/** Quads of a panel16 panel. */
export const QUADS = PANEL_ROWS / QUAD_ROWS;
const K_STEP = 32;
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
  readonly hasHalfScales: boolean;
  /** No scale is negative. */
  readonly hasPositiveScales: boolean;
  readonly hasZeros: boolean;
  readonly hasLevels: boolean;
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
  readonly panelBytes: number;
  /** From the start of a panel. */
  readonly correctionOffset: number;
}

const shapes = new WeakMap<PackedWeights, PanelShape>();

/** The shape of weights; worked out once for weights that are opened once. */
export function panelShape(weights: PackedWeights): PanelShape {
  const known = shapes.get(weights) ?? shapeOf(weights);
  shapes.set(weights, known);
  return known;
}

function shapeOf({ spec, hasBias, bytes, layout }: PackedWeights): PanelShape {
  const { bits, k, groupSize, scaleDType, hasZeros, hasLevels } = spec;
  const length = Math.min(groupSize, k);
  const groupLength = Math.ceil(length / K_STEP) * K_STEP;
  const rows = layout.nr;
  const zerosOffset = rows * (scaleDType === "f16" ? 2 : 4);
  const vectorsOffset = zerosOffset + (hasZeros ? rows : 0);
  return {
    rows,
    bits,
    groupLength,
    groupSize: length,
    hasHalfScales: scaleDType === "f16",
    hasPositiveScales: bytes[HEADER_MARK] === 1,
    hasZeros,
    hasLevels,
    hasBias,
    zerosOffset,
    vectorsOffset,
    groupBytes: vectorsOffset + (rows * groupLength * bits) / 8,
  };
}

export function panelSizes({ spec, hasBias }: PackedWeights, shape: PanelShape): PanelSizes {
  const groups = groupCount(spec);
  const correctionOffset = groups * shape.groupBytes;
  const used = correctionOffset + 4 * shape.rows * (hasBias ? 2 : 1);
  const panels = Math.ceil(spec.n / shape.rows);
  return { n: spec.n, k: spec.k, groups, panels, panelBytes: Math.ceil(used / 64) * 64, correctionOffset };
}

/** Quads of a panel. */
export function quadsOf({ rows }: PanelShape): number {
  return rows / QUAD_ROWS;
}

/** Where the panels begin in a buffer. */
export const PANELS_OFFSET = HEADER_BYTES;

const keys = new WeakMap<PanelShape, string>();

/** A name for code of a shape. */
export function shapeKey(shape: PanelShape): string {
  const known = keys.get(shape) ?? keyOf(shape);
  keys.set(shape, known);
  return known;
}

function keyOf(shape: PanelShape): string {
  const { bits, groupLength, groupSize } = shape;
  const size = groupLength === groupSize ? `${groupSize}` : `${groupSize}of${groupLength}`;
  const marks = [
    shape.hasHalfScales ? "h" : "f",
    shape.hasPositiveScales ? "" : "n",
    shape.hasZeros ? "z" : "",
    shape.hasLevels ? "l" : "",
    shape.hasBias ? "b" : "",
  ];
  return `w${bits}_n${shape.rows}_g${size}_${marks.join("")}`;
}
