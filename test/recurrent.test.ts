/** Recurrent layers in a program: a sequence is what it is alone, however it is cut, shared, forked, cut back and saved. */
import { describe, expect, it } from "vitest";
import { memorySource } from "../src/byte-source.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { hostCpu, scalarCpu } from "../src/kernels/cpu.ts";
import { hasNative } from "../src/kernels/native/rows.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { createDecoder, scheduleWith } from "../src/language/decoders.ts";
import type { ProgramDecoder } from "../src/language/program-decoder.ts";
import { LoadedProgram, type LoadOptions, storeOf } from "../src/runtime/program.ts";
import { Random } from "./support/random.ts";
import { type RecurrentModelOptions, recurrentProgram, VOCABULARY } from "./support/recurrent-model.ts";
import { expectSame } from "./support/same.ts";

const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const cpus: readonly Cpu[] = [scalarCpu, wasmCpu, ...(hasNative() ? [hostCpu()] : [])];
const model: RecurrentModelOptions = { rows: 48, contextLength: 256, window: 0 };

interface Options extends LoadOptions {
  readonly model?: Partial<RecurrentModelOptions>;
  readonly prefillTokens?: number;
}

async function load(cpu: Cpu, { model: given, prefillTokens, ...options }: Options = {}): Promise<LoadedProgram> {
  const program = await LoadedProgram.load(recurrentProgram(cpu, { ...model, ...given }), { cpu, ...options });
  scheduleWith(program, { prefillTokens });
  return program;
}

const random = new Random(4);
const idsOf = (length: number) => Array.from({ length }, () => random.integer(0, VOCABULARY - 1));
const prompts = [1, 2, 9, 31, 32, 33, 64, 90, 130].map(idsOf);

function largest(values: Float32Array): number {
  return values.indexOf(Math.max(...values));
}

/** Logits of what is given, and of greedy tokens after it, one row after the other. */
async function goOn(decoder: ProgramDecoder, prompt: readonly number[], count = 5): Promise<Float32Array> {
  const rows = [(await decoder.prefill(prompt)).slice()];
  for (let i = 1; i < count; i++) rows.push((await decoder.step(largest(rows.at(-1)!))).slice());
  return Float32Array.from(rows.flatMap((row) => [...row]));
}

async function logitsOf(program: LoadedProgram, prompt: readonly number[], count?: number): Promise<Float32Array> {
  const decoder = createDecoder(program);
  const found = await goOn(decoder, prompt, count);
  await decoder.dispose();
  return found;
}

/** Of each prompt, by a program in which it is alone, row by row. */
async function alone(cpu: Cpu, options: Options = {}): Promise<Float32Array[]> {
  const expected: Float32Array[] = [];
  for (const prompt of prompts) {
    const program = await load(cpu, { ...options, threads: 1, model: { ...options.model, rows: 1 } });
    expected.push(await logitsOf(program, prompt));
    await program.dispose();
  }
  return expected;
}

describe.each(cpus)("on $name", (cpu) => {
  it.each([0, 24, null])(
    "a sequence is the same alone, row by row, and among others, attention %s",
    async (window) => {
      const expected = await alone(cpu, { model: { window } });
      for (const [threads, rows, prefillTokens] of [
        [1, 7, 3],
        [2, 48, 40],
        [3, 200, 64],
      ] as const) {
        const program = await load(cpu, { threads, prefillTokens, model: { rows, window } });
        const found = await Promise.all(prompts.map((prompt) => logitsOf(program, prompt)));
        for (const [i, row] of found.entries()) expectSame(row, expected[i]!, `prompt ${i}, ${rows} rows`);
        // A second time, prefixes are in the store.
        const again = await Promise.all(prompts.map((prompt) => logitsOf(program, prompt)));
        for (const [i, row] of again.entries()) expectSame(row, expected[i]!, `prompt ${i} again`);
        expect(program.sequenceStatistics!.reusedTokens).toBe(32 + 32 + 64 + 128);
        await program.dispose();
      }
    },
    60_000,
  );
});

