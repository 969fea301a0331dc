/** Writes GGUF files, version 3, tensor by tensor. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
import { InvalidArgumentError } from "../../errors.ts";
import { writeFileWhole } from "../../node-file.ts";
import { quote } from "../json.ts";

const MAGIC = 0x46554747;
const VERSION = 3;
const ALIGNMENT = 32;

const valueTypes = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8 } as const;
const ARRAY = 9;

type Scalar = string | number | boolean;

/** A metadata value, or a list of values of one type. */
export interface GgufEntry {
  readonly type: keyof typeof valueTypes;
  readonly value: Scalar | readonly Scalar[];
}

export interface GgufTensorEntry {
  readonly name: string;
  /** Type number of ggml. */
  readonly type: number;
  /** Sizes, outermost first. */
  readonly shape: readonly number[];
  readonly byteLength: number;
  /** The tensor's bytes in order; called once, when the tensor is written. */
  parts(): AsyncIterable<Uint8Array>;
}

/**
 * Writes a file that appears at `path` complete or not at all. InvalidArgumentError for data whose length is not that declared.
 */
export async function writeGguf(
  path: string,
  metadata: ReadonlyMap<string, GgufEntry>,
  tensors: readonly GgufTensorEntry[],
): Promise<void> {
  const header = encodeHeader(metadata, tensors);
  await writeFileWhole(path, async (sink) => {
    await sink.write(header);
    for (const { name, byteLength, parts } of tensors) {
      const start = sink.position;
      for await (const part of parts()) await sink.write(part);
      const found = sink.position - start;
      if (found !== byteLength)
        throw new InvalidArgumentError(`writeGguf: tensor ${quote(name)} has ${found} bytes, not ${byteLength}`);
      await sink.write(new Uint8Array(padding(byteLength)));
    }
  });
}

const padding = (length: number) => (ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT;

function encodeHeader(metadata: ReadonlyMap<string, GgufEntry>, tensors: readonly GgufTensorEntry[]): Uint8Array {
  const bytes = new GgufBytes().u32(MAGIC).u32(VERSION).u64(tensors.length).u64(metadata.size);
  for (const [key, { type, value }] of metadata) {
    bytes.string(key);
    if (typeof value !== "object") bytes.u32(valueTypes[type])[type](value as never);
    else {
      bytes.u32(ARRAY).u32(valueTypes[type]).u64(value.length);
      for (const item of value) bytes[type](item as never);
    }
  }
  let offset = 0;
  for (const { name, type, shape, byteLength } of tensors) {
    bytes.string(name).u32(shape.length);
    for (const size of shape.toReversed()) bytes.u64(size);
    bytes.u32(type).u64(offset);
    offset += byteLength + padding(byteLength);
  }
  return bytes.padded();
}

/** A growing byte buffer. */
class GgufBytes {
  #bytes = new Uint8Array(1 << 16);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;
  readonly #utf8 = new TextEncoder();

  u32(value: number): this {
    const at = this.#take(4);
    this.#view.setUint32(at, value, true);
    return this;
  }

  i32(value: number): this {
    return this.u32(value);
  }

  f32(value: number): this {
    const at = this.#take(4);
    this.#view.setFloat32(at, value, true);
    return this;
  }

  u64(value: number): this {
    const at = this.#take(8);
    this.#view.setBigUint64(at, BigInt(value), true);
    return this;
  }

  bool(value: boolean): this {
    const at = this.#take(1);
    this.#view.setUint8(at, value ? 1 : 0);
    return this;
  }

  string(value: string): this {
    const text = this.#utf8.encode(value);
    this.u64(text.length);
    const at = this.#take(text.length);
    this.#bytes.set(text, at);
    return this;
  }

  padded(): Uint8Array {
    this.#take(padding(this.#length));
    return this.#bytes.subarray(0, this.#length);
  }

  /** Reserves `count` zero bytes; returns where they begin. The array may be replaced. */
  #take(count: number): number {
    const start = this.#length;
    this.#length += count;
    if (this.#length > this.#bytes.length) {
      const grown = new Uint8Array(2 * this.#length);
      grown.set(this.#bytes);
      this.#bytes = grown;
      this.#view = new DataView(grown.buffer);
    }
    return start;
  }
}
