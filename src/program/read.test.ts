import { readFileSync } from "node:fs";
import { Builder } from "flatbuffers";
import { describe, expect, it } from "vitest";
import { type ByteSource, checkRange, memorySource } from "../byte-source.ts";
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import type { ProgramTable } from "./decode.ts";
import { encodeProgram } from "./encode.ts";
import { child, int32, writeOffsets, writeTable } from "./flatbuffer-writer.ts";
import { HEADER_BYTES, insertHeader } from "./header.ts";
import type { Method, Program, TensorValue, Value } from "./program.ts";
import { programLayout, readProgram } from "./read.ts";
import * as schema from "./schema.ts";

const golden = (name: string): Uint8Array<ArrayBuffer> =>
  new Uint8Array(readFileSync(new URL(`golden/${name}.pte.golden`, import.meta.url)));

const read = (bytes: Uint8Array, name = "x.pte"): Promise<Program> => readProgram(memorySource(name, bytes));

const findMethod = ({ methods }: Program, name: string) => methods.find((method) => method.name === name);

const constant = (changes: Partial<TensorValue> = {}): TensorValue => ({
  kind: "tensor",
  dtype: "f32",
  sizes: [4],
  dimOrder: [0],
  dynamism: "static",
  constant: 0,
  allocation: null,
  name: "w",
  ...changes,
});

function methodOf(...values: Value[]): Method {
  const empty = { inputs: [], outputs: [], operators: [], instructions: [], delegates: [] };
  return { name: "forward", values, ...empty, memorySizes: [0] };
}

/** A program whose segments start at byte 4096, with `size` bytes in all; what it holds is not checked. */
function fileOf(table: Partial<ProgramTable>, size = 4096 + 64): Uint8Array<ArrayBuffer> {
  const whole = { methods: [], segments: [], constants: null, namedData: [], ...table };
  const flatbuffer = encodeProgram(whole);
  const programBytes = flatbuffer.length + HEADER_BYTES;
  const file = new Uint8Array(size);
  file.set(insertHeader(flatbuffer, { programBytes, segmentBase: 4096, segmentBytes: size - 4096 }));
  return file;
}

const segments = [{ offset: 0, size: 64 }];
const constants = { segment: 0, offsets: [0, 0, 32] };

describe("files of the stock exporter", () => {
  it("read with constants, state, a dynamic dimension and metadata", async () => {
    const program = await read(golden("state"));
    const forward = findMethod(program, "forward")!;
    expect(forward.operators.map(({ name }) => name)).toContain("aten::index_select");
    expect(forward.memorySizes).toEqual([0, 416]);
    const input = forward.values[forward.inputs[0]!];
    expect(input).toMatchObject({ dtype: "f32", sizes: [8, 4], dynamism: "bound", constant: null });
    // slice_copy to the end: the largest int64.
    expect(forward.values).toContainEqual({ kind: "int", value: 2 ** 63 });
    expect(findMethod(program, "get_n")!.values).toEqual([{ kind: "int", value: 7 }]);
    expect(findMethod(program, "get_f")!.values).toEqual([{ kind: "double", value: 1.5 }]);
    expect(findMethod(program, "get_b")!.values).toEqual([{ kind: "bool", value: true }]);
    const [weight, bias, index] = await Promise.all(program.constants.map(({ data }) => data.read()));
    expect([...new Float32Array(weight!.buffer)]).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    expect([...new Float32Array(bias!.buffer)]).toEqual([0.5, 1.5, 2.5]);
    expect([...new BigInt64Array(index!.buffer)]).toEqual([0n, 2n]);
  });

  it("read with jumps and moves", async () => {
    const { instructions, values } = findMethod(await read(golden("branch")), "forward")!;
    expect(instructions.filter(({ kind }) => kind !== "kernel")).toEqual([
      { kind: "jumpFalse", condition: 5, destination: 7 },
      { kind: "move", from: 12, to: 7 },
      { kind: "jumpFalse", condition: 20, destination: 10 },
      { kind: "move", from: 18, to: 7 },
    ]);
    expect(values[20]).toEqual({ kind: "bool", value: false });
  });

  it("read with delegates by their id, and named data", async () => {
    const program = await read(golden("delegate"));
    const [method] = program.methods;
    expect(method!.delegates).toEqual(["XnnpackBackend"]);
    expect(method!.instructions[0]).toEqual({ kind: "delegate", delegate: 0, args: [0, 1] });
    expect([...program.namedData.values()].map(({ byteLength }) => byteLength)).toEqual([48, 12]);
    const layout = await programLayout(memorySource("x.pte", golden("delegate")));
    expect(layout).toMatchObject({ total: 2316, program: 1360, constants: 0, namedData: 60, otherSegments: 720 });
    expect(layout.padding).toBe(2316 - 1360 - 60 - 720);
  });
});