describe("a sequence with states", () => {
  const prompt = prompts.at(-1)!;

  it("is found by others up to the last page that it has ended", async () => {
    const program = await load(scalarCpu);
    const expected = await logitsOf(program, prompt);
    const before = program.sequenceStatistics!.reusedTokens;
    expectSame(await logitsOf(program, prompt), expected);
    expect(program.sequenceStatistics!.reusedTokens - before).toBe(128);
  });

  it("that others wait for ends the pages that they have in common", async () => {
    const program = await load(scalarCpu, { model: { rows: 200 } });
    const ends = [idsOf(20), idsOf(45), idsOf(70)];
    const shared = prompt.slice(0, 70);
    const found = await Promise.all(ends.map((end) => logitsOf(program, [...shared, ...end])));
    expect(program.sequenceStatistics!.reusedTokens).toBe(2 * 64);
    const other = await load(scalarCpu);
    for (const [i, end] of ends.entries()) expectSame(found[i]!, await logitsOf(other, [...shared, ...end]));
  });

  it("is cut back to any of its tokens", async () => {
    const program = await load(scalarCpu);
    const decoder = createDecoder(program);
    await decoder.prefill(prompt);
    for (const position of [129, 128, 97, 64, 63, 3, 0]) {
      decoder.rewind(position);
      const next = idsOf(random.integer(1, 40));
      const expected = await logitsOf(await load(scalarCpu), [...prompt.slice(0, position), ...next]);
      expectSame(await goOn(decoder, next), expected, `from ${position}`);
    }
  });

  it("forks, and each goes on by itself", async () => {
    const program = await load(scalarCpu);
    const store = storeOf(program)!;
    const session = program.createSession();
    const extend = async (sequence: ReturnType<typeof store.open>, ids: readonly number[]) => {
      if (!sequence.reserve(ids.length)) throw new Error("no room");
      const vector = (values: readonly number[]) => BigInt64Array.from(values, BigInt);
      const positions = ids.map((_, i) => sequence.position + i);
      const inputs = [
        { dtype: "i64", shape: [1, ids.length], data: vector(ids) },
        { dtype: "i64", shape: [ids.length], data: vector(positions) },
        { dtype: "i64", shape: [1], data: vector([ids.length - 1]) },
      ] as const;
      const run = () => session.use("forward", inputs, ([logits]) => Float32Array.from(logits!.data as Float32Array));
      const logits = await store.step([{ sequence, tokens: ids.length }], run);
      sequence.commit(ids);
      return logits;
    };
    const sequence = store.open();
    await extend(sequence, prompt.slice(0, 40));
    const forks = [sequence, sequence.fork(), sequence.fork()];
    const nexts = [idsOf(3), idsOf(30), idsOf(1)];
    for (const [i, next] of nexts.entries()) {
      const found = await extend(forks[i]!, next);
      const whole = createDecoder(await load(scalarCpu));
      expectSame(found, await whole.prefill([...prompt.slice(0, 40), ...next]));
    }
    for (const fork of forks) fork.dispose();
    expect(program.sequenceStatistics!.sequences).toBe(0);
  });

  it("is gone on from by another process's program", async () => {
    const program = await load(scalarCpu);
    const expected = await logitsOf(program, prompt);
    const store = storeOf(program)!;
    const sequence = store.open(prompt, { branch: "forward" });
    const file = Buffer.concat([...store.save(sequence, "program")]);
    const other = await load(scalarCpu);
    const restored = await storeOf(other)!.restore(memorySource("file", new Uint8Array(file)), "program");
    expect(restored.position).toBe(128);
    restored.dispose();
    expectSame(await logitsOf(other, prompt), expected);
    expect(other.sequenceStatistics!.reusedTokens).toBe(128);
    const without = await load(scalarCpu, { model: { window: null } });
    await expect(storeOf(without)!.restore(memorySource("file", new Uint8Array(file)), "program")).rejects.toThrow(
      "kinds: expected [] but found",
    );
  });

  it("that has no room waits, and ends as it would alone", async () => {
    const expected = await alone(scalarCpu);
    const least = await load(scalarCpu, { sequences: 1 });
    const { limitBytes } = least.sequenceStatistics!;
    const tight = await load(scalarCpu, { cacheBytes: limitBytes });
    const found = await Promise.all(prompts.map((prompt) => logitsOf(tight, prompt)));
    for (const [i, row] of found.entries()) expectSame(row, expected[i]!, `prompt ${i}`);
    expect(tight.sequenceStatistics!.bytes).toBeLessThanOrEqual(limitBytes);
  });
});
