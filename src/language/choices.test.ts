/** Several texts after one prompt are those of as many generations, and share what was computed of it. */
import { beforeAll, describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { compileModel } from "../api/compile-model.ts";
import { loadProgramObject } from "../api/load-program-object.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";
import type { GenerationResult } from "../text/generate.ts";
import type { ChoicePart } from "./choices.ts";
import type { LanguageModel } from "./language-model.ts";
import type { ResultStream } from "./result-stream.ts";

// Bit-identical results in any step are a promise of the reference kernels.
vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "reference";
});

const folder = await temporaryFolder();
/** With sequences in a store, and with one in states of the program. */
const models: LanguageModel[] = [];
beforeAll(async () => {
  await writeTinyCheckpoint(folder, { config: { max_position_embeddings: 256 } });
  const model = await loadCheckpoint(folder);
  for (const target of ["lowbit", "executorch"] as const)
    models.push(await loadProgramObject(compileModel(model, { target, maxSeqLen: 64 }), folder));
  await model.close();
});

const prompt = "The quick brown fox jumps over the lazy dog, and over the lazy dog again";
const options = { temperature: 1, seed: 5, maxTokens: 12, ignoreEos: true } as const;

async function textsOf(choices: ResultStream<ChoicePart, readonly GenerationResult[]>, n: number): Promise<string[]> {
  const texts = new Array<string>(n).fill("");
  for await (const { choice, text } of choices) texts[choice] += text;
  return texts;
}

async function textOf(llm: LanguageModel, seed: number): Promise<string> {
  let text = "";
  for await (const piece of llm.generate(prompt, { ...options, seed })) text += piece;
  return text;
}

describe.each([
  ["a store", 0],
  ["states", 1],
])("of a program with %s", (_, index) => {
  it.each([1, 2, 5])("%i texts are those of generations with seeds that follow each other", async (n) => {
    const llm = models[index]!;
    const choices = llm.generateChoices(prompt, { ...options, n });
    const texts = await textsOf(choices, n);
    const expected: string[] = [];
    for (let i = 0; i < n; i++) expected.push(await textOf(llm, options.seed + i));
    expect(texts).toEqual(expected);
    expect(new Set(texts).size).toBe(n);
    expect((await choices.result).map(({ generatedTokens }) => generatedTokens)).toEqual(new Array(n).fill(12));
    await expect(textsOf(choices, n)).rejects.toThrow(InvalidArgumentError);
  });

  it("a fork goes on by itself", async () => {
    const decoder = models[index]!.createDecoder();
    const ids = Array.from({ length: 70 }, (_, i) => (7 * i) % 250);
    await decoder.prefill(ids);
    const forks = [decoder, decoder.fork(), decoder.fork()];
    for (const [i, fork] of forks.entries()) await fork.prefill([i, 100 + i]);
    for (const [i, fork] of forks.entries()) {
      const alone = models[index]!.createDecoder();
      expect((await fork.step(9)).slice()).toEqual(await alone.prefill([...ids, i, 100 + i, 9]));
      await alone.dispose();
    }
    const busy = decoder.step(1);
    expect(() => decoder.fork()).toThrow("expected one call at a time");
    await busy;
    for (const fork of forks) await fork.dispose();
    expect(() => decoder.fork()).toThrow("was disposed of");
  });
});

it("computes the prompt once, and gives everything back", async () => {
  const [llm] = models;
  const { program } = llm!;
  const ids = Array.from({ length: 90 }, (_, i) => (11 * i) % 250);
  const before = program.sequenceStatistics!;
  const decoders = new Set<number>();
  for await (const { choice } of llm!.generateChoices(ids, { ...options, n: 4 })) {
    decoders.add(choice);
    const { sequences, sharedPages } = program.sequenceStatistics!;
    expect(sequences - before.sequences).toBe(4);
    if (decoders.size === 1) expect(sharedPages).toBeGreaterThanOrEqual(2);
  }
  expect(decoders.size).toBe(4);
  expect(program.sequenceStatistics).toMatchObject({ sequences: before.sequences, pages: before.pages });
});

it("ends all texts when it is left, aborted, or fails, and while nobody reads", async () => {
  const [llm] = models;
  const { program } = llm!;
  const before = program.sequenceStatistics!.sequences;
  for await (const { text } of llm!.generateChoices(prompt, { ...options, n: 3 })) if (text !== "") break;
  expect(program.sequenceStatistics!.sequences).toBe(before);
  const stop = new AbortController();
  const aborted = (async () => {
    for await (const _ of llm!.generateChoices(prompt, { ...options, maxTokens: 100, n: 3, signal: stop.signal })) {
      stop.abort(new Error("enough"));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  await expect(aborted).rejects.toThrow("enough");
  expect(program.sequenceStatistics!.sequences).toBe(before);
  const long = new Array(300).fill(1);
  await expect(textsOf(llm!.generateChoices(long, { n: 2 }), 2)).rejects.toThrow(ContextLengthError);
  expect(program.sequenceStatistics!.sequences).toBe(before);
  for (const n of [0, 1.5, Number.NaN, 1025]) expect(() => llm!.generateChoices(prompt, { n })).toThrow("n: expected");
});