describe("readProgram", () => {
  it("follows offsets beyond 4 GiB without reading what lies between", async () => {
    const far = 2 ** 40;
    const table = {
      methods: [
        methodOf(constant({ dtype: "u8", sizes: [2, 2 ** 31 - 1], dimOrder: [0, 1] }), constant({ constant: 1 })),
      ],
      segments: [
        { offset: 0, size: far },
        { offset: far, size: 3 },
      ],
      constants: { segment: 0, offsets: [0, 4096, far - 16] },
      namedData: [{ key: "end", segment: 1 }],
    };
    const start = fileOf(table, 4096);
    const reads: number[] = [];
    const source: ByteSource = {
      name: "sparse.pte",
      size: 4096 + far + 3,
      async read(offset, length) {
        reads.push(length);
        checkRange("sparse.pte", 4096 + far + 3, offset, length);
        return offset === 0 ? start.slice(0, length) : new Uint8Array(length).fill(offset / 2 ** 36);
      },
      async close() {},
    };
    const program = await readProgram(source);
    expect(program.constants.map(({ data }) => data.byteLength)).toEqual([2 ** 32 - 2, 16]);
    expect(Math.max(...reads)).toBeLessThan(4096);
    expect([...(await program.namedData.get("end")!.read())]).toEqual([16, 16, 16]);
    expect(await program.constants[1]!.data.read()).toHaveLength(16);
  });

  it("takes the rest up to the next constant for one that no tensor uses", async () => {
    const program = await read(fileOf({ segments, constants: { segment: 0, offsets: [0, 48, 0, 0] } }));
    expect(program.constants.map(({ data }) => data.byteLength)).toEqual([16, 48, 48]);
    expect(program.constants[1]).toBe(program.constants[2]);
  });

  it.each<[string, Partial<ProgramTable>, RegExp]>([
    [
      "a segment beyond the file",
      { segments: [{ offset: 0, size: 65 }] },
      /segments\[0\]: ends at byte 4161 of .* 4160/,
    ],
    ["segments that overlap", { segments: [...segments, { offset: 63, size: 1 }] }, /segments\[1\]: starts at 63/],
    [
      "a segment of constants that is none",
      { constants },
      /constant_segment: segment_index: .* 0 segments but found 0/,
    ],
    ["a constant outside", { segments, constants: { segment: 0, offsets: [0, 80] } }, /constant 0: .* found offset 80/],
    ["a constant askew", { segments, constants: { segment: 0, offsets: [0, 0, 8] } }, /constant 1: .* found offset 8/],
    [
      "a constant before",
      { segments, constants: { segment: 0, offsets: [0, -16] } },
      /constant 0: .* found offset -16/,
    ],
    ["named data that is none", { namedData: [{ key: "t", segment: 3 }] }, /named_data\[0\]: segment_index/],
    [
      "a key given twice",
      { segments, namedData: ["t", "t"].map((key) => ({ key, segment: 0 })) },
      /named_data\[1\]: there are two of the key "t"/,
    ],
    [
      "a tensor larger than its constant",
      { segments, constants, methods: [methodOf(constant({ sizes: [9] }))] },
      /value 0 \(w\): f32 \[9\] needs 36 bytes but constant 0 has 32/,
    ],
    [
      "a constant that is none",
      { segments, constants, methods: [methodOf(constant({ constant: 2 }))] },
      /value 0 \(w\): expected the index of one of 2 constants but found 2/,
    ],
  ])("refuses %s", async (_, table, message) => {
    const result = read(fileOf(table));
    await expect(result).rejects.toThrow(message);
    await expect(result).rejects.toThrow(InvalidFileError);
  });

  it("refuses a small file whose tables overlap to make a large program", async () => {
    const builder = new Builder();
    const value = writeTable(builder, schema.EValue, {
      val_type: (b, slot) => b.addFieldInt8(slot, 1, 0),
      val: child(writeTable(builder, {}, {})),
    });
    const repeated = (offset: number) => writeOffsets(builder, new Array(2000).fill(offset));
    const plan = writeTable(builder, schema.ExecutionPlan, {
      name: child(builder.createString("m")),
      values: repeated(value),
    });
    builder.finish(writeTable(builder, schema.Program, { execution_plan: repeated(plan) }), "ET12");
    const flatbuffer = builder.asUint8Array();
    const header = { programBytes: flatbuffer.length + HEADER_BYTES, segmentBase: 0, segmentBytes: 0 };
    await expect(read(insertHeader(flatbuffer, header))).rejects.toThrow(/too many parts, or they overlap/);
  });

  it("refuses what the runtime cannot represent and says so", async () => {
    const withRoot = (fields: object): Promise<Program> => {
      const builder = new Builder();
      const buffers = writeOffsets(builder, [writeTable(builder, {}, {}), writeTable(builder, {}, {})]);
      const root = writeTable(builder, schema.Program, { constant_buffer: buffers, ...fields });
      builder.finish(root, "ET12");
      const flatbuffer = builder.asUint8Array();
      const header = { programBytes: flatbuffer.length + HEADER_BYTES, segmentBase: 0, segmentBytes: 0 };
      return read(insertHeader(flatbuffer, header));
    };
    await expect(withRoot({})).rejects.toThrow(/x\.pte: constant_buffer: .*export the model again/);
    await expect(withRoot({})).rejects.toThrow(UnsupportedError);
    await expect(withRoot({ version: int32(1) })).rejects.toThrow(
      /schema version 0, which is the newest known, but found 1/,
    );
  });
});

