/** Writes GGUF files for tests, hostile ones too. */
export type Metadata = string | number | bigint | boolean | readonly string[] | Float32Array | Int32Array;

export interface GgufEntry {
  readonly name: string;
  /** Sizes, innermost first, as the format has them. */
  readonly sizes: readonly number[];
  readonly type: number;
  readonly data: Uint8Array;
}

const ALIGNMENT = 32;

class Bytes {
  readonly #parts: Uint8Array[] = [];
  length = 0;

  add(part: Uint8Array): this {
    this.#parts.push(part);
    this.length += part.length;
    return this;
  }

  u32(value: number): this {
    return this.add(new Uint8Array(Uint32Array.of(value).buffer));
  }

  u64(value: number | bigint): this {
    return this.add(new Uint8Array(BigUint64Array.of(BigInt(value)).buffer));
  }

  text(value: string): this {
    const bytes = new TextEncoder().encode(value);
    return this.u64(bytes.length).add(bytes);
  }

  align(): this {
    return this.add(new Uint8Array((ALIGNMENT - (this.length % ALIGNMENT)) % ALIGNMENT));
  }

  joined(): Uint8Array {
    return new Uint8Array(Buffer.concat(this.#parts));
  }
}

function addValue(bytes: Bytes, value: Metadata): void {
  if (typeof value === "string") bytes.u32(8).text(value);
  else if (typeof value === "bigint") bytes.u32(value < 0n ? 11 : 10).u64(BigInt.asUintN(64, value));
  else if (typeof value === "boolean") bytes.u32(7).add(Uint8Array.of(value ? 1 : 0));
  else if (typeof value === "number" && Number.isInteger(value)) bytes.u32(4).u32(value);
  else if (typeof value === "number") bytes.u32(6).add(new Uint8Array(Float32Array.of(value).buffer));
  else if (value instanceof Float32Array || value instanceof Int32Array)
    bytes
      .u32(9)
      .u32(value instanceof Float32Array ? 6 : 5)
      .u64(value.length)
      .add(new Uint8Array(value.slice().buffer));
  else {
    bytes.u32(9).u32(8).u64(value.length);
    for (const item of value) bytes.text(item);
  }
}

/** A GGUF file of version 3. */
export function ggufFile(metadata: Readonly<Record<string, Metadata>>, tensors: readonly GgufEntry[]): Uint8Array {
  const entries = Object.entries(metadata);
  const bytes = new Bytes().u32(0x46554747).u32(3).u64(tensors.length).u64(entries.length);
  for (const [key, value] of entries) addValue(bytes.text(key), value);
  let offset = 0;
  for (const { name, sizes, type, data } of tensors) {
    bytes.text(name).u32(sizes.length);
    for (const size of sizes) bytes.u64(size);
    bytes.u32(type).u64(offset);
    offset += Math.ceil(data.length / ALIGNMENT) * ALIGNMENT;
  }
  for (const { data } of tensors) bytes.align().add(data);
  return bytes.align().joined();
}
