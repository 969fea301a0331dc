import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import { openFile } from "../node-file.ts";
import type { Constant, DataSource, Program } from "./program.ts";
import { readProgram } from "./read.ts";
import { saveProgram } from "./save.ts";
import { writeProgram } from "./write.ts";

const source = (byteLength: number, fill = 1): DataSource => ({
  byteLength,
  read: async () => new Uint8Array(byteLength).fill(fill),
});

function programOf(constants: Constant[], namedData: [string, DataSource][] = []): Program {
  return { methods: [], constants, namedData: new Map(namedData) };
}

async function write(program: Program, options = {}): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  await writeProgram(program, { position: 0, write: async (bytes) => void parts.push(bytes) }, options);
  return Buffer.concat(parts);
}

describe("writeProgram", () => {
  it("puts each constant at its alignment in the file, in order, with zeros between", async () => {
    const alignments = [64, 16, 4096, 32, 1024];
    const constants = alignments.map((alignment, index) => ({ data: source(10 + index, index + 1), alignment }));
    const file = await write(programOf(constants, [["blob", source(3, 200)]]));
    const read = await readProgram({
      name: "x",
      size: file.length,
      read: async (o, n) => file.subarray(o, o + n),
      close: async () => {},
    });
    expect(read.constants).toHaveLength(5);
    const base = Number(file.readBigUInt64LE(24));
    const starts = alignments.map((_, index) => file.indexOf(new Uint8Array(10 + index).fill(index + 1), base));
    expect(starts).toEqual(starts.toSorted((a, b) => a - b));
    starts.forEach((start, index) => {
      expect(start % alignments[index]!).toBe(0);
    });
    const blob = file.indexOf(new Uint8Array(3).fill(200), base);
    expect(blob % 16).toBe(0);
    expect(blob + 3).toBe(file.length);
    const used = 10 + 11 + 12 + 13 + 14 + 3;
    expect(file.subarray(base).filter((byte) => byte !== 0)).toHaveLength(used);
  });

  it("reads one constant at a time, once, in order", async () => {
    const events: string[] = [];
    const logged = (name: string): DataSource => ({
      byteLength: 16,
      async read() {
        events.push(`read ${name}`);
        return new Uint8Array(16).fill(7);
      },
    });
    const constants = ["a", "b"].map((name) => ({ data: logged(name), alignment: 16 }));
    const sink = {
      position: 0,
      async write(bytes: Uint8Array) {
        if (bytes.length === 16 && bytes[0] === 7) events.push("write");
      },
    };
    await writeProgram(programOf(constants, [["c", logged("c")]]), sink);
    expect(events).toEqual(["read a", "write", "read b", "write", "read c", "write"]);
  });

  it("reports progress up to the size of the file", async () => {
    const progress: [number, number][] = [];
    const onProgress = (done: number, total: number) => progress.push([done, total]);
    const file = await write(programOf([{ data: source(100), alignment: 16 }]), { onProgress });
    expect(progress.at(-1)).toEqual([file.length, file.length]);
    expect(progress.map(([done]) => done)).toEqual(progress.map(([done]) => done).toSorted((a, b) => a - b));
  });

  it("refuses data of another length than it said, and programs that are not coherent", async () => {
    const short = { byteLength: 20, read: async () => new Uint8Array(19) };
    const constants = [
      { data: source(4), alignment: 16 },
      { data: short, alignment: 16 },
    ];
    await expect(write(programOf(constants))).rejects.toThrow(/constant 1: expected 20 bytes but read\(\) gave 19/);
    await expect(write(programOf([], [["t", short]]))).rejects.toThrow(/named data "t": expected 20 bytes/);
    const odd = write(programOf([{ data: source(4), alignment: 12 }]));
    await expect(odd).rejects.toThrow(/program: constant 0: .* alignment but found 12/);
    await expect(odd).rejects.toThrow(InvalidArgumentError);
  });
});

describe("saveProgram", () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "lowbit-program-"));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it("makes a file that reads back", async () => {
    const path = join(folder, "model.pte");
    const program = programOf([{ data: source(5, 3), alignment: 16 }], [["t", source(2, 9)]]);
    await saveProgram(program, path);
    expect(await readFile(path)).toEqual(await write(program));
    const file = await openFile(path);
    const read = await readProgram(file);
    expect([...(await read.namedData.get("t")!.read())]).toEqual([9, 9]);
    await file.close();
  });

  it("leaves nothing behind when it is stopped", async () => {
    const controller = new AbortController();
    const stopping: DataSource = {
      byteLength: 4,
      async read() {
        controller.abort();
        return new Uint8Array(4);
      },
    };
    const saved = saveProgram(programOf([{ data: stopping, alignment: 16 }]), join(folder, "model.pte"), {
      signal: controller.signal,
    });
    await expect(saved).rejects.toThrow(/abort/);
    expect(await readdir(folder)).toEqual([]);
  });
});
