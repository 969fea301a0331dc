import { ByteBuffer } from "flatbuffers";
import { describe, expect, it } from "vitest";
import { MemorySink } from "../../test/support/memory-sink.ts";
import { memorySource } from "../byte-source.ts";
import { InvalidFileError, type LowbitError, UnsupportedError } from "../errors.ts";
import type { DataSource, Instruction, Program, TensorValue, Value } from "./program.ts";
import { programLayout, readProgram } from "./read.ts";
import { writeProgram } from "./write.ts";

const FILE = "sample.pte";
const BIG = 2 ** 33;

function bytesSource(...bytes: number[]): DataSource {
  return { byteLength: bytes.length, read: async () => new Uint8Array(bytes) };
}

function tensor(changes: Partial<TensorValue>): TensorValue {
  return {
    kind: "tensor",
    dtype: "f32",
    sizes: [1, 4],
    dimOrder: [0, 1],
    dynamism: "static",
    constant: null,
    allocation: null,
    name: null,
    ...changes,
  };
}

const values: readonly Value[] = [
  { kind: "null" },
  { kind: "int", value: -7 },
  { kind: "int", value: 2 ** 52 + 1 },
  { kind: "int", value: 2 ** 63 },
  { kind: "int", value: -(2 ** 63) },
  { kind: "bool", value: true },
  { kind: "bool", value: false },
  { kind: "double", value: -0 },
  { kind: "double", value: Number.NEGATIVE_INFINITY },
  { kind: "string", value: "häß 数 \u0000 \ufeff" },
  { kind: "string", value: "" },
  tensor({ dynamism: "bound" }),
  tensor({ constant: 0, name: "model.weight", dtype: "u8", sizes: [3], dimOrder: [0] }),
  tensor({ constant: 1, dtype: "i64", sizes: [], dimOrder: [] }),
  tensor({ allocation: { memoryId: 1, offset: BIG + 64 }, sizes: [2, 3, 4], dimOrder: [0, 2, 1] }),
  tensor({ allocation: { memoryId: 2, offset: 0 }, name: "model.state", dynamism: "unbound" }),
  { kind: "intList", items: [1, 2, 18] },
  { kind: "intList", items: [] },
  { kind: "int", value: 0 },
  { kind: "doubleList", items: [0.1, -0, 1e300] },
  { kind: "boolList", items: [true, false, true] },
  { kind: "tensorList", items: [11, 12] },
  { kind: "optionalTensorList", items: [-1, 14, 0] },
];

const instructions: readonly Instruction[] = [
  { kind: "kernel", operator: 1, args: [11, 12, 14, 14] },
  { kind: "delegate", delegate: 0, args: [11, 14] },
  { kind: "move", from: 11, to: 14 },
  { kind: "jumpFalse", condition: 5, destination: 5 },
  { kind: "free", value: 14 },
];

const template = bytesSource(...new TextEncoder().encode("{{ messages }}"));

const sample: Program = {
  methods: [
    {
      name: "forward",
      values,
      inputs: [11],
      outputs: [14, 12],
      operators: [
        { name: "aten::add", overload: "out" },
        { name: "torchao::_linear_8bit_act_4bit_weight", overload: "out" },
        { name: "aten::copy_", overload: "" },
      ],
      instructions,
      delegates: ["XnnpackBackend"],
      memorySizes: [0, BIG + 256, 16],
    },
    {
      name: "get_vocab_size",
      values: [{ kind: "int", value: 128256 }],
      inputs: [],
      outputs: [0],
      operators: [],
      instructions: [],
      delegates: [],
      memorySizes: [0],
    },
  ],
  constants: [
    { data: bytesSource(1, 2, 3), alignment: 4096 },
    { data: bytesSource(9, 8, 7, 6, 5, 4, 3, 2), alignment: 16 },
    { data: bytesSource(5, 5, 5, 5, 5), alignment: 64 },
  ],
  namedData: new Map([
    ["tokenizer.json", bytesSource(123, 125)],
    ["chat_template", template],
    ["chat_template_again", template],
  ]),
};

