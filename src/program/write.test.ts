import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { MemorySink } from "../../test/support/memory-sink.ts";
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
  const sink = new MemorySink();
  await writeProgram(program, sink, options);
  return Buffer.from(sink.bytes());
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
    class LoggedSink extends MemorySink {
      override async write(bytes: Uint8Array) {
        if (bytes.length === 16 && bytes[0] === 7) events.push("write");
        await super.write(bytes);
      }
    }
    await writeProgram(programOf(constants, [["c", logged("c")]]), new LoggedSink());
    expect(events).toEqual(["read a", "write", "read b", "write", "read c", "write"]);
  });

  it("writes data whose head is known last part by part, and the head at its place", async () => {
    const headed = () => {
      let sum = 0;
      async function* rest() {
        for (const byte of [3, 4, 5]) {
          sum += byte;
          yield new Uint8Array(2).fill(byte);
        }
      }
      return { headBytes: 1, rest: rest(), head: () => Uint8Array.of(sum) };
    };
    const whole = async (): Promise<Uint8Array> => {
      throw new Error("it was made as a whole");
    };
    const data = (byteLength: number) => ({ byteLength, read: whole, headed });
    const file = await write(programOf([{ data: data(7), alignment: 16 }], [["after", source(2, 9)]]));
    const at = Number(file.readBigUInt64LE(24));
    expect([...file.subarray(at, at + 7)]).toEqual([12, 3, 3, 4, 4, 5, 5]);
    expect([...file.subarray(-2)]).toEqual([9, 9]);
    const short = write(programOf([{ data: data(8), alignment: 16 }]));
    await expect(short).rejects.toThrow(/constant 0: expected 8 bytes but read\(\) gave 7/);
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
