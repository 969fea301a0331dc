/** The states that attention keeps keys and values in. */
import type { Builder } from "./builder.ts";

/** What keys and values are kept in: int8 has a scale for each row of a head. */
export const kvCacheTypes = ["f32", "f16", "int8"] as const;
/**
 * The type that keys and values are kept in: `f32` as computed, `f16` in half the memory, `int8` in about a quarter.
 */
export type KvCacheType = (typeof kvCacheTypes)[number];

export interface KvCacheShape {
  readonly type: KvCacheType;
  readonly capacity: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** Caches [1, capacity, kvHeads, D] and, of int8, their scales [1, capacity, kvHeads]. */
export interface KvCache<T> {
  readonly keyCache: T;
  readonly valueCache: T;
  readonly keyScales?: T;
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