async function fileOf(program: Program): Promise<Uint8Array<ArrayBuffer>> {
  const sink = new MemorySink();
  await writeProgram(program, sink);
  return sink.bytes();
}

/** The program with its data in place of the sources, to compare. */
async function contentOf(program: Program): Promise<object> {
  const constants = program.constants.map(({ data }) => data.read());
  const namedData = [...program.namedData].map(async ([key, data]) => [key, await data.read()]);
  return { methods: program.methods, constants: await Promise.all(constants), named: await Promise.all(namedData) };
}

describe("a written program", () => {
  it("reads back as it was: every kind of value and instruction, constants and named data", async () => {
    const read = await readProgram(memorySource(FILE, await fileOf(sample)));
    expect(await contentOf(read)).toEqual(await contentOf(sample));
    expect(read.constants.map(({ alignment }) => alignment)).toEqual([4096, 16, 64]);
    expect(read.namedData.get("chat_template")).toBe(read.namedData.get("chat_template_again"));
  });

  it("is the same bytes each time, also when written from what was read", async () => {
    const file = await fileOf(sample);
    expect(await fileOf(sample)).toEqual(file);
    expect(await fileOf(await readProgram(memorySource(FILE, file)))).toEqual(file);
  });

  it("stores a constant that is listed twice once", async () => {
    const [first, second] = sample.constants;
    const program = { ...sample, constants: [first!, second!, second!, first!] };
    const file = await fileOf(program);
    const read = await readProgram(memorySource(FILE, file));
    expect(read.constants[2]).toBe(read.constants[1]);
    expect(read.constants[3]).toBe(read.constants[0]);
    expect((await programLayout(memorySource(FILE, file))).constants).toBe(16 + 8);
  });

  it("may have no constants and no named data", async () => {
    const program = { methods: [sample.methods[1]!], constants: [], namedData: new Map() };
    const file = await fileOf(program);
    expect(await contentOf(await readProgram(memorySource(FILE, file)))).toEqual(await contentOf(program));
    const { length } = file;
    expect(await programLayout(memorySource(FILE, file))).toEqual({
      total: length,
      program: length,
      constants: 0,
      namedData: 0,
      otherSegments: 0,
      padding: 0,
    });
  });

  it("has the layout of program.fbs, decoded by hand with the npm ByteBuffer", async () => {
    const file = await fileOf(sample);
    const view = new DataView(file.buffer);
    expect(Buffer.from(file.subarray(4, 12)).toString()).toBe("ET12eh00");
    expect(view.getUint32(12, true)).toBe(32);
    const base = Number(view.getBigUint64(24, true));
    expect(base % 4096).toBe(0);
    expect(base + Number(view.getBigUint64(32, true))).toBe(file.length);

    const bb = new ByteBuffer(file.subarray(0, Number(view.getBigUint64(16, true))));
    const field = (table: number, slot: number) => table + bb.__offset(table, 4 + 2 * slot);
    const vector = (table: number, slot: number) => bb.__vector(field(table, slot));
    const item = (table: number, slot: number, index: number) => bb.__indirect(vector(table, slot) + 4 * index);
    const root = bb.readInt32(0);
    expect(bb.readInt32(field(root, 0))).toBe(0);
    const newer = file.slice();
    newer[field(root, 0)] = 7;
    const reading = readProgram(memorySource("x.pte", newer));
    await expect(reading).rejects.toThrow(/^x\.pte: version: expected schema version 0, .* but found 7/);
    const plan = item(root, 1, 0);
    expect(bb.__string(field(plan, 0))).toBe("forward");
    expect(bb.__vector_len(field(plan, 2))).toBe(values.length);
    const operator = item(plan, 6, 1);
    expect(bb.__string(field(operator, 0))).toBe("torchao::_linear_8bit_act_4bit_weight");
    expect(bb.__string(field(operator, 1))).toBe("out");
    // Value 14: union tag Tensor, sizes, dim_order, offset split in two words of 32 bits.
    const evalue = item(plan, 2, 14);
    expect(bb.readUint8(field(evalue, 0))).toBe(5);
    const planned = bb.__indirect(field(evalue, 1));
    expect([0, 1, 2].map((index) => bb.readInt32(vector(planned, 2) + 4 * index))).toEqual([2, 3, 4]);
    expect([0, 1, 2].map((index) => bb.readUint8(vector(planned, 3) + index))).toEqual([0, 2, 1]);
    const allocation = bb.__indirect(field(planned, 6));
    expect([0, 1, 2].map((slot) => bb.readUint32(field(allocation, slot)))).toEqual([1, 64, 2]);
    // Value 12: data_buffer_idx is the constant's index + 1, the name stands in extra_tensor_info.
    const constant = bb.__indirect(field(item(plan, 2, 12), 1));
    expect(bb.readUint32(field(constant, 5))).toBe(1);
    expect(bb.__string(field(bb.__indirect(field(constant, 9)), 1))).toBe("model.weight");
    // The constant segment: a reserved entry, then the offsets.
    const segment = bb.__indirect(field(root, 5));
    const offsets = [0, 1, 2, 3].map((index) => Number(bb.readInt64(vector(segment, 1) + 8 * index)));
    expect(offsets).toEqual([0, 0, 16, 64]);
    expect([...file.subarray(base + 16, base + 24)]).toEqual([9, 8, 7, 6, 5, 4, 3, 2]);
  });
});

