/** A model run in many ways: prompts in pieces, sessions side by side, aborts, many tokens without new buffers. */
import { beforeAll, describe, expect, it, vi } from "vitest";
import {
  ContextLengthError,
  InvalidArgumentError,
  int8DynamicActivationIntxWeight,
  type LanguageModel,
  loadCheckpoint,
  quantize,
  sharedEmbedding,
} from "../src/index.ts";
import { compileModel, loadProgramObject } from "../src/tools/index.ts";
import { temporaryFolder } from "./support/folders.ts";
import { Random } from "./support/random.ts";
import { expectSame } from "./support/same.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

// Bit-identical results for any chunks are a promise of the reference kernels alone.
vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "reference";
});

const folder = await temporaryFolder();
const CONTEXT = 256;
const random = new Random(1);
const prompt = Array.from({ length: 60 }, () => random.integer(0, 281));

/** The model with all kinds of quantized weights, and calls of at most `maxSeqLen` tokens. */
async function open(maxSeqLen: number): Promise<LanguageModel> {
  const model = await loadCheckpoint(folder);
  quantize(model, [int8DynamicActivationIntxWeight({ bits: 4 }), sharedEmbedding({ bits: 4 })]);
  const llm = await loadProgramObject(compileModel(model, { maxSeqLen }), folder);
  await model.close();
  return llm;
}

let llm: LanguageModel;
beforeAll(async () => {
  await writeTinyCheckpoint(folder, { config: { max_position_embeddings: CONTEXT } });
  llm = await open(64);
});

it("has the one thread of the reference kernels, whatever is asked for", async () => {
  const model = await loadCheckpoint(folder);
  const { program } = await loadProgramObject(compileModel(model), folder, { threads: 3 });
  expect(program.threads).toBe(1);
  await model.close();
});

describe("a prompt", () => {
  it("gives bit-identical logits at once, in chunks of any size and token by token", async () => {
    const expected = (await llm.createDecoder().prefill(prompt)).slice();
    for (const size of [1, 7, 32, 59]) {
      const decoder = (await open(size)).createDecoder();
      expectSame(await decoder.prefill(prompt), expected, `chunks of ${size}`);
    }
    const decoder = llm.createDecoder();
    await decoder.prefill(prompt.slice(0, 11));
    for (const id of prompt.slice(11, -1)) await decoder.step(id);
    expectSame(await decoder.step(prompt.at(-1)!), expected, "steps");
  });

  it("generates from a program that gives the logits of all tokens", async () => {
    const model = await loadCheckpoint(folder);
    const all = await loadProgramObject(compileModel(model, { target: "executorch", logits: "all" }), folder);
    const last = await loadProgramObject(compileModel(model, { target: "executorch" }), folder);
    await model.close();
    const [a, b] = [all.createDecoder(), last.createDecoder()];
    expectSame((await a.prefill(prompt)).slice(), (await b.prefill(prompt)).slice());
    expectSame((await a.step(7)).slice(), (await b.step(7)).slice());
    expect((await all.createDecoder().allLogits(prompt)).length).toBe(prompt.length * 282);
  });

  it("can be rewound and continued differently", async () => {
    const decoder = llm.createDecoder();
    await decoder.prefill(prompt);
    decoder.rewind(20);
    expect(decoder.position).toBe(20);
    const found = (await decoder.prefill(prompt.slice(30, 40))).slice();
    expectSame(await llm.createDecoder().prefill([...prompt.slice(0, 20), ...prompt.slice(30, 40)]), found);
    expect(() => decoder.rewind(31)).toThrow(InvalidArgumentError);
    for (const position of [-1, 1.5, Number.NaN]) expect(() => decoder.rewind(position)).toThrow(InvalidArgumentError);
  });

  it("is refused while another is computed, and the decoder goes on", async () => {
    const decoder = llm.createDecoder();
    const first = decoder.prefill(prompt.slice(0, 3));
    await expect(decoder.prefill(prompt.slice(3, 5))).rejects.toThrow(/expected one call at a time/);
    await expect(decoder.step(prompt[3]!)).rejects.toThrow(InvalidArgumentError);
    await first;
    const found = (await decoder.prefill(prompt.slice(3, 5))).slice();
    expectSame(await llm.createDecoder().prefill(prompt.slice(0, 5)), found);
  });

  it("cannot be rewound while it is computed, which would append it after all", async () => {
    const decoder = llm.createDecoder();
    await decoder.prefill(prompt.slice(0, 5));
    const running = decoder.prefill(prompt.slice(5, 8));
    expect(() => decoder.rewind(2)).toThrow(/expected one call at a time/);
    await running;
    expect(decoder.position).toBe(8);
    decoder.rewind(2);
    const found = (await decoder.prefill(prompt.slice(2, 6))).slice();
    const fresh = llm.createDecoder();
    await fresh.prefill(prompt.slice(0, 5));
    fresh.rewind(2);
    expectSame(await fresh.prefill(prompt.slice(2, 6)), found);
  });

  it("of several chunks that is refused appends none of them", async () => {
    const decoder = (await open(7)).createDecoder();
    await decoder.prefill(prompt);
    await expect(decoder.prefill([...prompt, 282])).rejects.toThrow(/found 282/);
    await expect(decoder.prefill(new Array(CONTEXT - 59).fill(1))).rejects.toThrow(ContextLengthError);
    expect(decoder.position).toBe(prompt.length);
    await decoder.prefill(new Array(CONTEXT - 60).fill(1));
  });

  it("beyond the context is a ContextLengthError, and the decoder goes on", async () => {
    const decoder = llm.createDecoder();
    const long = Array.from({ length: CONTEXT }, (_, i) => prompt[i % prompt.length]!);
    await decoder.prefill(long.slice(0, CONTEXT - 1));
    await expect(decoder.prefill([1, 2])).rejects.toThrow(ContextLengthError);
    await decoder.step(1);
    await expect(decoder.step(1)).rejects.toThrow(
      /expected at most 256 tokens but found 257; load the program with a longer/,
    );
  });

  it.each([
    [[], /at least one token/],
    [[282], /token id: expected 0..281 but found 282/],
    [[-1], /found -1/],
    [[1.5], /found 1.5/],
    [[Number.NaN], /found NaN/],
  ])("of ids %j is an InvalidArgumentError", async (ids, message) => {
    await expect(llm.createDecoder().prefill(ids)).rejects.toThrow(message);
    await expect(llm.createDecoder().prefill(ids)).rejects.toThrow(InvalidArgumentError);
  });
});

