/**
 * Tables and vectors written by name: a thin layer over the npm `flatbuffers` Builder.
 * A FlatBuffer grows from its leaves, so children are made before the table that holds them.
 */
import type { Builder, Offset } from "flatbuffers";
import type { Field } from "./schema.ts";

/** Adds one field to the table under construction; made by the functions below. */
export type Put = (builder: Builder, slot: number) => void;

export const int8 =
  (value: number): Put =>
  (builder, slot) =>
    builder.addFieldInt8(slot, value, 0);
export const int32 =
  (value: number): Put =>
  (builder, slot) =>
    builder.addFieldInt32(slot, value, 0);
/** Written even when 0, for readers of the bytes. */
export const writtenInt32 =
  (value: number): Put =>
  (builder, slot) =>
    builder.addFieldInt32(slot, value, null);
export const int64 =
  (value: bigint): Put =>
  (builder, slot) =>
    builder.addFieldInt64(slot, value, 0n);
/** Written even when 0, since the default would lose the sign of -0. */
export const float64 =
  (value: number): Put =>
  (builder, slot) =>
    builder.addFieldFloat64(slot, value, null);
export const child =
  (offset: Offset): Put =>
  (builder, slot) =>
    builder.addFieldOffset(slot, offset, 0);

/** Writes a table of `schema` with the given fields, in the order given. */
export function writeTable<Name extends string>(
  builder: Builder,
  schema: { readonly [N in Name]: Field },
  fields: { readonly [N in Name]?: Put },
): Offset {
  builder.startObject(Object.keys(schema).length);
  for (const [name, add] of Object.entries<Put | undefined>(fields)) add?.(builder, schema[name as Name].slot);
  return builder.endObject();
}

export function writeOffsets(builder: Builder, offsets: readonly Offset[]): Put {
  return writeVector(builder, offsets, 4, (offset) => builder.addOffset(offset));
}

export function writeInt8s(builder: Builder, values: readonly number[]): Put {
  return writeVector(builder, values, 1, (value) => builder.addInt8(value));
}

export function writeInt32s(builder: Builder, values: readonly number[]): Put {
  return writeVector(builder, values, 4, (value) => builder.addInt32(value));
}

export function writeInt64s(builder: Builder, values: readonly number[]): Put {
  return writeVector(builder, values, 8, (value) => builder.addInt64(BigInt(value)));
}

export function writeFloat64s(builder: Builder, values: readonly number[]): Put {
  return writeVector(builder, values, 8, (value) => builder.addFloat64(value));
}

function writeVector<T>(builder: Builder, values: readonly T[], width: number, add: (value: T) => void): Put {
  builder.startVector(width, values.length, width);
  for (const value of values.toReversed()) add(value);
  return child(builder.endVector());
}