describe("a damaged program", () => {
  it("is an error at every length that it may be cut to", async () => {
    const file = await fileOf(sample);
    for (let length = 0; length < file.length; length++) {
      const cut = memorySource(FILE, file.subarray(0, length));
      await expect(readProgram(cut), `${length} bytes`).rejects.toThrow(InvalidFileError);
    }
  });

  it("is read or refused with an error of ours whatever its bytes are", async () => {
    const file = await fileOf(sample);
    const programBytes = (await programLayout(memorySource(FILE, file))).program;
    const random = seededRandom(7);
    const outcomes = { read: 0, refused: 0 };
    for (let round = 0; round < 6000; round++) {
      const source = memorySource(FILE, mutate(file, programBytes, random));
      try {
        const program = await readProgram(source);
        for (const data of [...program.constants.map((each) => each.data), ...program.namedData.values()])
          expect((await data.read()).length).toBe(data.byteLength);
        expect((await programLayout(source)).padding).toBeGreaterThanOrEqual(0);
        outcomes.read++;
      } catch (error) {
        if (!(error instanceof InvalidFileError || error instanceof UnsupportedError)) throw error;
        expect((error as LowbitError).message).toContain(FILE);
        outcomes.refused++;
      }
    }
    expect(outcomes.read).toBeGreaterThan(100);
    expect(outcomes.refused).toBeGreaterThan(1000);
  });
});

/** One to three changes: a random byte, or a word at a multiple of 4 replaced by one that tends to hurt. */
function mutate(file: Uint8Array<ArrayBuffer>, end: number, random: () => number): Uint8Array {
  const result = file.slice();
  const view = new DataView(result.buffer);
  const words = [0, 1, 4, 0x7fffffff, 0x80000000, 0xffffffff, file.length, end - 4, 0xffff0004];
  const below = (limit: number) => Math.floor(random() * limit);
  for (let change = below(3); change >= 0; change--) {
    if (random() < 0.5) result[below(end)] = below(256);
    else view.setUint32(4 * below(end / 4 - 1), random() < 0.5 ? below(end) : words[below(words.length)]!, true);
  }
  return result;
}

/** mulberry32: numbers in 0..1 that are the same in each run. */
function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
