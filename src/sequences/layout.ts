/** Layout of pages and states: where each layer's keys and values lie, and how much memory that takes. */
import { checkWhole } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import {
  INT4_POSITIONS,
  type KvCacheType,
  kvCacheTypes,
  type LayerCacheShape,
  partOffsets,
  type SequenceUse,
} from "../kernels/sequence-table.ts";
import { blockSize, limitFor } from "./block-pool.ts";
import { blockSizes, firstPageKept, type PageShape } from "./page-store.ts";

/** Options of the KV cache, chosen when a program is loaded. */
export interface SequenceOptions {
  /** Type of keys and values. */
  readonly type: KvCacheType;
  /** Most tokens of a sequence. */
  readonly contextLength: number;
  /** Most sequences of a step. */
  readonly sequences: number;
  /** Most bytes of keys, values and states of all sequences together. */
  readonly cacheBytes: number;
  /** Most tokens of a sequence in one step. Default: the tokens of a page. */
  readonly stepTokens?: number | undefined;
  /** Positions of a page, a power of two. Default: 32; int4 always has 64. */
  readonly pagePositions?: number | undefined;
}

/** Layers with the same shapes: their keys and values are in one block of each page. */
interface LayerKind extends LayerCacheShape {
  readonly type: KvCacheType;
  readonly layers: number;
  /** Bytes of one layer's keys and values in a page. */
  readonly layerBytes: number;
}

export interface SequenceLayout {
  readonly type: KvCacheType;
  readonly slots: number;
  readonly pagePositions: number;
  readonly pagesMax: number;
  /**
   * Kinds of layers. For int4, a second half of the list has each kind's residual: the same in f16, for pages that are not
   * full.
   */
  readonly kinds: readonly LayerKind[];
  /** Kind of each layer, by its number in the program, and its index within the kind. */
  readonly layers: ReadonlyMap<number, { readonly kind: number; readonly number: number }>;
  readonly states: ReadonlyMap<number, { readonly offset: number; readonly byteLength: number }>;
  readonly shape: PageShape;
}

const PAGE_POSITIONS = 32;
/** Kernels count with 32-bit integers. */
const COUNT_MAX = 2 ** 31 - 1;
/** States of a sequence in a step: the one to read, the one to write, and the zero state. */
const STATES_OF_SEQUENCE = 3;

/**
 * Computes the layout. InvalidArgumentError for options out of range, and for calls of one layer with different cache
 * shapes.
 */
export function sequenceLayout(
  uses: readonly SequenceUse[],
  options: Omit<SequenceOptions, "cacheBytes">,
): SequenceLayout {
  const { type, contextLength, sequences } = options;
  const pagePositions = options.pagePositions ?? (type === "int4" ? INT4_POSITIONS : PAGE_POSITIONS);
  if (!kvCacheTypes.includes(type))
    throw new InvalidArgumentError(`type: expected one of ${kvCacheTypes.join(", ")} but found ${type}`);
  checkWhole("contextLength", contextLength, 1, COUNT_MAX);
  checkWhole("sequences", sequences, 1, COUNT_MAX);
  checkWhole("pagePositions", pagePositions, 1, COUNT_MAX);
  if ((pagePositions & (pagePositions - 1)) !== 0)
    throw new InvalidArgumentError(`pagePositions: expected a power of two but found ${pagePositions}`);
  if (type === "int4" && pagePositions !== INT4_POSITIONS)
    throw new InvalidArgumentError(`pagePositions: expected ${INT4_POSITIONS} of int4 but found ${pagePositions}`);
  const shapes: (LayerCacheShape & { count: number; layerBytes: number })[] = [];
  const layers = new Map<number, { kind: number; number: number }>();
  for (const { layer, kvHeads, headDim, window } of cacheUses(uses, contextLength)) {
    let kind = shapes.findIndex((shape) => isSameKind(shape, { kvHeads, headDim, window }));
    if (kind < 0) {
      const { layerBytes } = partOffsets({ type, kvHeads, headDim, pagePositions });
      kind = shapes.push({ kvHeads, headDim, window, count: 0, layerBytes }) - 1;
    }
    layers.set(layer, { kind, number: shapes[kind]!.count++ });
  }
  const own = shapes.map(({ count, ...shape }): LayerKind => ({ type, ...shape, layers: count }));
  const kinds = type === "int4" ? [...own, ...own.map((kind) => residualKind(kind, pagePositions))] : own;
  const { states, stateBytes } = placeStates(uses);
  return {
    type,
    slots: sequences,
    pagePositions,
    pagesMax: Math.ceil(contextLength / pagePositions),
    kinds,
    layers,
    states,
    shape: {
      positions: pagePositions,
      kinds: kinds.map(({ window, layers, layerBytes }, i) => {
        const isResidual = i >= own.length;
        return { window, byteLength: layers * layerBytes, isResidual };
      }),
      stateBytes,
    },
  };
}

