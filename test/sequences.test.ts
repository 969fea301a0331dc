/** Many sequences of one program at once: each is what it is alone, however it shares steps, pages and files with others. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  InvalidArgumentError,
  InvalidFileError,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  type LanguageModel,
  loadCheckpoint,
  loadCompiled,
  quantize,
  sharedEmbedding,
  UnsupportedError,
} from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { scalarCpu } from "../src/kernels/cpu.ts";
import { hasNative } from "../src/kernels/native/rows.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { restorePrefix, savePrefix } from "../src/tools/index.ts";
import { distance } from "./support/distance.ts";
import { exactHost, hostHasExceptions } from "./support/exact-rows.ts";
import { temporaryFolder } from "./support/folders.ts";
import { Random } from "./support/random.ts";
import { expectSame } from "./support/same.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const cpus: readonly Cpu[] = [scalarCpu, wasmCpu, ...(hasNative() ? [exactHost()] : [])];
const CONTEXT = 256;

const folder = await temporaryFolder();
await writeTinyCheckpoint(folder, { config: { max_position_embeddings: CONTEXT } });

type Options = NonNullable<Parameters<typeof loadCompiled>[1]>;

type Rules = Parameters<typeof quantize>[1];
const eightBitActivations: Rules = [int8DynamicActivationIntxWeight({ bits: 4 }), sharedEmbedding({ bits: 4 })];

async function load(options: Options, rules = eightBitActivations): Promise<LanguageModel> {
  const model = await loadCheckpoint(folder);
  quantize(model, rules);
  const llm = await loadCompiled(model, options);
  await model.close();
  return llm;
}

const random = new Random(7);
const prompts = [1, 2, 9, 33, 64, 65, 90, 130].map((length) => Array.from({ length }, () => random.integer(0, 281)));

/** Logits of a prompt and of tokens after it, one row after the other: the greedy ones where none are given. */
async function logitsOf(
  llm: LanguageModel,
  prompt: readonly number[],
  next?: readonly number[],
): Promise<Float32Array> {
  const count = 1 + (next?.length ?? 5);
  const decoder = llm.createDecoder();
  const rows: Float32Array[] = [(await decoder.prefill(prompt)).slice()];
  for (let i = 1; i < count; i++) rows.push((await decoder.step(next?.[i - 1] ?? largest(rows.at(-1)!))).slice());
  await decoder.dispose();
  const all = new Float32Array(count * rows[0]!.length);
  for (const [i, row] of rows.entries()) all.set(row, i * row.length);
  return all;
}

function largest(values: Float32Array): number {
  let best = 0;
  for (const [i, value] of values.entries()) if (value > values[best]!) best = i;
  return best;
}

describe.each(cpus)("on $name", (cpu) => {
  it.each(["f32", "f16", "int8", "int4"] as const)(
    "a sequence is the same alone and among others, %s",
    async (kvCache) => {
      const alone = await load({ cpu, kvCache, threads: 1, maxSeqLen: 256 });
      const expected: Float32Array[] = [];
      for (const prompt of prompts) expected.push(await logitsOf(alone, prompt));
      await alone.dispose();
      for (const [threads, maxSeqLen, prefillTokens] of [
        [1, 16, 5],
        [2, 64, 64],
        [3, 256, 17],
      ]) {
        const llm = await load({ cpu, kvCache, threads, maxSeqLen, prefillTokens } as Options);
        const found = await Promise.all(prompts.map((prompt) => logitsOf(llm, prompt)));
        for (const [i, row] of found.entries()) expectSame(row, expected[i]!, `prompt ${i}, ${threads} threads`);
        // A second time, prefixes are in the store.
        const again = await Promise.all(prompts.map((prompt) => logitsOf(llm, prompt)));
        for (const [i, row] of again.entries()) expectSame(row, expected[i]!, `prompt ${i} again`);
        expect(llm.program.sequenceStatistics!.reusedTokens).toBeGreaterThan(128);
        await llm.dispose();
      }
    },
    120_000,
  );
});

describe.each([
  ["weights of 4 bits", [intxWeightOnly({ bits: 4, groupSize: 32 })]],
  ["weights of 8 bits, 8-bit activations", [int8DynamicActivationIntxWeight({ bits: 8 })]],
  ["float weights", []],
] as const)("%s", (_, rules) => {
  it.each(cpus)(
    "a sequence is the same alone and among others on $name",
    async (cpu) => {
      const alone = await load({ cpu, threads: 1, maxSeqLen: 256 }, rules);
      const expected: Float32Array[] = [];
      for (const prompt of prompts) expected.push(await logitsOf(alone, prompt));
      await alone.dispose();
      const llm = await load({ cpu, threads: 2, maxSeqLen: 64, prefillTokens: 17 } as Options, rules);
      const found = await Promise.all(prompts.map((prompt) => logitsOf(llm, prompt)));
      for (const [i, row] of found.entries()) expectSame(row, expected[i]!, `prompt ${i}`);
      await llm.dispose();
    },
    120_000,
  );
});

