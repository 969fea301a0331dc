/** Arguments of several families that native code gets as several fields: weights, indices, tables of sequences. */
import type { DType } from "../dtype.ts";
import type { PackedWeights } from "./contract.ts";
import { type ArrayField, choice, type RecordField, size, unsized, whole } from "./declaration.ts";
import { kvCacheTypes, type LayerPages, partOffsets, type SequenceTable, type StatePart } from "./sequence-table.ts";

/** Float weights as stored: f32 values, or f16 or bf16 bit patterns. */
export interface FloatWeights {
  readonly dtype: DType;
  readonly data: Float32Array | Uint16Array;
}

/** Types of float weights, as native/half.h numbers them. */
export const floatTypes = ["f32", "f16", "bf16"] as const satisfies readonly DType[];

/** Float weights of these sizes. */
/* @__NO_SIDE_EFFECTS__ */
export function floatWeights<N extends string>(...sizes: readonly N[]): RecordField<FloatWeights, never, N> {
  return {
    kind: "record",
    fields: (name) => ({
      [name]: { kind: "array", type: "any", access: "read", sizes, isOptional: false } satisfies ArrayField,
      [`${name}Type`]: choice(floatTypes),
    }),
    values: ({ data, dtype }, name) => ({ [name]: data, [`${name}Type`]: dtype }),
  };
}

/** Ids of tokens, rows or columns. */
export type Indices = BigInt64Array | Int32Array;

/** So many ids as `count` names. */
/* @__NO_SIDE_EFFECTS__ */
export function indices<S extends string>(count: S): RecordField<Indices, S, never> {
  return {
    kind: "record",
    fields: (name) => ({
      [name]: { kind: "array", type: "any", access: "read", sizes: [count], isOptional: false } satisfies ArrayField,
      [`${name}Bytes`]: whole,
    }),
    values: (value, name) => ({ [name]: value, [`${name}Bytes`]: value.BYTES_PER_ELEMENT, [count]: value.length }),
  };
}

/** Quantized weights [n, k] as packed. Headers of TorchAO's layouts lack n, k and the size of groups. */
export const packedWeights: RecordField<PackedWeights, "n" | "k", never> = {
  kind: "record",
  fields: (name) => ({ [name]: unsized("u8"), n: whole, k: whole, groupSize: whole }),
  values({ bytes, spec: { n, k, groupSize } }, name) {
    return { [name]: bytes, n, k, groupSize };
  },
};

/** Which rows of a step are whose. */
export const runsOfTable: RecordField<SequenceTable, never, never> = {
  kind: "record",
  fields: () => ({ runs: unsized("i32"), runsMax: whole }),
  values: ({ runs, runsMax }) => ({ runs, runsMax }),
};

/** The same, and the addresses of the states of sequences: those to read, and those to write. */
export const statesOfTable: RecordField<SequenceTable, never, never> = {
  kind: "record",
  fields: () => ({
    ...{ runs: unsized("i32"), states: unsized("u64"), nextStates: unsized("u64") },
    ...{ runsMax: whole, slots: whole },
  }),
  values: ({ runs, runsMax, slots, states, nextStates }) => ({ runs, runsMax, slots, states, nextStates }),
};

/** The part of each state that is a call's own: where it begins. */
export const partOfState: RecordField<StatePart, never, never> = {
  kind: "record",
  fields: () => ({ stateOffset: size }),
  values: ({ offset }) => ({ stateOffset: offset }),
};

/**
 * The pages of a layer's keys and values: offsets of its parts are bytes from the address of a page. Of int4, the same of the
 * pages in f16; of other types, those are the pages again.
 */
export const pagesOfLayer: RecordField<LayerPages, never, never> = {
  kind: "record",
  fields: () => ({
    ...{ pages: unsized("u64"), pagePositions: whole, pagesMax: whole, cacheType: choice(kvCacheTypes) },
    ...{ keyOffset: size, valueOffset: size, keyScaleOffset: size, valueScaleOffset: size },
    ...{ residualPages: unsized("u64"), residualKeyOffset: size, residualValueOffset: size },
  }),
  values(layer) {
    const { cache, offset, residual = layer } = layer;
    const { keys, values, keyScales, valueScales } = partOffsets(cache);
    const halves = partOffsets(residual.cache);
    return {
      ...{ pages: cache.pages, pagePositions: cache.pagePositions, pagesMax: cache.pagesMax, cacheType: cache.type },
      ...{ keyOffset: offset + keys, valueOffset: offset + values },
      ...{ keyScaleOffset: offset + keyScales, valueScaleOffset: offset + valueScales },
      residualPages: residual.cache.pages,
      residualKeyOffset: residual.offset + halves.keys,
      residualValueOffset: residual.offset + halves.values,
    };
  },
};