describe("sessions side by side", () => {
  it("do not disturb each other", async () => {
    const prompts = [0, 1, 2].map((i) => prompt.slice(i, i + 20));
    const alone = await Promise.all(
      prompts.map(async (ids) => {
        const decoder = (await open(64)).createDecoder();
        const logits = [(await decoder.prefill(ids)).slice()];
        for (let i = 0; i < 5; i++) logits.push((await decoder.step(i)).slice());
        return logits;
      }),
    );
    const decoders = prompts.map(() => llm.createDecoder());
    const found = await Promise.all(prompts.map(async (ids, i) => [(await decoders[i]!.prefill(ids)).slice()]));
    for (let step = 0; step < 5; step++)
      await Promise.all(decoders.map(async (decoder, i) => found[i]!.push((await decoder.step(step)).slice())));
    for (const [i, logits] of alone.entries())
      for (const [step, expected] of logits.entries()) expectSame(found[i]![step]!, expected, `session ${i}, ${step}`);
  });
});

describe("memory", () => {
  it("does not grow with tokens", async () => {
    const decoder = llm.createDecoder();
    await decoder.prefill(prompt.slice(0, 5));
    for (let i = 0; i < 3; i++) await decoder.step(i);
    const before = process.memoryUsage().arrayBuffers;
    for (let i = 0; i < 200; i++) await decoder.step(i);
    const grown = process.memoryUsage().arrayBuffers - before;
    // The logits alone would be 225 KB if each step had new ones.
    expect(grown).toBeLessThan(20_000);
  });
});

describe("an abort", () => {
  it("ends a prefill of many chunks soon, with the signal's reason; the session can go on", async () => {
    const chunks = await open(1);
    const decoder = chunks.createDecoder();
    const long = Array.from({ length: CONTEXT }, (_, i) => prompt[i % prompt.length]!);
    const controller = new AbortController();
    const reason = new Error("enough");
    const running = decoder.prefill(long, { signal: controller.signal });
    setTimeout(() => controller.abort(reason), 0);
    await expect(running).rejects.toBe(reason);
    const done = decoder.position;
    expect(done).toBeLessThan(CONTEXT);
    const rest = (await decoder.prefill(long.slice(done))).slice();
    expectSame(await chunks.createDecoder().prefill(long), rest);
  });

  it("within one long call ends that call", async () => {
    const decoder = llm.createDecoder();
    const controller = new AbortController();
    controller.abort(new Error("before"));
    await expect(decoder.prefill(prompt, { signal: controller.signal })).rejects.toThrow("before");
    expect(decoder.position).toBe(0);
    expectSame(await decoder.prefill(prompt), (await llm.createDecoder().prefill(prompt)).slice());
  });

  it("while a longer sequence is computed again with other angles keeps the position, and the next call goes on", async () => {
    const long = await temporaryFolder();
    const factors = { short_factor: [1, 1, 1, 1], long_factor: [1, 2, 3, 4] };
    const rope = { rope_type: "longrope", original_max_position_embeddings: 20, ...factors };
    await writeTinyCheckpoint(long, { config: { max_position_embeddings: CONTEXT, rope_scaling: rope } });
    const model = await loadCheckpoint(long);
    const stretched = await loadProgramObject(compileModel(model, { maxSeqLen: 8 }), long);
    await model.close();
    const expected = (await stretched.createDecoder().prefill(prompt.slice(0, 21))).slice();
    const decoder = stretched.createDecoder();
    await decoder.prefill(prompt.slice(0, 20));
    await expect(decoder.step(prompt[20]!, { signal: AbortSignal.abort(new Error("now")) })).rejects.toThrow("now");
    expect(decoder.position).toBe(20);
    expectSame(await decoder.step(prompt[20]!), expected);
    decoder.rewind(5);
    const short = (await decoder.prefill(prompt.slice(5, 9))).slice();
    expectSame(await stretched.createDecoder().prefill(prompt.slice(0, 9)), short);
  });

  it("ends a generation within a token", async () => {
    const controller = new AbortController();
    const pieces: string[] = [];
    const generation = async () => {
      for await (const piece of llm.generate(prompt, { temperature: 0, ignoreEos: true, signal: controller.signal })) {
        pieces.push(piece);
        if (pieces.length === 3) controller.abort(new Error("three"));
      }
    };
    await expect(generation()).rejects.toThrow("three");
    expect(pieces).toHaveLength(3);
  });
});
