/** The safetensors reader against bytes laid out by hand, files of other tools, and thousands of damaged headers. */
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { type ByteSource, memorySource } from "../byte-source.ts";
import { InvalidArgumentError, InvalidFileError, UnsupportedError } from "../errors.ts";
import { openFile } from "../node-file.ts";
import { openSafetensors } from "./safetensors.ts";

const NAME = "sample.safetensors";

/** A file of a header, given as text or as an object, and data; `length` overrides the header length written. */
function fileOf(header: string | object, data: Uint8Array | number, length?: bigint): Uint8Array {
  const json = new TextEncoder().encode(typeof header === "string" ? header : JSON.stringify(header));
  const body = typeof data === "number" ? new Uint8Array(data) : data;
  const bytes = new Uint8Array(8 + json.length + body.length);
  new DataView(bytes.buffer).setBigUint64(0, length ?? BigInt(json.length), true);
  bytes.set(json, 8);
  bytes.set(body, 8 + json.length);
  return bytes;
}

const open = (bytes: Uint8Array) => openSafetensors(memorySource(NAME, bytes));
const entry = (dtype: unknown, shape: unknown, begin: unknown, end: unknown) => ({
  dtype,
  shape,
  data_offsets: [begin, end],
});

describe("reading", () => {
  const data = new Uint8Array(24);
  const view = new DataView(data.buffer);
  for (let i = 0; i < 6; i++) view.setFloat32(i * 4, i + 0.5, true);

  test("gives name, type, shape, place and values of each tensor, in the order of the data", async () => {
    const header = {
      late: entry("F32", [2, 2], 8, 24),
      __metadata__: { format: "pt" },
      early: entry("F32", [2], 0, 8),
    };
    const bytes = fileOf(header, data);
    const file = await open(bytes);
    expect(file.names).toEqual(["early", "late"]);
    expect([file.has("late"), file.has("__metadata__"), file.has("constructor")]).toEqual([true, false, false]);
    expect(file.metadata).toEqual(new Map([["format", "pt"]]));
    expect(file.info("late")).toEqual({ dtype: "f32", shape: [2, 2], byteOffset: bytes.length - 16, byteLength: 16 });
    expect(await file.read("late")).toEqual({ dtype: "f32", shape: [2, 2], data: Float32Array.of(2.5, 3.5, 4.5, 5.5) });
    expect(await file.read("early")).toEqual({ dtype: "f32", shape: [2], data: Float32Array.of(0.5, 1.5) });
  });

  // As safetensors 0.8 in Python.
  test("takes metadata that is null for none", async () => {
    const file = await open(fileOf({ __metadata__: null, a: entry("F32", [2], 0, 8) }, data.subarray(0, 8)));
    expect([file.names, file.metadata]).toEqual([["a"], new Map()]);
  });

  test("gives rows without reading the others", async () => {
    const bytes = fileOf({ w: entry("F32", [3, 2], 0, 24) }, data);
    const reads: number[][] = [];
    const source: ByteSource = {
      ...memorySource(NAME, bytes),
      async read(offset, length) {
        reads.push([offset, length]);
        return bytes.slice(offset, offset + length);
      },
    };
    const file = await openSafetensors(source);
    reads.length = 0;
    const rows = await file.readRows("w", 1, 1);
    expect(rows).toEqual({ dtype: "f32", shape: [1, 2], data: Float32Array.of(2.5, 3.5) });
    expect(reads).toEqual([[bytes.length - 16, 8]]);
    expect((await file.readRows("w", 1, 2)).data).toEqual(Float32Array.of(2.5, 3.5, 4.5, 5.5));
    expect((await file.readRows("w", 3, 0)).shape).toEqual([0, 2]);
  });

  test.each([
    ["past the end", 2, 2],
    ["before the start", -1, 1],
    ["half a row", 0, 0.5],
    ["backwards", 1, -1],
    ["not a number", Number.NaN, 1],
  ])("refuses rows %s", async (_, first, count) => {
    const file = await open(fileOf({ w: entry("F32", [3, 2], 0, 24) }, data));
    await expect(file.readRows("w", first, count)).rejects.toThrow(InvalidArgumentError);
    await expect(file.readRows("w", first, count)).rejects.toThrow('"w" has 3 rows');
  });

  test("reads scalars and empty tensors; a scalar has no rows", async () => {
    const header = { none: entry("F32", [0, 7], 4, 4), one: entry("F32", [], 0, 4) };
    const file = await open(fileOf(header, data.slice(0, 4)));
    expect(await file.read("one")).toEqual({ dtype: "f32", shape: [], data: Float32Array.of(0.5) });
    expect(await file.read("none")).toEqual({ dtype: "f32", shape: [0, 7], data: new Float32Array(0) });
    await expect(file.readRows("one", 0, 1)).rejects.toThrow(InvalidArgumentError);
  });

  test("reads a file without tensors, and a header padded with spaces", async () => {
    expect((await open(fileOf({}, 0))).names).toEqual([]);
    expect((await open(fileOf(`${JSON.stringify({ w: entry("U8", [2], 0, 2) })}     `, 2))).names).toEqual(["w"]);
  });

  test("reads tensors at offsets that are no multiple of their element size", async () => {
    const values = [1.25, -2.5, 1e300];
    const body = new Uint8Array(3 + 24);
    values.forEach((value, i) => {
      new DataView(body.buffer).setFloat64(3 + 8 * i, value, true);
    });
    const header = { pad: entry("U8", [3], 0, 3), wide: entry("F64", [3], 3, 27) };
    // A source may answer with a view anywhere into a larger buffer.
    const bytes = fileOf(header, body);
    for (let shift = 0; shift < 8; shift++) {
      const source: ByteSource = {
        ...memorySource(NAME, bytes),
        async read(offset, length) {
          const larger = new Uint8Array(length + shift);
          larger.set(bytes.subarray(offset, offset + length), shift);
          return larger.subarray(shift);
        },
      };
      const file = await openSafetensors(source);
      expect((await file.read("wide")).data).toEqual(Float64Array.from(values));
      expect((await file.readRows("wide", 2, 1)).data).toEqual(Float64Array.of(1e300));
    }
  });

  test("keeps names that JavaScript treats specially", async () => {
    const header =
      '{"__proto__":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"toString":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}';
    const file = await open(fileOf(header, Uint8Array.of(7, 8)));
    expect(file.names).toEqual(["__proto__", "toString"]);
    expect((await file.read("__proto__")).data).toEqual(Uint8Array.of(7));
  });

  test("closes its source", async () => {
    let closed = 0;
    const source = { ...memorySource(NAME, fileOf({}, 0)), close: async () => void closed++ };
    await (await openSafetensors(source)).close();
    expect(closed).toBe(1);
  });

  test("names the file and the tensor that it lacks", async () => {
    const file = await open(fileOf({ w: entry("U8", [1], 0, 1) }, 1));
    expect(() => file.info("v")).toThrow(new InvalidFileError(NAME, 'has no tensor "v" among its 1'));
    await expect(file.read("v")).rejects.toThrow(InvalidFileError);
    await expect(file.readRows("v", 0, 1)).rejects.toThrow(InvalidFileError);
  });
});

