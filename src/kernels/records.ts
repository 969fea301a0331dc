/** Composite arguments that several families use and native code gets as several fields: weights, indices, sequence tables. */
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

/** An argument of float weights with these sizes. */
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

/** Indices of tokens, rows or columns. */
export type Indices = BigInt64Array | Int32Array;

/** An argument of indices, whose length is the size `count`. */
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

/** An argument of packed quantized weights [n, k]. The sizes are separate fields, since TorchAO's headers lack them. */
export const packedWeights: RecordField<PackedWeights, "n" | "k", never> = {
  kind: "record",
  fields: (name) => ({ [name]: unsized("u8"), n: whole, k: whole, groupSize: whole }),
  values({ bytes, spec: { n, k, groupSize } }, name) {
    return { [name]: bytes, n, k, groupSize };
  },
};

/** The runs of a step: which rows belong to which sequence. */
export const runsOfTable: RecordField<SequenceTable, never, never> = {
  kind: "record",
  fields: () => ({ runs: unsized("i32"), runsMax: whole }),
  values: ({ runs, runsMax }) => ({ runs, runsMax }),
};

/** The runs of a step, and the addresses of the sequences' states, to read and to write. */
export const statesOfTable: RecordField<SequenceTable, never, never> = {
  kind: "record",
  fields: () => ({
    ...{ runs: unsized("i32"), states: unsized("u64"), nextStates: unsized("u64") },
    ...{ runsMax: whole, slots: whole },
  }),
  values: ({ runs, runsMax, slots, states, nextStates }) => ({ runs, runsMax, slots, states, nextStates }),
};

/** Byte offset of the call's part of each state. */
export const partOfState: RecordField<StatePart, never, never> = {
  kind: "record",
  fields: () => ({ stateOffset: size }),
  values: ({ offset }) => ({ stateOffset: offset }),
};

/**
 * The pages of a layer's keys and values, with byte offsets of its parts from a page's address. For int4, also those of the f16
 * residual pages; for other types, these are the pages again.
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
