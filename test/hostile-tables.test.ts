/**
 * Every word of a program's tables as strangers could set it: offsets, lengths, tags, indices and sizes at their limits.
 * Each file is read, printed and run, or refused with an error of lowbit's own that names it.
 */
import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { memorySource } from "../src/byte-source.ts";
import { LowbitError } from "../src/errors.ts";
import { formatMethod } from "../src/program/format.ts";
import { readProgram } from "../src/program/read.ts";
import { writeProgram } from "../src/program/write.ts";
import { LoadedProgram } from "../src/runtime/program.ts";
import { elementCount, type Tensor, zeroTensor } from "../src/tensor.ts";
import { programBytes } from "./support/damage.ts";
import { honestProgram } from "./support/honest-program.ts";
import { MemorySink } from "./support/memory-sink.ts";

const FILE = "words.pte";

async function honestBytes(): Promise<Uint8Array> {
  const sink = new MemorySink();
  await writeProgram(honestProgram(), sink);
  return sink.bytes();
}

const golden = async (name: string) =>
  new Uint8Array(await readFile(new URL(`../src/program/golden/${name}.pte.golden`, import.meta.url)));

/** More than inputs of honest programs here have. */
const INPUT_ELEMENTS_MAX = 4096;

/** True where it ran, false for an error of ours that names the file. */
async function survives(bytes: Uint8Array): Promise<boolean> {
  let loaded: LoadedProgram | undefined;
  try {
    const program = await readProgram(memorySource(FILE, bytes));
    program.methods.map(formatMethod);
    loaded = await LoadedProgram.load(program, { threads: 1 });
    const session = loaded.createSession();
    for (const method of program.methods) {
      if (loaded.metadata.has(method.name)) continue;
      const inputs = method.inputs.flatMap((index): Tensor[] => {
        const value = method.values[index]!;
        return value.kind === "tensor" && elementCount(value.sizes) <= INPUT_ELEMENTS_MAX
          ? [zeroTensor(value.dtype, value.sizes)]
          : [];
      });
      await session.run(method.name, inputs);
    }
    return true;
  } catch (error) {
    if (!(error instanceof LowbitError)) throw error;
    expect(error.message).toMatch(/words\.pte|^method .*(input|expected)/);
    return false;
  } finally {
    await loaded?.dispose();
  }
}

/** The limits of numbers, of the file and of what stands in the word. */
const limits = (word: number, length: number) => [
  ...[0, 1, 2, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fffe],
  ...[length - 4, length, word + 1, word - 1, 2 * word].map((value) => value >>> 0),
];

describe.each([
  ["a planned method", honestBytes],
  ["a method with a jump", () => golden("branch")],
  ["a method with state", () => golden("state")],
  ["a delegate", () => golden("delegate")],
])("each word of %s", (_, make) => {
  it("at its limits is run or refused", { timeout: 300_000 }, async () => {
    const good = await make();
    const end = Math.min(good.length, programBytes(good) || good.length);
    const view = new DataView(good.buffer, good.byteOffset);
    const outcomes = { ran: 0, refused: 0 };
    for (let at = 0; at + 4 <= end; at += 4)
      for (const value of limits(view.getUint32(at, true), good.length)) {
        const bytes = good.slice();
        new DataView(bytes.buffer).setUint32(at, value, true);
        const ran = await survives(bytes).catch((error) => {
          throw new Error(`word at ${at} set to ${value}: ${error}`, { cause: error });
        });
        outcomes[ran ? "ran" : "refused"]++;
      }
    expect(outcomes.refused).toBeGreaterThan(outcomes.ran / 4);
  });
});