test.each([
  ["F8_E4M3FNUZ", [3], 3],
  ["F4", [4], 2],
  ["F6_E2M3", [4], 3],
  ["C64", [2], 16],
])("lists a tensor of type %s but does not read it", async (dtype, shape, size) => {
  const file = await open(
    fileOf({ odd: entry(dtype, shape, 0, size), fine: entry("U8", [1], size, size + 1) }, size + 1),
  );
  expect(file.names).toEqual(["odd", "fine"]);
  expect(() => file.info("odd")).toThrow(UnsupportedError);
  await expect(file.read("odd")).rejects.toThrow(`tensor "odd" is stored as ${dtype}`);
  await expect(file.readRows("odd", 0, 1)).rejects.toThrow(UnsupportedError);
  expect((await file.read("fine")).data).toEqual(Uint8Array.of(0));
});

test.each(["F8_E4M3", "F8_E5M2", "F8_E8M0"])("gives a tensor of type %s as bytes, and its type", async (dtype) => {
  const file = await open(fileOf({ odd: entry(dtype, [3], 0, 3) }, 3));
  expect([file.info("odd").dtype, file.storedType!("odd")]).toEqual(["u8", dtype]);
  expect((await file.read("odd")).data.length).toBe(3);
});

describe("refuses", () => {
  const good = { w: entry("F32", [2], 0, 8) };
  const two = (a: object, b: object) => ({ a, b });
  const long = "x".repeat(100_000);
  const cases: [string, Uint8Array, string][] = [
    ["a file shorter than the length", new Uint8Array(7), "only 7 bytes"],
    ["a header longer than the file", fileOf(good, 8, 1000n), "promise a header of 1000 bytes but only 62 follow"],
    ["a header beyond the format's limit", fileOf(good, 8, 100_000_001n), "more than the 100000000"],
    ["a length of 2^64 - 1", fileOf(good, 8, 2n ** 64n - 1n), "more than the 100000000"],
    ["an empty header", fileOf("", 0), 'does not begin with "{"'],
    ["leading space", fileOf(" {}", 0), 'does not begin with "{"'],
    ["an array", fileOf("[]", 0), 'does not begin with "{"'],
    ["bad JSON", fileOf("{]", 0), "not valid JSON"],
    ["two JSON values", fileOf("{}{}", 0), "not valid JSON"],
    ["bytes that are not UTF-8", fileOf(good, 8).map((byte, i) => (i === 10 ? 0xff : byte)), "not UTF-8"],
    ["a name twice", fileOf('{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\\u0077" : 1}', 0), '"w" twice'],
    ["a field twice", fileOf('{"w":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}', 0), '"dtype" twice'],
    ["an entry that is no object", fileOf({ w: 3 }, 0), '"w": its header entry should be an object but is 3'],
    ["metadata that is no object", fileOf({ __metadata__: [] }, 0), "__metadata__ should be an object but is an array"],
    ["metadata that is no string", fileOf({ __metadata__: { a: 1 } }, 0), '"a" should be a string but is 1'],
    ["no dtype", fileOf({ w: { shape: [0], data_offsets: [0, 0] } }, 0), "dtype should be a string but is missing"],
    ["a dtype that is not the format's", fileOf({ w: entry("F31", [2], 0, 8) }, 8), '"F31" is none'],
    ["a dtype of Object.prototype", fileOf({ w: entry("constructor", [2], 0, 8) }, 8), '"constructor" is none'],
    ["no shape", fileOf({ w: entry("F32", undefined, 0, 8) }, 8), "shape should be an array but is missing"],
    ["a negative size", fileOf({ w: entry("F32", [-2, -1], 0, 8) }, 8), "has -2"],
    ["a fractional size", fileOf({ w: entry("F32", [0.5, 4], 0, 8) }, 8), "has 0.5"],
    ["a size as a string", fileOf({ w: entry("F32", ["2"], 0, 8) }, 8), 'has "2"'],
    ["a product beyond 2^53", fileOf({ w: entry("F32", [2 ** 30, 2 ** 30], 0, 8) }, 8), "no whole size"],
    ["a product beyond 2^64", fileOf({ w: entry("U8", [2 ** 32, 2 ** 32, 2], 0, 0) }, 0), "no whole size"],
    ["a size beyond 2^53", fileOf('{"w":{"dtype":"U8","shape":[9007199254740993],"data_offsets":[0,1]}}', 1), "2^53"],
    ["half a byte", fileOf({ w: entry("F4", [3], 0, 1) }, 1), "no whole size"],
    ["three offsets", fileOf({ w: { dtype: "U8", shape: [1], data_offsets: [0, 1, 1] } }, 1), "two integers"],
    ["offsets that are no numbers", fileOf({ w: entry("U8", [1], null, "1") }, 1), "two integers"],
    ["a negative offset", fileOf({ w: entry("U8", [1], -1, 0) }, 1), "two integers"],
    ["an end before the begin", fileOf({ w: entry("U8", [1], 1, 0) }, 1), "before it begins"],
    ["too few bytes for the shape", fileOf({ w: entry("F32", [2], 0, 4) }, 4), "need 8 bytes but data_offsets give 4"],
    ["a tensor past the end", fileOf(good, 7), 'tensor "w" ends at 8 but the data has 7 bytes'],
    [
      "overlap",
      fileOf(two(entry("U8", [3], 0, 3), entry("U8", [2], 2, 4)), 4),
      'tensor "b" begins at 2, inside tensor "a"',
    ],
    [
      "a hole",
      fileOf(two(entry("U8", [1], 0, 1), entry("U8", [1], 2, 3)), 3),
      '1 bytes between tensor "a" and tensor "b"',
    ],
    ["a hole at the start", fileOf({ w: entry("U8", [1], 1, 2) }, 2), "1 bytes between the header"],
    ["bytes left over", fileOf(good, 9), '1 bytes after tensor "w"'],
    ["a long name, without repeating it whole", fileOf({ [long]: 1 }, 0), `"${"x".repeat(80)}…": its header entry`],
  ];
  test.each(cases)("%s", async (_, bytes, problem) => {
    const error = await open(bytes).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(InvalidFileError);
    expect((error as Error).message).toContain(`${NAME}: `);
    expect((error as Error).message).toContain(problem);
    expect((error as Error).message.length).toBeLessThan(400);
  });

  test("a header of a million nested arrays and objects", async () => {
    const nested = `{"w":${"[".repeat(500_000)}${"]".repeat(500_000)},"v":${'{"a":'.repeat(200_000)}1${"}".repeat(200_000)}}`;
    await expect(open(fileOf(nested, 0))).rejects.toThrow(InvalidFileError);
  });
});

