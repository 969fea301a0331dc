/** Texts with drafts are those without, token by token, whatever is drawn and wherever they end. */
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import type { Decoder } from "./decoder.ts";
import { DraftLength } from "./draft-length.ts";
import type { Draft } from "./draft-source.ts";
import { type GenerateOptions, type GenerationResult, generate } from "./generate.ts";
import { StepCosts } from "./step-costs.ts";
import { Tokenizer } from "./tokenizer.ts";

const json = JSON.parse(readFileSync(new URL("byte-level-tokenizer.json.golden", import.meta.url), "utf8"));
const tokenizer = new Tokenizer(json, { eos_token: "<|end|>" });

/** Calls of all decoders by what they cost, which the clock goes by. */
let calls = 0;

/** Logits that depend on the last two ids, so that texts repeat themselves, with a turn now and then. */
class RepeatingDecoder implements Decoder {
  readonly contextLength: number;
  readonly ids: number[] = [];
  /** Rows of each call. */
  readonly calls: number[] = [];
  failsAt = Number.POSITIVE_INFINITY;
  /** Tokens that the next call computes again; none unless where the last call began can be gone back to only. */
  recomputed = 0;
  #start = 0;
  readonly #rows: number;
  readonly #isRecurrent: boolean;
  readonly #oddEvery: number;
  readonly #cost: number;
  readonly draft: Decoder["draft"];

  /**
   * `isRecurrent`: only where its last call began can be gone back to. `oddEvery`: how often it turns to another token. `cost`:
   * of a call. `headOddEvery`: how often its head for drafts does, which it has none of without, and which costs a tenth.
   */
  constructor(
    draftRows: number,
    {
      contextLength = 200,
      isRecurrent = false,
      oddEvery = 23,
      cost = 1,
      headOddEvery,
    }: {
      contextLength?: number;
      isRecurrent?: boolean;
      oddEvery?: number;
      cost?: number;
      headOddEvery?: number | undefined;
    } = {},
  ) {
    if (headOddEvery !== undefined)
      this.draft = async (ids) => {
        calls += cost / 10;
        return logitsBehind([...this.ids, ...ids], headOddEvery);
      };
    this.#rows = draftRows;
    this.contextLength = contextLength;
    this.#isRecurrent = isRecurrent;
    this.#oddEvery = oddEvery;
    this.#cost = cost;
  }

  get draftRows(): number {
    return this.#rows - this.recomputed;
  }

  get position(): number {
    return this.ids.length;
  }

  async prefill(ids: readonly number[]): Promise<Float32Array> {
    return (await this.allLogits(ids)).subarray(-tokenizer.vocabSize);
  }

  step(id: number): Promise<Float32Array> {
    return this.prefill([id]);
  }

