/** The safetensors writer: its bytes, what the reader makes of them, and what it refuses. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { memorySource } from "../byte-source.ts";
import { byteSize, type DType, dtypes, type TypedArray, zeros } from "../dtype.ts";
import { InvalidArgumentError, type LowbitError, ShapeError } from "../errors.ts";
import { bytesOf } from "../tensor.ts";
import { openSafetensors } from "./safetensors.ts";
import { type TensorEntry, writeSafetensors } from "./safetensors-writer.ts";

const folder = mkdtempSync(join(tmpdir(), "lowbit-writer-"));
const path = join(folder, "out.safetensors");
afterAll(() => rmSync(folder, { recursive: true }));

const entryOf = (name: string, dtype: DType, shape: number[], data: TypedArray): TensorEntry => ({
  name,
  dtype,
  shape,
  data: async () => data,
});

const read = () => openSafetensors(memorySource(path, readFileSync(path)));

/** An array of a dtype whose bytes are 1, 8, 15, ... */
function patterned(dtype: DType, length: number): TypedArray {
  const data = zeros(dtype, length);
  bytesOf(data).forEach((_, i, bytes) => {
    bytes[i] = 1 + i * 7;
  });
  return data;
}

test("writes exactly the bytes of the format", async () => {
  const data = Int16Array.of(1, -2, 0x1234);
  await writeSafetensors(path, [entryOf("w", "i16", [3, 1], data)], { by: "é" });
  const json = '{"__metadata__":{"by":"é"},"w":{"dtype":"I16","shape":[3,1],"data_offsets":[0,6]}}';
  const header = Buffer.from(json);
  const padded = Buffer.concat([header, Buffer.alloc(7 - ((header.length + 7) % 8), " ")]);
  const length = Buffer.alloc(8);
  length.writeUInt32LE(padded.length);
  expect(readFileSync(path)).toEqual(Buffer.concat([length, padded, Buffer.from([1, 0, 0xfe, 0xff, 0x34, 0x12])]));
});

test("every dtype comes back as it was written, aligned to its element size", async () => {
  const entries = dtypes.map((dtype, i) => entryOf(`t.${dtype}`, dtype, [i + 1, 3], patterned(dtype, (i + 1) * 3)));
  await writeSafetensors(path, entries);
  const file = await read();
  expect([...file.names].sort()).toEqual(entries.map(({ name }) => name).sort());
  for (const { name, dtype, shape, data } of entries) {
    expect(file.info(name).byteOffset % byteSize(dtype)).toBe(0);
    expect(await file.read(name)).toEqual({ dtype, shape, data: await data() });
    expect((await file.readRows(name, shape[0]! - 1, 1)).data).toEqual((await data()).slice(-3));
  }
});

test("scalars, empty tensors, no tensors and subarrays", async () => {
  const part = Float32Array.of(0, 1, 2, 3).subarray(1, 3);
  await writeSafetensors(path, [
    entryOf("scalar", "f64", [], Float64Array.of(2.5)),
    entryOf("empty", "f32", [0, 4], new Float32Array(0)),
    entryOf("part", "f32", [2], part),
  ]);
  const file = await read();
  expect((await file.read("scalar")).data).toEqual(Float64Array.of(2.5));
  expect((await file.read("empty")).shape).toEqual([0, 4]);
  expect((await file.read("part")).data).toEqual(Float32Array.of(1, 2));
  await writeSafetensors(path, []);
  expect((await read()).names).toEqual([]);
});

test("asks for one tensor at a time, by falling element size", async () => {
  const calls: string[] = [];
  const logged = (name: string, dtype: DType): TensorEntry => ({
    name,
    dtype,
    shape: [1],
    async data() {
      calls.push(`+${name}`);
      await Promise.resolve();
      calls.push(`-${name}`);
      return zeros(dtype, 1);
    },
  });
  await writeSafetensors(path, [logged("a", "u8"), logged("b", "f32"), logged("c", "i32")]);
  expect(calls).toEqual(["+b", "-b", "+c", "-c", "+a", "-a"]);
  expect((await read()).names).toEqual(["b", "c", "a"]);
});

describe("refuses, and leaves what was there,", () => {
  const fine = new Float32Array(2);
  const cases: [string, TensorEntry[], new (message: string) => LowbitError, string][] = [
    [
      "a name twice",
      [entryOf("w", "f32", [2], fine), entryOf("w", "f32", [2], fine)],
      InvalidArgumentError,
      '"w" is given',
    ],
    ["the reserved name", [entryOf("__metadata__", "f32", [2], fine)], InvalidArgumentError, "is reserved"],
    ["too much data", [entryOf("w", "f32", [1], fine)], ShapeError, "needs Float32Array of 1, found Float32Array of 2"],
    ["data of another type", [entryOf("w", "i32", [2], fine)], ShapeError, "needs Int32Array of 2, found Float32Array"],
    ["a negative size", [entryOf("w", "f32", [-1, -2], fine)], ShapeError, "[-1,-2]"],
    ["a size beyond 2^53", [entryOf("w", "f32", [2 ** 40, 2 ** 40], fine)], ShapeError, "no valid size"],
  ];
  test.each(cases)("%s", async (_, entries, type, problem) => {
    await writeSafetensors(path, [entryOf("old", "f32", [2], fine)]);
    const error = await writeSafetensors(path, entries).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(type);
    expect((error as Error).message).toContain(problem);
    expect((await read()).names).toEqual(["old"]);
    expect(readdirSync(folder)).toEqual(["out.safetensors"]);
  });

  test("a folder that is not there", async () => {
    const absent = join(folder, "absent", "out.safetensors");
    await expect(writeSafetensors(absent, [])).rejects.toThrow(`${absent}: cannot be written`);
    expect(existsSync(absent)).toBe(false);
  });
});