describe.skipIf(!hostHasExceptions)("where many rows are computed in another way (skipped: this CPU has none)", () => {
  it.each([
    // Where a last bit moves an activation across the middle of two integers, the next layers take another.
    ["weights of 4 bits, 8-bit activations", eightBitActivations, 0.03],
    ["weights of 8 bits, 8-bit activations", [int8DynamicActivationIntxWeight({ bits: 8 })], 0.03],
    ["weights of 4 bits", [intxWeightOnly({ bits: 4, groupSize: 32 })], 1e-5],
    ["float weights", [], 1e-5],
  ] as const)("a sequence among others is near what it is alone, row by row: %s", async (_, rules, bound) => {
    const alone = await load({ cpu: exactHost(), threads: 1 }, rules);
    const llm = await load({ threads: 2, prefillTokens: 150 } as Options, rules);
    const next = [3, 1, 4, 1, 5];
    const expected: Float32Array[] = [];
    for (const prompt of prompts) expected.push(await logitsOf(alone, prompt, next));
    const found = await Promise.all(prompts.map((prompt) => logitsOf(llm, prompt, next)));
    for (const [i, logits] of found.entries())
      expect(distance(logits, expected[i]!).relative, `prompt ${i}`).toBeLessThan(bound);
    for (const opened of [alone, llm]) await opened.dispose();
  });
});

it("prompts that begin alike are computed once, also when they come together", async () => {
  const llm = await load({ cpu: scalarCpu, maxSeqLen: 64 });
  const prompt = prompts.at(-1)!;
  const [first, ...others] = await Promise.all([1, 2, 3].map(() => logitsOf(llm, prompt)));
  for (const other of others) expectSame(other, first!);
  expect(llm.program.sequenceStatistics!.reusedTokens).toBe(2 * 128);
});

it.each([
  ["f32", scalarCpu],
  // Prompts and answers are computed in two ways on x86: what waited is computed again as before.
  ...(hasNative() ? [["f16", exactHost()] as const] : []),
] as const)(
  "where pages of %s run out, the youngest wait and all end as they would alone",
  async (kvCache, cpu) => {
    const roomy = await load({ cpu, kvCache });
    const expected = [];
    for (const prompt of prompts) expected.push(await logitsOf(roomy, prompt));
    // Room for one whole context and little more.
    const least = await load({ cpu, kvCache, sequences: 1 });
    const { limitBytes } = least.program.sequenceStatistics!;
    const tight = await load({ cpu, kvCache, maxSeqLen: 64, cacheBytes: limitBytes });
    const found = await Promise.all(prompts.map((prompt) => logitsOf(tight, prompt)));
    for (const [i, row] of found.entries()) expectSame(row, expected[i]!, `prompt ${i}`);
    expect(tight.program.sequenceStatistics!.bytes).toBeLessThanOrEqual(limitBytes);
  },
  60_000,
);

it("an abort ends one generation and leaves the others as they are", async () => {
  const llm = await load({ cpu: scalarCpu });
  const expected = await logitsOf(llm, prompts[3]!);
  const stop = new AbortController();
  const aborted = llm.createDecoder().prefill(prompts[7]!, { signal: stop.signal });
  const other = logitsOf(llm, prompts[3]!);
  stop.abort(new Error("enough"));
  await expect(aborted).rejects.toThrow("enough");
  expectSame(await other, expected);
});

it("a decoder that is disposed of while it waits ends alone", async () => {
  const llm = await load({ cpu: scalarCpu });
  const expected = await logitsOf(llm, prompts[3]!);
  const decoder = llm.createDecoder();
  const left = decoder.prefill(prompts[7]!);
  const ended = expect(left).rejects.toThrow("the decoder was disposed of");
  const other = logitsOf(llm, prompts[3]!);
  await decoder.dispose();
  await ended;
  expectSame(await other, expected);
});

it("a call without tokens, or with those of neither a prompt nor an answer, is an error", async () => {
  const decoder = (await load({ cpu: scalarCpu })).createDecoder();
  await expect(decoder.prefill([])).rejects.toThrow("prefill: expected at least one token");
  await expect(decoder.allLogits([])).rejects.toThrow("allLogits: expected at least one token");
  const of = "draft" as "answer";
  await expect(decoder.prefill([1], { of })).rejects.toThrow('of: expected prompt or answer but found "draft"');
});

/** Goes on after a prompt until something ends it. */
async function stepForever(llm: LanguageModel, prompt: readonly number[]): Promise<never> {
  const decoder = llm.createDecoder();
  await decoder.prefill(prompt);
  for (;;) {
    if (decoder.position === decoder.contextLength) decoder.rewind(prompt.length);
    await decoder.step(5);
  }
}

