/** Programs whose weights are in a file apart: files of the stock exporter, see golden/export.py. */
import { readFileSync } from "node:fs";
import { Builder } from "flatbuffers";
import { describe, expect, it } from "vitest";
import { memorySource } from "../byte-source.ts";
import { InvalidFileError, LowbitError, UnsupportedError } from "../errors.ts";
import { LoadedProgram } from "../runtime/program.ts";
import { int32, writeTable } from "./flatbuffer-writer.ts";
import { readProgram } from "./read.ts";
import * as schema from "./schema.ts";
import { readTensorFile } from "./tensor-file.ts";

const golden = (name: string): Uint8Array<ArrayBuffer> =>
  new Uint8Array(readFileSync(new URL(`golden/external.${name}.golden`, import.meta.url)));
const program = memorySource("x.pte", golden("pte"));
const tensors = memorySource("x.ptd", golden("ptd"));

/** The file with bytes replaced. */
function changed(at: number, ...values: number[]) {
  const bytes = golden("ptd");
  bytes.set(values, at);
  return memorySource("x.ptd", bytes);
}

describe("files of tensors", () => {
  it("are read by name, with what they say of each", async () => {
    const found = await readTensorFile(tensors);
    expect([...found.keys()].sort()).toEqual(["linear.bias", "linear.weight"]);
    const { data, spec } = found.get("linear.bias")!;
    expect(spec).toEqual({ dtype: "f32", sizes: [3] });
    expect([...new Float32Array((await data.read()).slice().buffer)]).toEqual([0.5, 1.5, 2.5]);
  });

  it("serve all methods of a program, and several programs", async () => {
    for (let i = 0; i < 2; i++) {
      const read = await readProgram(program, { data: [tensors] });
      const constants = read.methods.map(({ values }) =>
        values.flatMap((value) => (value.kind === "tensor" && value.name === "linear.weight" ? [value.constant] : [])),
      );
      expect(constants[0]).toEqual(constants[1]);
      const session = (await LoadedProgram.load(read)).createSession();
      const x = { dtype: "f32", shape: [2, 4], data: Float32Array.of(1, 2, 3, 4, -1, 0, 1, 2) } as const;
      const [once] = await session.run("times1", [x]);
      expect([...once!.data]).toEqual([20.5, 61.5, 102.5, 8.5, 17.5, 26.5]);
      const [thrice] = await session.run("times3", [x]);
      expect([...thrice!.data]).toEqual([61.5, 184.5, 307.5, 25.5, 52.5, 79.5]);
    }
  });

  it("are asked for by the names of what is missing", async () => {
    await expect(readProgram(program)).rejects.toThrow(UnsupportedError);
    await expect(readProgram(program)).rejects.toThrow(/x\.pte: tensors linear\.weight, linear\.bias .*\.ptd.*--data/);
  });

  it("may not name a tensor twice", async () => {
    const again = memorySource("y.ptd", golden("ptd"));
    await expect(readProgram(program, { data: [tensors, again] })).rejects.toThrow(
      /y\.ptd: tensor .* is in x\.ptd too/,
    );
  });

  it.each([
    ["a program", program, InvalidFileError, /expected a \.ptd file of tensors.*ET12/],
    ["another identifier", changed(4, 70, 84, 48, 50), InvalidFileError, /FT02/],
    ["a short header", changed(12, 8), InvalidFileError, /at least 40 bytes but it says 8/],
    ["tables beyond the file", changed(24, 255, 255), InvalidFileError, /truncated|segments start/],
    ["segments inside the tables", changed(32, 16, 0), InvalidFileError, /segments start at 16/],
    ["a cut file", memorySource("x.ptd", golden("ptd").slice(0, 400)), InvalidFileError, /truncated/],
    ["a few bytes", memorySource("x.ptd", golden("ptd").slice(0, 20)), InvalidFileError, /expected a \.ptd/],
  ])("refuses %s", async (_, source, kind, message) => {
    await expect(readTensorFile(source)).rejects.toThrow(kind);
    await expect(readTensorFile(source)).rejects.toThrow(message);
  });

  it("refuses a newer version, and names both", async () => {
    const builder = new Builder();
    builder.finish(writeTable(builder, schema.FlatTensor, { version: int32(3) }), "FT01");
    const tables = builder.asUint8Array();
    const bytes = new Uint8Array(40 + tables.length);
    bytes.set(tables.subarray(0, 8));
    bytes.set(tables.subarray(8), 48);
    bytes.set(golden("ptd").subarray(8, 48), 8);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, view.getUint32(0, true) + 40, true);
    for (const [i, value] of [0, bytes.length, 0, 0].entries()) view.setBigUint64(16 + 8 * i, BigInt(value), true);
    const reading = readTensorFile(memorySource("x.ptd", bytes));
    await expect(reading).rejects.toThrow(/^x\.ptd: version: expected schema version 0, .* but found 3/);
    await expect(reading).rejects.toThrow(UnsupportedError);
  });

  it("refuses what the program expects otherwise", async () => {
    const bytes = golden("ptd");
    const view = new DataView(bytes.buffer);
    // The sizes of the weight, [3, 4], as the tables have them.
    const at = Array.from({ length: 120 }, (_, i) => 4 * i).find(
      (place) => view.getInt32(place, true) === 3 && view.getInt32(place + 4, true) === 4,
    )!;
    view.setInt32(at, 4, true);
    const other = memorySource("x.ptd", bytes);
    await expect(readProgram(program, { data: [other] })).rejects.toThrow(LowbitError);
    await expect(readProgram(program, { data: [other] })).rejects.toThrow(/expects f32 \[3,4\] but it is f32 \[4,4\]/);
  });
});