describe("a file without constants, which the exporter gives no extended header", () => {
  it("is read, and its size is that of its tables", async () => {
    const file = golden("picked");
    const program = await read(file);
    expect(program.constants).toEqual([]);
    expect(findMethod(program, "forward")!.operators.map(({ name }) => name)).toContain("aten::index");
    const { total, program: tables, padding } = await programLayout(memorySource("x.pte", file));
    expect([total, tables, padding]).toEqual([file.length, file.length, 0]);
  });

  it("is refused when it is cut", async () => {
    await expect(read(golden("picked").slice(0, 1000))).rejects.toThrow(InvalidFileError);
  });
});

describe("the header", () => {
  const file = golden("state");
  const patched = (offset: number, ...bytes: number[]): Uint8Array => {
    const copy = file.slice();
    copy.set(bytes, offset);
    return copy;
  };
  const ascii = (text: string): number[] => [...new TextEncoder().encode(text)];

  it.each<[string, Uint8Array, RegExp, typeof InvalidFileError | typeof UnsupportedError]>([
    ["an empty file", new Uint8Array(), /expected a \.pte program but found only 0 bytes/, InvalidFileError],
    ["another identifier", patched(4, ...ascii("TFL3")), /"ET12" at byte 4, but found "TFL3"/, InvalidFileError],
    ["a file of tensors", patched(4, ...ascii("FT01")), /a \.ptd file of tensors/, InvalidFileError],
    ["another version", patched(4, ...ascii("ET11")), /found "ET11", another version/, UnsupportedError],
    ["no extended header but segments", patched(8, 0, 0, 0, 0), /has 1 segments but its header/, InvalidFileError],
    ["a short extended header", patched(12, 16), /extended header has 16 bytes/, InvalidFileError],
    ["a program of a few bytes", patched(16, 39, 0), /gives 39 as size of the program/, InvalidFileError],
    ["a program of 2^56 bytes", patched(23, 1), /gives 7\d+ as size of the program/, InvalidFileError],
    ["segments inside the program", patched(24, 64, 0), /start at byte 64, inside the program/, InvalidFileError],
    ["no segment base", patched(24, 0, 0), /has 1 segments but its header says/, InvalidFileError],
    ["a cut file", file.slice(0, -1), /expected 4432 bytes but found 4431: it is truncated/, InvalidFileError],
    ["a root outside", patched(0, 255, 255, 255, 255), /points at bytes/, InvalidFileError],
  ])("of %s is refused", async (_, bytes, message, type) => {
    await expect(read(bytes, "m.pte")).rejects.toThrow(message);
    await expect(read(bytes, "m.pte")).rejects.toThrow(type);
    await expect(read(bytes, "m.pte")).rejects.toThrow(/^m\.pte: /);
  });

  it("may lack the size of the segments, as in older files", async () => {
    expect((await read(patched(32, 0, 0))).constants).toHaveLength(3);
    expect((await read(patched(12, 24))).constants).toHaveLength(3);
  });

  it("is believed only up to 64 MiB of program", async () => {
    const start = file.slice(0, 40);
    new DataView(start.buffer).setBigUint64(16, 2n ** 30n, true);
    new DataView(start.buffer).setBigUint64(24, 2n ** 30n, true);
    const source = { name: "m.pte", size: 2 ** 31, read: async () => start, close: async () => {} };
    await expect(readProgram(source)).rejects.toThrow(/its program has 1073741824 bytes/);
  });
});
