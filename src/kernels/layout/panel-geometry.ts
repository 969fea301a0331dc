/** Offsets of the parts of a buffer in a panel layout, which panels.ts describes. */
import { hasFactors, SUPER_GROUP, storesZeros, superGroupCount, type WeightSpec } from "../../quantized.ts";
import { HEADER_BYTES } from "./header.ts";

/** All field tables fit 32 consecutive k. */
const K_STEP = 32;
const PAIRED_GROUP = 16;

/** Bytes of a scale or minimum. */
export const scaleBytes = { f32: 4, f16: 2, i8: 1, e4m3: 1 } as const;

/** Byte offsets and counts of the parts of a buffer. */
export interface PanelGeometry {
  /** Stored groups of a row: two groups of 16 with one-byte scales are stored as one. */
  readonly groups: number;
  /** Groups of the weights in a stored group: 1 or 2. */
  readonly parts: number;
  /** Weights of a stored group. */
  readonly groupLength: number;
  /** Offset of the first group of the first panel. */
  readonly firstPanel: number;
  /**
   * Bytes of the scale factors before a panel's first group, and, for integer scales, of those of one super-group of
   * `SUPER_GROUP` weights.
   */
  readonly frontBytes: number;
  readonly superBytes: number;
  /** Offsets in a group of its minima, zero points and vectors. */
  readonly minimaOffset: number;
  readonly zerosOffset: number;
  readonly vectorsOffset: number;
  readonly groupBytes: number;
  /** Offsets from a panel's first group. */
  readonly correctionOffset: number;
  readonly biasOffset: number;
  readonly panelBytes: number;
  readonly panels: number;
}

/** Stored groups that share a factor of integer scales. */
export const GROUPS_OF_SUPER = SUPER_GROUP / K_STEP;

/** The geometry of panels of `rows` rows. */
export function panelGeometry(rows: number, spec: WeightSpec, hasBias: boolean): PanelGeometry {
  const { k, bits, scaleDType, hasMinima = false } = spec;
  const parts = hasFactors(spec) && spec.groupSize === PAIRED_GROUP ? 2 : 1;
  const groupSize = parts * spec.groupSize;
  const groups = Math.ceil(k / groupSize);
  const groupLength = roundUp(Math.min(groupSize, k), K_STEP);
  const superBytes = scaleDType === "i8" ? 2 * rows * (hasMinima ? 2 : 1) : 0;
  const frontBytes = roundUp(scaleDType === "e4m3" ? 4 * rows : superGroupCount(spec) * superBytes, 64);
  const minimaOffset = parts * rows * scaleBytes[scaleDType];
  const zerosOffset = hasMinima ? 2 * minimaOffset : minimaOffset;
  const vectorsOffset = zerosOffset + (storesZeros(spec) ? rows : 0);
  const groupBytes = vectorsOffset + (rows * groupLength * bits) / 8;
  const correctionOffset = groups * groupBytes;
  const biasOffset = correctionOffset + 4 * rows;
  const panelBytes = roundUp(frontBytes + biasOffset + (hasBias ? 4 * rows : 0), 64);
  const panels = Math.ceil(spec.n / rows);
  return {
    ...{ groups, parts, groupLength, firstPanel: HEADER_BYTES + frontBytes, frontBytes, superBytes },
    ...{ minimaOffset, zerosOffset, vectorsOffset, groupBytes, correctionOffset, biasOffset, panelBytes, panels },
  };
}

function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}