  async allLogits(ids: readonly number[]): Promise<Float32Array> {
    if (this.position + ids.length > this.contextLength) throw new RangeError("the context is overrun");
    this.calls.push(ids.length + this.recomputed);
    calls += this.#cost;
    this.#start = this.position - this.recomputed;
    this.recomputed = 0;
    if (this.calls.length > this.failsAt) {
      // As a decoder that is aborted behind a part of what it was given.
      this.ids.push(ids[0]!);
      throw new Error("aborted");
    }
    const rows = ids.map((id) => {
      this.ids.push(id);
      return logitsBehind(this.ids, this.#oddEvery);
    });
    return Float32Array.from(rows.flatMap((row) => [...row]));
  }

  rewind(position: number): void {
    if (position > this.position) throw new RangeError("rewound to what is not there");
    if (this.#isRecurrent && position < this.position) this.recomputed = position - this.#start;
    this.ids.length = position;
  }
}

function logitsBehind(ids: readonly number[], oddEvery: number): Float32Array {
  const [a = 0, b = 0] = ids.slice(-2);
  const logits = Float32Array.from({ length: tokenizer.vocabSize }, (_, i) => Math.sin(i * 12.9898 + a + 7 * b));
  logits[(a * 31 + b * 17 + (ids.length % oddEvery === 0 ? 5 : 0)) % 7] = 9;
  return logits;
}

/** A model that writes as a `RepeatingDecoder` does, and how many of its decoders were not disposed of. */
function draftModel(options: ConstructorParameters<typeof RepeatingDecoder>[1] = {}) {
  const open = new Set<Decoder>();
  const createDecoder = () => {
    const decoder = Object.assign(new RepeatingDecoder(1, { cost: 0.05, ...options }), {
      dispose: async () => void open.delete(decoder),
    });
    open.add(decoder);
    return decoder;
  };
  return { name: "draft.pte", tokenizer, createDecoder, open };
}

async function run(decoder: Decoder, prompt: readonly number[], options: GenerateOptions) {
  const ids: number[] = [];
  let text = "";
  const stream = generate(decoder, tokenizer, prompt, options);
  for (;;) {
    const { done, value } = await stream.next();
    if (done) {
      const { prefillSeconds, firstTokenSeconds, decodeSeconds, draftedTokens, acceptedTokens, ...result } =
        value as GenerationResult;
      return { told: { ids, text, result }, draftedTokens, acceptedTokens };
    }
    ids.push((value as { id: number }).id);
    text += (value as { text: string }).text;
  }
}

const optionsOf: fc.Arbitrary<GenerateOptions> = fc.record(
  {
    temperature: fc.constantFrom(0, 0.3, 1, 2),
    topK: fc.constantFrom(1, 5, 40),
    topP: fc.constantFrom(0.5, 0.9, 1),
    minP: fc.constantFrom(0, 0.1),
    repetitionPenalty: fc.constantFrom(1, 1.3),
    presencePenalty: fc.constantFrom(0, 0.7),
    frequencyPenalty: fc.constantFrom(0, 0.7),
    penaltyWindow: fc.constantFrom(4, 64),
    logitBias: fc.constantFrom({}, { 3: 5 }, { 2: Number.NEGATIVE_INFINITY }),
    suppressTokens: fc.constantFrom([], [1, 2]),
    seed: fc.nat(1000),
    maxTokens: fc.constantFrom(0, 1, 17, 60),
    stop: fc.constantFrom([], ["ab"], ["!"]),
    stopTokens: fc.constantFrom([], [4]),
    ignoreEos: fc.boolean(),
    logprobs: fc.constantFrom(0, 3),
  },
  { requiredKeys: ["seed"] },
);

describe("a text with drafts", () => {
  // Each call takes ten milliseconds, whatever its rows.
  beforeEach(() => void vi.spyOn(performance, "now").mockImplementation(() => 10 * calls));
  afterEach(() => void vi.restoreAllMocks());

  it("is the one without, and leaves the same context", async () => {
    let accepted = 0;
    const prompts = fc.array(fc.integer({ min: 0, max: 6 }), { minLength: 1, maxLength: 60 });
    const property = fc.asyncProperty(
      prompts,
      optionsOf,
      fc.integer({ min: 2, max: 9 }),
      fc.record({
        contextLength: fc.constantFrom(61, 80, 200),
        isRecurrent: fc.boolean(),
        headOddEvery: fc.constantFrom(23, 3),
      }),
      fc.constantFrom("lookup", "mtp", draftModel(), draftModel({ oddEvery: 3 }), draftModel({ contextLength: 70 })),
      async (prompt, options, rows, kind, draft) => {
        const [alone, ahead] = [new RepeatingDecoder(rows, kind), new RepeatingDecoder(rows, kind)];
        const expected = await run(alone, prompt, { ...options, draft: "off" });
        const found = await run(ahead, prompt, { ...options, draft: draft as Draft });
        if (typeof draft === "object") expect(draft.open.size).toBe(0);
        expect(found.told).toEqual(expected.told);
        expect(ahead.ids).toEqual(alone.ids);
        expect([expected.draftedTokens, expected.acceptedTokens]).toEqual([0, 0]);
        expect(found.acceptedTokens).toBeLessThanOrEqual(found.draftedTokens);
        expect(Math.max(1, ...ahead.calls.slice(1))).toBeLessThanOrEqual(rows);
        accepted += found.acceptedTokens;
      },
    );
    await fc.assert(property, { numRuns: 300 });
    expect(accepted).toBeGreaterThan(300);
  });

  it("takes fewer steps where it was predicted", async () => {
    const options: GenerateOptions = { temperature: 0, maxTokens: 20 };
    const { told } = await run(new RepeatingDecoder(8), [1, 2, 3, 4], { ...options, draft: "off" });
    const decoder = new RepeatingDecoder(8);
    // What follows a prediction is no part of it.
    const predicted = await run(decoder, [1, 2, 3, 4], {
      ...options,
      prediction: tokenizer.decode(told.ids.slice(0, 12)),
    });
    const alone = await run(new RepeatingDecoder(8), [1, 2, 3, 4], options);
    expect(predicted.told).toEqual(told);
    expect(predicted.acceptedTokens).toBeGreaterThan(alone.acceptedTokens);
  });

  it("takes fewer steps where it repeats itself", async () => {
    const decoder = new RepeatingDecoder(8);
    const { draftedTokens, acceptedTokens } = await run(decoder, [1, 2, 3], { temperature: 0, maxTokens: 100 });
    expect(acceptedTokens).toBeGreaterThan(30);
    expect(acceptedTokens).toBeLessThanOrEqual(draftedTokens);
    expect(decoder.calls.length).toBe(100 - acceptedTokens);
  });

  it("takes fewer steps where a model that writes the same drafts for it, and few of one that costs more", async () => {
    const options: GenerateOptions = { temperature: 0, maxTokens: 100 };
    const prompt = [1, 2, 3];
    const accepted = async (draft: Draft) => {
      const { told, acceptedTokens } = await run(new RepeatingDecoder(8, { oddEvery: 5 }), prompt, {
        ...options,
        draft,
      });
      expect(told).toEqual(
        (await run(new RepeatingDecoder(8, { oddEvery: 5 }), prompt, { ...options, draft: "off" })).told,
      );
      return acceptedTokens;
    };
    const lookup = await accepted("lookup");
    const model = await accepted(draftModel({ oddEvery: 5 }));
    expect(model).toBeGreaterThan(lookup + 30);
    expect(await accepted(draftModel({ oddEvery: 5, cost: 3 }))).toBeLessThan(model - 30);
    expect(await accepted(draftModel({ oddEvery: 2 }))).toBeGreaterThan(lookup / 2);
  });

  it("takes fewer steps where the model's own head guesses right, and few of one that does not", async () => {
    const options: GenerateOptions = { temperature: 0, maxTokens: 100 };
    const written = async (draft: Draft, headOddEvery?: number) => {
      const decoder = new RepeatingDecoder(8, { oddEvery: 5, headOddEvery });
      return { ...(await run(decoder, [1, 2, 3], { ...options, draft })), calls: decoder.calls.length };
    };
    const [off, lookup, right, wrong] = [
      ...[await written("off"), await written("lookup")],
      ...[await written("mtp", 5), await written("mtp", 1)],
    ];
    for (const { told } of [lookup, right, wrong]) expect(told).toEqual(off.told);
    expect(right.acceptedTokens).toBeGreaterThan(lookup.acceptedTokens + 30);
    expect(right.calls).toBeLessThan(40);
    const vain = ({ draftedTokens, acceptedTokens }: typeof wrong) => draftedTokens - acceptedTokens;
    expect(vain(wrong)).toBeLessThan(vain(lookup) + 20);
  });

  it("is refused of a model without a head of its own", async () => {
    await expect(run(new RepeatingDecoder(8), [1], { draft: "mtp" })).rejects.toThrow(
      new InvalidArgumentError(
        "draft: expected a program with a layer of multi-token prediction for mtp, made from a checkpoint with tensors mtp.* or nextn, but the model has none",
      ),
    );
  });

  it("is refused from a model with other tokens, both named", async () => {
    const other = structuredClone(json);
    other.added_tokens.push({ ...other.added_tokens[0], id: tokenizer.vocabSize, content: "<|other|>" });
    const draft = { ...draftModel(), tokenizer: new Tokenizer(other) };
    await expect(run(new RepeatingDecoder(8), [1], { draft })).rejects.toThrow(
      new InvalidArgumentError(
        `draft: expected a model with the tokens of the model but draft.pte has ${tokenizer.vocabSize + 1} tokens, not ${tokenizer.vocabSize}`,
      ),
    );
    const renamed = structuredClone(json);
    const last = renamed.added_tokens.at(-1);
    const before = last.content;
    last.content = "<|other|>";
    const sameSize = { ...draftModel(), tokenizer: new Tokenizer(renamed) };
    await expect(run(new RepeatingDecoder(8), [1], { draft: sameSize })).rejects.toThrow(
      new InvalidArgumentError(
        `draft: expected a model with the tokens of the model but draft.pte has "<|other|>" as token ${last.id}, not "${before}"`,
      ),
    );
  });

  it("leaves what was drawn in the context where its reader goes away, or a call fails", async () => {
    for (const failsAt of [Number.POSITIVE_INFINITY, 5, 6, 7, 8, 9, 10]) {
      const decoder = new RepeatingDecoder(8);
      decoder.failsAt = failsAt;
      const prompt = [1, 2, 3, 1, 2, 3];
      const drawn: number[] = [];
      try {
        for await (const { id } of generate(decoder, tokenizer, prompt, { temperature: 0 }))
          if (drawn.push(id) === 20) break;
      } catch (error) {
        expect((error as Error).message).toBe("aborted");
      }
      expect([...prompt, ...drawn].slice(0, decoder.ids.length)).toEqual(decoder.ids);
      expect(prompt.length + drawn.length - decoder.ids.length).toBeLessThanOrEqual(1);
    }
  });

  it("is refused where it comes from nothing known", async () => {
    const generating = run(new RepeatingDecoder(8), [1], { draft: "odd" as Draft });
    await expect(generating).rejects.toThrow(
      new InvalidArgumentError('draft: expected one of lookup, mtp, off, or a loaded model, but found "odd"'),
    );
  });
});

describe("the length of drafts", () => {
  const match = { length: 10, isResumed: false };
  const tokensOf = (costs: readonly number[], share: number) => {
    const stepCosts = new StepCosts();
    const length = new DraftLength(stepCosts);
    let drafted = 0;
    for (let step = 0; step < 2000; step++) {
      const count = length.next(match, 7);
      stepCosts.took(1 + count, costs[count]!);
      if (count > 0) length.noteAccepted(match, { drafted: count, accepted: Math.round(count * share) });
      if (step >= 1000) drafted += count;
    }
    return drafted / 1000;
  };

  it("is long where all come true and rows cost little, and short where they cost much", () => {
    const cheap = [10, 10.5, 11, 11.5, 12, 12.5, 13, 13.5];
    expect(tokensOf(cheap, 1)).toBeGreaterThan(6.9);
    expect(tokensOf([10, 20, 30, 40, 50, 60, 70, 80], 1)).toBeLessThan(0.1);
    expect(tokensOf([10, 10.5, 30, 40, 50, 60, 70, 80], 1)).toBeCloseTo(1, 1);
  });

  it("is shorter where tokens that came true are computed again when others did not", () => {
    const drafted = (recomputed: number) => {
      const costs = new StepCosts();
      const length = new DraftLength(costs);
      for (let rows = 1; rows <= 8; rows++) costs.took(rows, 10 + 2 * rows);
      for (let step = 0; step < 60; step++)
        length.noteAccepted(
          match,
          step % 5 < 4 ? { drafted: 1, accepted: 1 } : { drafted: 1, accepted: 0, recomputed },
        );
      return length.next(match, 7);
    };
    expect(drafted(1)).toBeLessThan(drafted(0));
    expect(drafted(1)).toBeGreaterThan(0);
  });

  it("is nothing but a try now and then where none come true", () => {
    expect(tokensOf([10, 10.5, 11, 11.5, 12, 12.5, 13, 13.5], 0)).toBeLessThan(0.01);
  });

  it("is more than nothing where no step of one token was measured yet", () => {
    const costs = new StepCosts();
    costs.took(3, 30);
    expect(costs.of(1)).toBeCloseTo(30 / 1.3, 5);
    expect(new DraftLength(costs).next(match, 7)).toBeGreaterThan(0);
  });

  it("is nothing behind texts that did not occur before", () => {
    expect(new DraftLength(new StepCosts()).next({ length: 0, isResumed: false }, 7)).toBe(0);
  });

  it("pauses drafts of one kind only", () => {
    const costs = new StepCosts();
    const length = new DraftLength(costs);
    for (let rows = 1; rows <= 8; rows++) costs.took(rows, 10 + rows);
    const single = { length: 1, isResumed: false };
    for (let step = 0; step < 40; step++) length.noteAccepted(single, { drafted: 1, accepted: 0 });
    const drafted = Array.from({ length: 10 }, () => length.next(single, 7));
    expect(drafted).toEqual([1, ...Array(9).fill(0)]);
    expect(length.next(match, 7)).toBeGreaterThan(4);
  });
});