/** Damage of a small file, by a seeded generator, so that a failure can be repeated. */
describe("damaged headers", () => {
  const header = {
    __metadata__: { format: "pt" },
    a: entry("F32", [2, 3], 0, 24),
    "b.weight": entry("BF16", [5], 24, 34),
    c: entry("U8", [], 34, 35),
    d: entry("I64", [2, 1], 35, 51),
    e: entry("F4", [8], 51, 55),
  };
  const whole = fileOf(
    header,
    Uint8Array.from({ length: 55 }, (_, i) => i * 37),
  );
  const headerSize = JSON.stringify(header).length;
  const strange: unknown[] = [
    ...[0, 1, 2, 3, 24, 55, 56, -1, -0, 0.5, 1e9, 2 ** 31, 2 ** 32, 2 ** 53 - 1, 2 ** 53, 2 ** 64, 1e308],
    ...[
      null,
      true,
      "",
      "F32",
      "F16",
      "F4",
      "BOOL",
      "c",
      "__proto__",
      [],
      [2, 3],
      [0, 24],
      [34, 55],
      {},
      { dtype: "U8" },
    ],
  ];

  function random(seed: number): (bound: number) => number {
    let state = seed >>> 0;
    return (bound) => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return Math.floor((state / 2 ** 32) * bound);
    };
  }

  /** A copy of a JSON value in which one value, picked at random, is replaced, removed or renamed. */
  function mutated(value: unknown, pick: (bound: number) => number): unknown {
    if (typeof value !== "object" || value === null || pick(4) === 0) return strange[pick(strange.length)];
    if (Array.isArray(value) && value.length > 0) {
      const at = pick(value.length);
      return pick(8) === 0 ? value.slice(at) : value.map((item, i) => (i === at ? mutated(item, pick) : item));
    }
    const entries = Object.entries(value);
    if (entries.length === 0) return strange[pick(strange.length)];
    const at = pick(entries.length);
    const change = pick(10);
    if (change === 0) entries.splice(at, 1);
    else if (change === 1) entries[at]![0] = String(strange[pick(strange.length)]);
    else entries[at]![1] = mutated(entries[at]![1], pick);
    return Object.fromEntries(entries);
  }

  function damaged(pick: (bound: number) => number): Uint8Array {
    const kind = pick(4);
    if (kind === 0) return fileOf(mutated(header, pick) as object, whole.slice(8 + headerSize));
    const bytes = whole.slice();
    if (kind === 1) return bytes.slice(0, pick(bytes.length));
    if (kind === 2) {
      bytes[pick(8)] = pick(256);
      return bytes;
    }
    for (let flips = 1 + pick(3); flips > 0; flips--) bytes[8 + pick(headerSize)] = pick(2) ? 32 + pick(95) : pick(256);
    return bytes;
  }

  /** A source that fails the test when more is asked for than the file has. */
  function guarded(bytes: Uint8Array): ByteSource {
    const source = memorySource(NAME, bytes);
    return {
      ...source,
      async read(offset, length) {
        expect(offset + length).toBeLessThanOrEqual(bytes.length);
        return source.read(offset, length);
      },
    };
  }

  test("end in InvalidFileError or UnsupportedError, or leave tensors that read well", async () => {
    const pick = random(20261120);
    const outcomes = { refused: 0, unsupported: 0, read: 0 };
    for (let round = 0; round < 8000; round++) {
      try {
        const file = await openSafetensors(guarded(damaged(pick)));
        for (const name of file.names) {
          try {
            const { data, shape } = await file.read(name);
            expect(data.length).toBe(shape.reduce((a, b) => a * b, 1));
            if (shape.length > 0) expect((await file.readRows(name, 0, shape[0]!)).data).toEqual(data);
            outcomes.read++;
          } catch (error) {
            if (!(error instanceof UnsupportedError)) throw error;
            outcomes.unsupported++;
          }
        }
      } catch (error) {
        if (!(error instanceof InvalidFileError)) throw error;
        outcomes.refused++;
      }
    }
    // The damage reaches every outcome, else the test would show little.
    expect(outcomes.refused).toBeGreaterThan(4000);
    expect(outcomes.unsupported).toBeGreaterThan(100);
    expect(outcomes.read).toBeGreaterThan(1000);
  });
});

