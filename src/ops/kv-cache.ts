/** The states that attention keeps keys and values in. */
import type { KvCacheType } from "../kernels/sequence-table.ts";
import type { Builder } from "./builder.ts";

export { type KvCacheType, kvCacheTypes } from "../kernels/sequence-table.ts";

export interface KvCacheShape {
  /** Type that keys and values are stored in. */
  readonly type: KvCacheType;
  /** Positions that there is room for. */
  readonly capacity: number;
  /** Key and value heads. */
  readonly kvHeads: number;
  /** Elements of a head. */
  readonly headDim: number;
}

/** Caches [1, capacity, kvHeads, D] and, of int8, their scales [1, capacity, kvHeads]. */
export interface KvCache<T> {
  /** Keys of the positions so far. */
  readonly keyCache: T;
  /** Values of the positions so far. */
  readonly valueCache: T;
  /** Scales of the keys of an int8 cache. */
  readonly keyScales?: T;
  /** Scales of the values of an int8 cache. */
  readonly valueScales?: T;
}

/** States `<name>.key_cache`, … of one attention layer, zeroed. */
export function kvCacheStates<T>(builder: Builder<T>, name: string, cache: KvCacheShape): KvCache<T> {
  const { type, capacity, kvHeads, headDim } = cache;
  const state = (part: string) =>
    builder.state(`${name}.${part}_cache`, {
      dtype: type === "int8" ? "i8" : type,
      shape: [1, capacity, kvHeads, headDim],
    });
  const caches = { keyCache: state("key"), valueCache: state("value") };
  if (type !== "int8") return caches;
  const scales = (part: string) =>
    builder.state(`${name}.${part}_scales`, { dtype: "f32", shape: [1, capacity, kvHeads] });
  return { ...caches, keyScales: scales("key"), valueScales: scales("value") };
}
