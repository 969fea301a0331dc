/**
 * Programs that no exporter makes: real ones whose graphs, memory plans, metadata, packed weights or bytes were changed,
 * and calls of any operator on any values put into them. Each is loaded and every method run twice.
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { memorySource } from "../../src/byte-source.ts";
import { InvalidFileError, LowbitError } from "../../src/errors.ts";
import type { Program } from "../../src/program/program.ts";
import { readProgram } from "../../src/program/read.ts";
import { verifyProgram } from "../../src/program/verify.ts";
import { encodeStart, writeProgram } from "../../src/program/write.ts";
import { LoadedProgram } from "../../src/runtime/program.ts";
import { elementCount, type Tensor, zeroTensor } from "../../src/tensor.ts";
import { loadProgramObject } from "../../src/tools/index.ts";
import { changeBytes, packedHeaders, programBytes } from "../support/damage.ts";
import { MemorySink } from "../support/memory-sink.ts";
import type { Random } from "../support/random.ts";
import { type Fuzzer, Misbehaviour } from "./child.ts";
import { isWritable } from "./odd-changes.ts";
import { basePrograms } from "./program-bases.ts";
import { changeProgram } from "./program-changes.ts";

/** More than the inputs of the base programs have. */
const INPUT_ELEMENTS_MAX = 1 << 16;
/** A run that takes longer is ended as a user would end it; if it does not end then, the watchdog sees it. */
const RUN_MS = 3000;

export const fuzzPrograms: Fuzzer = async (keep, kind) => {
  const { plain, layers, stored } = await basePrograms();
  const bases = kind === "layers" ? layers : [...plain, ...layers, ...stored];
  return async (random, seed) => {
    const base = random.pick(bases);
    const program = changeProgram(base, random);
    const bytes = isCoherent(program) ? await bytesOf(program) : incoherentBytes(program);
    if (random.next() < 0.1)
      changeBytes(bytes, { tableBytes: programBytes(bytes), headers: packedHeaders(bytes) }, random);
    if (keep !== null) await writeFile(join(keep, `programs-${seed}.pte`), bytes);
    const read = await readProgram(memorySource("fuzz.pte", bytes));
    await runProgram(read, random);
  };
};

function isCoherent(program: Program): boolean {
  let coherent = true;
  try {
    verifyProgram(program, () => {
      coherent = false;
      throw new InvalidFileError("fuzz.pte", "it is not coherent");
    });
  } catch (error) {
    if (coherent) throw error;
  }
  return coherent;
}

/** What the writer would refuse: its tables, and zeros in place of data. */
function incoherentBytes(program: Program): Uint8Array {
  if (!isWritable(program.methods)) throw new InvalidFileError("fuzz.pte", "holds numbers that no file can");
  const start = encodeStart(program);
  const header = new DataView(start.buffer, start.byteOffset);
  const [segmentBase, segmentBytes] = [24, 32].map((at) => Number(header.getBigUint64(at, true))) as [number, number];
  const bytes = new Uint8Array(Math.max(start.length, segmentBase + segmentBytes));
  bytes.set(start);
  return bytes;
}

async function bytesOf(program: Program): Promise<Uint8Array> {
  const sink = new MemorySink();
  await writeProgram(program, sink);
  return sink.bytes();
}

/**
 * Runs all methods on numbers, twice; then as a language model, where it is one, also where a method by itself is refused:
 * only so has a step sequences. Constants must be what they were.
 */
async function runProgram(program: Program, random: Random): Promise<void> {
  const threads = random.integer(1, 2);
  const refusals: LowbitError[] = [];
  const unlessRefused = (error: unknown): void => {
    if (!(error instanceof LowbitError)) throw error;
    refusals.push(error);
  };
  const loaded = await LoadedProgram.load(program, { threads });
  const before = loaded.constants.map(digest);
  try {
    await runMethods(program, loaded, random).catch(unlessRefused);
  } finally {
    const after = loaded.constants.map(digest);
    await loaded.dispose();
    await checkUnchanged(before, after);
  }
  if (program.namedData.has("tokenizer.json")) await runModel(program, threads).catch(unlessRefused);
  if (refusals.length > 0) throw refusals[0]!;
}

async function runModel(program: Program, threads: number): Promise<void> {
  try {
    const llm = await loadProgramObject(program, "fuzz.pte", {
      threads,
      signal: AbortSignal.timeout(RUN_MS),
      // Nobody waits for these programs to be fast.
      warmUpMs: 0,
    });
    try {
      const signal = AbortSignal.timeout(RUN_MS);
      if (llm.embedding) await llm.embedding.embed([[5, 6, 7], [8]], { signal });
      else for await (const _ of llm.generate([5, 6, 7], { maxTokens: 2, signal }));
    } finally {
      await llm.dispose();
    }
  } catch (error) {
    ownError(error);
  }
}

async function checkUnchanged(before: readonly number[], after: readonly number[]): Promise<void> {
  if (after.some((sum, i) => sum !== before[i])) throw new Misbehaviour("a constant was written");
}

async function runMethods(program: Program, loaded: LoadedProgram, random: Random): Promise<void> {
  const session = loaded.createSession();
  for (const method of program.methods) {
    if (loaded.metadata.has(method.name)) continue;
    const inputs = method.inputs.flatMap((index): Tensor[] => {
      const value = method.values[index]!;
      if (value.kind !== "tensor") return [];
      const sizes = value.dynamism === "static" ? value.sizes : value.sizes.map((size) => Math.min(size, 2));
      return elementCount(sizes) > INPUT_ELEMENTS_MAX ? [] : [inputOf(value.dtype, sizes, random)];
    });
    for (let i = 0; i < 2; i++) await session.run(method.name, inputs, AbortSignal.timeout(RUN_MS)).catch(ownError);
  }
}

/** Passes on what is no end that was asked for. */
function ownError(error: unknown): void {
  if (!(error instanceof DOMException && error.name === "TimeoutError")) throw error;
}

function inputOf(dtype: Tensor["dtype"], sizes: readonly number[], random: Random): Tensor {
  const tensor = zeroTensor(dtype, sizes);
  const { data } = tensor;
  const large = random.next() < 0.1;
  // Most programs are run on two rows.
  const most = random.pick([1, 1, 3]);
  for (let i = 0; i < data.length; i++) {
    const value = large ? random.pick([-1, 2 ** 31 - 1, -(2 ** 31), 255, 65535]) : random.integer(0, most);
    data[i] = (data instanceof BigInt64Array || data instanceof BigUint64Array ? BigInt(value) : value) as never;
  }
  return tensor;
}

/** A sum that a change of any byte changes. */
function digest(bytes: Uint8Array): number {
  let sum = 2166136261;
  for (let i = 0; i < bytes.length; i++) sum = Math.imul(sum ^ bytes[i]!, 16777619);
  return sum >>> 0;
}