const shared = fileURLToPath(new URL("../../../shared", import.meta.url));
describe.skipIf(!existsSync(shared))("files written by the Python library (skipped: ../shared is absent)", () => {
  test.each(["models/stories260K", "golden/transformers/llama", "golden/aqlm/2x8"])("%s", async (folder) => {
    const path = `${shared}/${folder}/model.safetensors`;
    const bytes = readFileSync(path);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const headerSize = Number(view.getBigUint64(0, true));
    const { __metadata__: metadata, ...header } = JSON.parse(bytes.toString("utf8", 8, 8 + headerSize));
    const file = await openSafetensors(await openFile(path));
    expect([...file.names].sort()).toEqual(Object.keys(header).sort());
    expect(Object.fromEntries(file.metadata)).toEqual(metadata);
    const element: Record<string, (at: number) => number> = {
      F32: (at) => view.getFloat32(at, true),
      F16: (at) => view.getUint16(at, true),
      I8: (at) => view.getInt8(at),
    };
    for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries<Record<string, never>>(header)) {
      const { data, shape: foundShape } = await file.read(name);
      expect(foundShape).toEqual(shape);
      const [begin, end] = offsets as unknown as [number, number];
      const size = (end - begin) / data.length;
      for (const i of [0, 1, data.length >> 1, data.length - 1])
        expect(data[i]).toBe(element[dtype]!(8 + headerSize + begin + i * size));
    }
    await file.close();
  });
});
