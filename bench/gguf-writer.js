/** Writes GGUF version 3 files (ggml's docs/gguf.md): as much of the format as a random-weight model needs. */
import { closeSync, openSync, renameSync, writeSync } from "node:fs";

export const GGML_F32 = 0;
export const GGML_Q4_0 = 2;

const ALIGNMENT = 32;
const ARRAY = 9;
const valueTypes = { u32: 4, i32: 5, f32: 6, string: 8 };

/** @param {string} text */
function stringBytes(text) {
  const bytes = Buffer.from(text);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function u32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function i32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}

function u64(value) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function f32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}

const encoders = { u32, i32, f32, string: stringBytes };

/** A value with its type in front; an array's elements are of `type`. */
function typedValue({ type, value }) {
  if (!Array.isArray(value)) return Buffer.concat([u32(valueTypes[type]), encoders[type](value)]);
  return Buffer.concat([u32(ARRAY), u32(valueTypes[type]), u64(value.length), ...value.map(encoders[type])]);
}

const aligned = (length) => Math.ceil(length / ALIGNMENT) * ALIGNMENT;

/**
 * @param {string} path
 * @param {Record<string, { type: keyof typeof valueTypes, value: any }>} metadata
 * @param {{ name: string, type: number, size: number[], byteLength: number, data: () => Uint8Array }[]} tensors
 *   `size` is [rows, columns], as elsewhere; GGUF stores it the other way round. `data` is called when it is its turn.
 */
export function writeGguf(path, metadata, tensors) {
  const parts = [Buffer.from("GGUF"), u32(3), u64(tensors.length), u64(Object.keys(metadata).length)];
  for (const [key, value] of Object.entries(metadata)) parts.push(stringBytes(key), typedValue(value));
  let offset = 0;
  for (const { name, type, size, byteLength } of tensors) {
    parts.push(stringBytes(name), u32(size.length), ...size.toReversed().map(u64), u32(type), u64(offset));
    offset += aligned(byteLength);
  }
  const header = Buffer.concat(parts);
  const temporary = `${path}.part`;
  const file = openSync(temporary, "w");
  writeAll(file, header, aligned(header.length));
  for (const { byteLength, data } of tensors) writeAll(file, data(), aligned(byteLength));
  closeSync(file);
  renameSync(temporary, path);
}

/** Writes bytes, and zeros up to `length`. */
function writeAll(file, bytes, length) {
  for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at, Math.min(bytes.length - at, 1 << 28));
  if (length > bytes.length) writeSync(file, Buffer.alloc(length - bytes.length));
}