it.each(cpus)(
  "disposing of the model ends the eight that run, in their midst and before they begin, on $name",
  async (cpu) => {
    for (const [turns, sequences] of [0, 1, 4, 20, 40].flatMap((turns) =>
      [8, 3].map((most) => [turns, most] as const),
    )) {
      const llm = await load({ cpu, sequences });
      const ends = Promise.allSettled(prompts.map((prompt) => stepForever(llm, prompt)));
      for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
      await llm.dispose();
      for (const end of await ends) {
        expect(end.status).toBe("rejected");
        expect((end as PromiseRejectedResult).reason).toBeInstanceOf(UnsupportedError);
        expect((end as PromiseRejectedResult).reason.message).toMatch(/^(.*: )?the program was disposed of$/);
      }
      expect(() => llm.createDecoder()).toThrow("the program was disposed of");
    }
  },
  60_000,
);

describe("a prefix in a file", () => {
  const path = join(folder, "prefix.lbsq");
  const prompt = prompts.at(-1)!;

  it("is gone on from by another process's model", async () => {
    const first = await load({ cpu: scalarCpu });
    const expected = await logitsOf(first, prompt);
    expect(await savePrefix(first, prompt, path)).toBe(128);
    const second = await load({ cpu: scalarCpu });
    expect(await restorePrefix(second, path)).toBe(128);
    expectSame(await logitsOf(second, prompt), expected);
    expect(second.program.sequenceStatistics!.reusedTokens).toBeGreaterThanOrEqual(128);
  });

  it("of a prompt so long that its rope is another one is gone on from, too", async () => {
    const long = await temporaryFolder();
    const rope = { rope_type: "longrope", short_factor: [1, 1, 1, 1], long_factor: [1, 2, 3, 4] };
    const config = {
      max_position_embeddings: CONTEXT,
      rope_scaling: { ...rope, original_max_position_embeddings: 60 },
    };
    await writeTinyCheckpoint(long, { config });
    const model = await loadCheckpoint(long);
    const [first, second] = [
      await loadCompiled(model, { cpu: scalarCpu }),
      await loadCompiled(model, { cpu: scalarCpu }),
    ];
    await model.close();
    const expected = await logitsOf(first, prompt);
    expect(await savePrefix(first, prompt, join(long, "prefix.lbsq"))).toBe(128);
    expect(await restorePrefix(second, join(long, "prefix.lbsq"))).toBe(128);
    expectSame(await logitsOf(second, prompt), expected);
    expect(second.program.sequenceStatistics!.reusedTokens).toBe(128);
    for (const opened of [first, second]) await opened.dispose();
  });

  it("of nothing that was computed, of another cache type, or damaged is refused", async () => {
    const llm = await load({ cpu: scalarCpu });
    await expect(savePrefix(llm, [1, 2, 3], join(folder, "none"))).rejects.toThrow(InvalidArgumentError);
    const other = await load({ cpu: scalarCpu, kvCache: "int8" });
    await expect(restorePrefix(other, path)).rejects.toThrow(`${path}: type: expected "int8" but found "f32"`);
    const bytes = await readFile(path);
    const damaged = join(folder, "damaged.lbsq");
    for (const at of [0, 5, 40, bytes.length >> 1, bytes.length - 1]) {
      const copy = Buffer.from(bytes);
      copy[at]! ^= 4;
      await writeFile(damaged, copy);
      await expect(restorePrefix(llm, damaged), String(at)).rejects.toThrow(InvalidFileError);
    }
    await writeFile(damaged, bytes.subarray(0, bytes.length - 7));
    await expect(restorePrefix(llm, damaged)).rejects.toThrow(InvalidFileError);
  });

  it("of another program is refused, with both named", async () => {
    const model = await loadCheckpoint(folder);
    quantize(model, [int8DynamicActivationIntxWeight({ bits: 8 })]);
    const llm = await loadCompiled(model, { cpu: scalarCpu });
    await model.close();
    await expect(restorePrefix(llm, path)).rejects.toThrow(
      /prefix.lbsq: program: expected "(.+)" but found "(?!\1)(.+)"/,
    );
    expect(llm.program.sequenceStatistics).toMatchObject({ sequences: 0, pages: 0, idlePages: 0, usedBytes: 0 });
  });

  it("of a program with states of its own cannot be", async () => {
    const model = await loadCheckpoint(folder);
    const llm = await loadCompiled(model, { target: "executorch" });
    await model.close();
    await expect(savePrefix(llm, [1], path)).rejects.toThrow(UnsupportedError);
  });
});

it.each([
  [{ contextLength: CONTEXT + 1 }, "contextLength: expected a whole number from 1 to 256 but found 257"],
  [{ cacheBytes: 1000 }, /cacheBytes: expected at least \d+, for a token of one sequence in f32, but found 1000/],
  [{ contextLength: 200, cacheBytes: 4e4 }, "cacheBytes: expected at least"],
  [{ sequences: 0 }, "sequences: expected a whole number from 1"],
  [{ prefillTokens: 0 }, "prefillTokens: expected a whole number from 1"],
  [{ kvCache: "bf16" }, 'kvCache: expected f32 or f16 or int8 or int4 but found "bf16"'],
])("refuses %j", async (options, message) => {
  await expect(load({ cpu: scalarCpu, ...options } as Options)).rejects.toThrow(message);
});