/** The residual of a kind of int4: f16, with the window 1, since only the page of the next token is read. */
function residualKind(kind: LayerKind, pagePositions: number): LayerKind {
  const { layerBytes } = partOffsets({ ...kind, type: "f16", pagePositions });
  return { ...kind, type: "f16", window: 1, layerBytes };
}

/**
 * The least `cacheBytes` with which one sequence can grow to `positions` tokens, `stepTokens` at a time, whatever else is
 * cached.
 */
export function bytesForSequence({ shape }: SequenceLayout, positions: number, stepTokens: number): number {
  return limitFor(blockSizes(shape), blocksOf(shape, positions, stepTokens));
}

/** The longest context, up to `most`, of which `cacheBytes` hold one sequence; 0 when they do not hold a step. */
export function positionsWithin(layout: SequenceLayout, cacheBytes: number, most: number, stepTokens: number): number {
  const fits = (positions: number) =>
    bytesForSequence(layout, positions, Math.min(stepTokens, positions)) <= cacheBytes;
  let low = 0;
  let high = most;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Most pages of one sequence at once, by kind; a shared page that is written is copied, which takes one more. */
function blocksOf(shape: PageShape, positions: number, stepTokens: number): number[] {
  const pages = Math.ceil(positions / shape.positions);
  const counts = shape.kinds.map(({ window }, kind) => {
    if (window === 0) return pages + 1;
    const start = Math.max(0, positions - stepTokens);
    return pages - firstPageKept(shape, kind, start) + 1;
  });
  return shape.stateBytes > 0 ? [...counts, STATES_OF_SEQUENCE] : counts;
}

function isSameKind(a: LayerCacheShape, b: LayerCacheShape): boolean {
  return a.kvHeads === b.kvHeads && a.headDim === b.headDim && a.window === b.window;
}

/** The cache shape of each layer, by number; of several calls, the longest window counts. */
function cacheUses(uses: readonly SequenceUse[], contextLength: number): (LayerCacheShape & { layer: number })[] {
  const known = new Map<number, LayerCacheShape & { layer: number }>();
  for (const use of uses) {
    if (use.kind !== "cache") continue;
    const { layer, kvHeads, headDim } = use;
    const window = use.window < contextLength ? use.window : 0;
    const other = known.get(layer) ?? use;
    if (other.kvHeads !== kvHeads || other.headDim !== headDim)
      throw new InvalidArgumentError(
        `layer ${layer}: expected keys and values of one shape but found [${other.kvHeads}, ${other.headDim}] and [${kvHeads}, ${headDim}]`,
      );
    const isAll = window === 0 || (other !== use && other.window === 0);
    known.set(layer, { layer, kvHeads, headDim, window: isAll ? 0 : Math.max(window, other.window) });
  }
  return [...known.values()].sort((a, b) => a.layer - b.layer);
}

function placeStates(uses: readonly SequenceUse[]): {
  states: Map<number, { offset: number; byteLength: number }>;
  stateBytes: number;
} {
  const states = new Map<number, { offset: number; byteLength: number }>();
  let stateBytes = 0;
  for (const use of uses) {
    if (use.kind !== "state") continue;
    const known = states.get(use.index);
    if (known && known.byteLength !== use.byteLength)
      throw new InvalidArgumentError(
        `state ${use.index}: expected one size but found ${known.byteLength} and ${use.byteLength} bytes`,
      );
    if (known) continue;
    states.set(use.index, { offset: stateBytes, byteLength: use.byteLength });
    stateBytes += blockSize(use.byteLength);
  }
  return { states, stateBytes };
}
