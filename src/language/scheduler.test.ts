/**
 * Random calls of decoders at the same time, over a store that is too small for all: whatever shares steps, waits, is aborted,
 * forked, cut back, saved or restored, each call gives what was computed for exactly its ids.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CellStore, chainNumbers } from "../../test/support/sequence-cells.ts";
import { memorySource } from "../byte-source.ts";
import { ContextLengthError, UnsupportedError } from "../errors.ts";
import { nextMacrotask } from "../event-loop.ts";
import type { SequenceUse } from "../kernels/sequence-table.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import { bytesForSequence, sequenceLayout } from "../sequences/layout.ts";
import type { Sequence } from "../sequences/sequence.ts";
import type { Tensor } from "../tensor.ts";
import { Scheduler } from "./scheduler.ts";
import { SequenceDecoder } from "./sequence-decoder.ts";

const CONTEXT = 40;
const POSITIONS = 4;
const SLOTS = 3;
const ROWS = 10;
const LOGIT_ROWS = 4;
const PREFILL_TOKENS = 5;
const VOCABULARY = 3;
/** Sequences of more tokens are computed by the other method. */
const LONG_FROM = 30;

const cache = (layer: number, window = 0): SequenceUse => ({ kind: "cache", layer, kvHeads: 1, headDim: 1, window });
const state = (index: number): SequenceUse => ({ kind: "state", index, byteLength: 4 });

const models: Record<string, readonly SequenceUse[]> = {
  full: [cache(0), cache(1)],
  windows: [cache(0), cache(1, 6)],
  "windows alone": [cache(0, 3), cache(1, 9)],
  recurrent: [cache(0), state(0), state(1)],
  all: [cache(0), cache(1, 1), cache(2, 5), state(0)],
  "states alone": [state(0)],
};

interface Metadata {
  readonly [name: string]: number;
}

/** What stands for a program: its logits are the number of the chain of ids, which it knows from pages and states alone. */
class ChainProgram {
  /** Rows of each step. */
  readonly rows: number[] = [];
  readonly #cells: CellStore;
  readonly #metadata: Metadata = {
    get_max_seq_len: ROWS,
    get_max_logit_rows: LOGIT_ROWS,
    get_vocab_size: VOCABULARY,
    get_long_context_from: LONG_FROM,
    get_hidden_size: 1,
  };

  constructor(cells: CellStore) {
    this.#cells = cells;
  }

  get steps(): number {
    return this.rows.length;
  }

  count(name: string, fallback: number): number {
    return this.#metadata[name] ?? fallback;
  }

  has(method: string): boolean {
    return method === "draft";
  }

  checkUsable(): void {}

  createSession() {
    return { use: this.#use.bind(this) };
  }

  async #use(
    method: string,
    [tokens, positions, wanted]: readonly Tensor[],
    read: (outputs: readonly Tensor[]) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const ids = [...tokens!.data].map(Number);
    this.rows.push(ids.length);
    expect(ids.length).toBeLessThanOrEqual(ROWS);
    expect(wanted!.data.length).toBeLessThanOrEqual(LOGIT_ROWS);
    expect(positions!.data.length).toBe(ids.length);
    const given = [...wanted!.data].map(Number);
    const numbers =
      method === "draft" ? this.#cells.draftRows(ids, given) : pickRows(this.#cells.computeRows(method, ids), given);
    await nextMacrotask();
    signal.throwIfAborted();
    const logits = numbers.flatMap((number, i) => [number, i, 0]);
    const floats = (values: readonly number[], size: number): Tensor => ({
      ...{ dtype: "f32", shape: [1, values.length / size, size], data: Float32Array.from(values) },
    });
    // A number tells its chain from others: it stands for a hidden state, too.
    read([floats(logits, VOCABULARY), floats(numbers, 1)]);
  }
}

function pickRows(numbers: readonly number[], rows: readonly number[]): number[] {
  return rows.map((row) => numbers[row]!);
}

const id = fc.constantFrom(0, 0, 0, 0, 0, 1, 2);
const ids = (maxLength: number) => fc.array(id, { minLength: 1, maxLength, size: "max" });
const pick = fc.nat(99);
const call = <K extends string>(kind: K, maxLength: number) =>
  fc.record({ kind: fc.constant(kind), pick, ids: ids(maxLength), abortAfter: fc.option(fc.nat(6), { freq: 4 }) });
const operation = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("open" as const) }) },
  { weight: 8, arbitrary: call("prefill" as const, 34) },
  { weight: 10, arbitrary: call("step" as const, 1) },
  { weight: 2, arbitrary: call("allLogits" as const, 9) },
  { weight: 6, arbitrary: call("draft" as const, 3) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("fork" as const), pick }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("rewind" as const), pick, position: pick }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("dispose" as const), pick }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("save" as const), pick }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("restore" as const), pick }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("clear" as const) }) },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant("wait" as const), turns: fc.nat(8) }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer O> ? O : never;
type Call = Operation & { kind: "prefill" | "step" | "allLogits" | "draft" };

/** A decoder, what it should hold, and the call under way. */
interface Held {
  readonly decoder: SequenceDecoder;
  ids: number[];
  running: Promise<void> | null;
  isDisposed: boolean;
}

const branchOf = (length: number) => (length > LONG_FROM ? "forward_long" : "forward");

class Run {
  readonly cells: CellStore;
  readonly program: ChainProgram;
  readonly held: Held[] = [];
  /** Tokens that were drafted behind. */
  drafted = 0;
  readonly #scheduler: Scheduler;
  readonly #files: Uint8Array[] = [];
  readonly #restored: Promise<void>[] = [];
  /** The first that a call found wrong. */
  #failure: unknown;

  constructor(uses: readonly SequenceUse[], spareBytes: number, prefillTokens = PREFILL_TOKENS) {
    const options = { contextLength: CONTEXT, sequences: SLOTS, pagePositions: POSITIONS, stepTokens: ROWS };
    const layout = sequenceLayout(uses, { ...options, type: "f32" });
    const cacheBytes = bytesForSequence(layout, CONTEXT, ROWS) + spareBytes;
    this.cells = new CellStore(uses, { ...options, cacheBytes });
    this.program = new ChainProgram(this.cells);
    const program = this.program as unknown as LoadedProgram;
    this.#scheduler = new Scheduler(program, this.cells.store, { prefillTokens });
  }

  /** Of all, or of those that nothing runs on. */
  #pick(index: number, isIdle = true): Held | undefined {
    const among = this.held.filter(({ running, isDisposed }) => !isDisposed && !(isIdle && running));
    return among[index % Math.max(1, among.length)];
  }

  #add(decoder: SequenceDecoder, ids: number[]): void {
    this.held.push({ decoder, ids, running: null, isDisposed: false });
  }

  async do(operation: Operation): Promise<void> {
    if (operation.kind === "open") {
      const program = this.program as unknown as LoadedProgram;
      this.#add(new SequenceDecoder(program, this.#scheduler, CONTEXT), []);
    } else if (operation.kind === "wait") for (let i = 0; i < operation.turns; i++) await nextMacrotask();
    else if (operation.kind === "clear") this.cells.store.clear();
    else if (operation.kind === "restore") this.#restore(operation.pick);
    else this.#doWith(operation);
  }

  #doWith(operation: Exclude<Operation, { kind: "open" | "wait" | "clear" | "restore" }>): void {
    const held = this.#pick(operation.pick, operation.kind !== "dispose");
    if (!held) return;
    if (operation.kind === "fork") this.#add(held.decoder.fork(), [...held.ids]);
    else if (operation.kind === "dispose") {
      held.isDisposed = true;
      void held.decoder.dispose();
    } else if (operation.kind === "rewind") {
      held.ids.length = operation.position % (held.ids.length + 1);
      held.decoder.rewind(held.ids.length);
    } else if (operation.kind === "save") this.#save(held.ids);
    else
      held.running = this.#run(held, operation)
        .catch((error) => {
          this.#failure ??= error;
        })
        .finally(() => {
          held.running = null;
        });
  }

  #run(held: Held, operation: Call): Promise<void> {
    return operation.kind === "draft" ? this.#draft(held, operation) : this.#call(held, operation);
  }

  /** Guesses behind its tokens, which stay what they are. */
  async #draft(held: Held, { ids: given, abortAfter }: Call): Promise<void> {
    const { decoder, ids } = held;
    const stop = new AbortController();
    const reason = new Error("enough");
    void this.#abort(stop, reason, abortAfter);
    try {
      for (let count = 1; count <= given.length; count++) {
        const found = await decoder.draft!(given.slice(0, count), { signal: stop.signal });
        if (!found) return;
        this.drafted++;
        const all = [...ids, ...given.slice(0, count)];
        expect(found[0]).toBe(chainNumbers(branchOf(ids.length), all).at(-1));
        expect(decoder.position).toBe(ids.length);
      }
    } catch (error) {
      if (error === reason) return;
      expect(held.isDisposed, String((error as Error).stack)).toBe(true);
      expect(error).toBeInstanceOf(UnsupportedError);
    }
  }

  async #call(held: Held, { kind, ids: given, abortAfter }: Call): Promise<void> {
    const { decoder } = held;
    const all = [...held.ids, ...given];
    const stop = new AbortController();
    const reason = new Error("enough");
    void this.#abort(stop, reason, abortAfter);
    const options = { signal: stop.signal };
    try {
      const logits =
        kind === "step"
          ? await decoder.step(given[0]!, options)
          : kind === "prefill"
            ? await decoder.prefill(given, options)
            : await decoder.allLogits(given, options);
      const numbers = chainNumbers(branchOf(all.length), all);
      const expected = kind === "allLogits" ? numbers.slice(-given.length) : numbers.slice(-1);
      expect([...logits].filter((_, i) => i % VOCABULARY === 0)).toEqual(expected);
      held.ids = all;
      expect(decoder.position).toBe(all.length);
    } catch (error) {
      if (error instanceof ContextLengthError) expect(all.length).toBeGreaterThan(CONTEXT);
      else if (error !== reason) {
        expect(held.isDisposed, String((error as Error).stack)).toBe(true);
        expect(error).toBeInstanceOf(UnsupportedError);
      }
      if (held.isDisposed) return;
      // Of an aborted prompt, parts may have been computed.
      expect(decoder.position).toBeGreaterThanOrEqual(held.ids.length);
      held.ids = all.slice(0, decoder.position);
    }
  }

  async #abort(stop: AbortController, reason: Error, after: number | null): Promise<void> {
    if (after === null) return;
    for (let i = 0; i < after; i++) await nextMacrotask();
    stop.abort(reason);
  }

  #save(ids: readonly number[]): void {
    if (ids.length === 0) return;
    const sequence = this.cells.store.open(ids, { branch: branchOf(ids.length) });
    this.#files.push(new Uint8Array(Buffer.concat([...this.cells.store.save(sequence, "program")])));
    sequence.dispose();
  }

  /** Beside steps that run. */
  #restore(index: number): void {
    const file = this.#files[index % Math.max(1, this.#files.length)];
    if (!file) return;
    const restored = this.cells.store.restore(memorySource("file", file), "program").then(
      (sequence: Sequence) => sequence.dispose(),
      (error: unknown) => expect((error as Error).message).toMatch(/expected room for/),
    );
    this.#restored.push(restored);
  }

  async settle(): Promise<void> {
    await Promise.all([...this.held.map(({ running }) => running), ...this.#restored]);
    if (this.#failure) throw this.#failure;
  }

  /** No reference is left, and no byte. */
  async end(): Promise<void> {
    await this.settle();
    const { store, memory } = this.cells;
    for (const { decoder } of this.held) await decoder.dispose();
    // A step may run on without those that were disposed of.
    await store.whenIdle();
    expect(store.statistics).toMatchObject({ sequences: 0, pages: 0 });
    store.clear();
    expect(store.statistics.idlePages).toBe(0);
    expect(store.statistics.usedBytes).toBeLessThanOrEqual(store.layout.shape.stateBytes);
    store.dispose();
    expect(memory.bytes).toBe(0);
  }
}

test.each(Object.keys(models))(
  "%s: each call gives what was computed for its ids",
  async (name) => {
    const operations = fc.array(operation, { minLength: 20, maxLength: 90, size: "max" });
    let [evicted, drafted] = [0, 0];
    const property = fc.asyncProperty(
      operations,
      fc.oneof(fc.nat(600), fc.nat(6000)),
      async (operations, spareBytes) => {
        const run = new Run(models[name]!, spareBytes);
        for (const operation of operations) await run.do(operation);
        await run.settle();
        evicted += run.cells.store.statistics.evictedPages;
        drafted += run.drafted;
        await run.end();
      },
    );
    await fc.assert(property, { numRuns: 40 });
    expect(drafted).toBeGreaterThan(0);
    if (name !== "states alone") expect(evicted).toBeGreaterThan(0);
  },
  60_000,
);

describe("who is served", () => {
  const make = (uses = models.full!, prefillTokens = PREFILL_TOKENS) => {
    const run = new Run(uses, 1 << 16, prefillTokens);
    return { run, open: () => run.do({ kind: "open" }).then(() => run.held.at(-1)!.decoder) };
  };

  test("prompts end pages where layers are recurrent, and a prompt's last page", async () => {
    for (const [uses, steps] of [
      [models.full!, 3],
      [models.recurrent!, 4],
    ] as const) {
      const { run, open } = make(uses);
      const decoder = await open();
      await decoder.prefill(new Array(27).fill(0));
      // 10, 10 and 7 rows; 8, 8, 8 and 3 where pages are ended.
      expect(run.program.steps).toBe(steps);
      await run.end();
    }
  });

  test("answers go on while a prompt is computed, and it comes to its end while they do", async () => {
    const { run, open } = make();
    const answers = [await open(), await open()];
    for (const answer of answers) await answer.prefill([1]);
    const before = run.program.steps;
    let isComputed = false;
    const prompt = (await open()).prefill(new Array(30).fill(2)).then(() => {
      isComputed = true;
    });
    let tokens = 0;
    while (!isComputed) {
      await Promise.all(answers.map((answer) => answer.step(0)));
      tokens++;
    }
    await prompt;
    const steps = run.program.steps - before;
    // Each step has both answers and 3 rows of the prompt.
    expect(steps).toBeGreaterThanOrEqual(10);
    expect(steps).toBeLessThanOrEqual(12);
    expect(Math.max(...run.program.rows.slice(before))).toBe(PREFILL_TOKENS);
    expect(tokens).toBeGreaterThanOrEqual(steps - 2);
    await run.end();
  });

  test("a prompt has no longer step where an answer is late to ask for its next token", async () => {
    const { run, open } = make();
    const answer = await open();
    await answer.prefill([1]);
    const before = run.program.steps;
    const prompt = (await open()).prefill(new Array(30).fill(2));
    await answer.step(0);
    await prompt;
    // One with the answer, one without, and others as short, because the answer may come back.
    const [first, second, third] = run.program.rows.slice(before);
    expect([first, second]).toEqual([PREFILL_TOKENS, PREFILL_TOKENS]);
    expect(third).toBe(PREFILL_TOKENS);
    await run.end();
  });

  test("prompts have half of a step's rows where answers would take more", async () => {
    const { run, open } = make(models.full, 3);
    const answers = [await open(), await open()];
    for (const answer of answers) await answer.prefill([1]);
    const before = run.program.steps;
    const prompt = (await open()).prefill(new Array(6).fill(2));
    await Promise.all([prompt, ...answers.map((answer) => answer.step(0))]);
    expect(run.program.rows[before]).toBe(2 + 2);
    await run.end();
  });

  test("a short prompt that comes while a long one is read is read whole in the next step, which is short", async () => {
    const { run, open } = make(models.full, 2);
    const long = (await open()).prefill(new Array(28).fill(2));
    while (run.program.steps < 1) await new Promise((resolve) => setImmediate(resolve));
    // Alone, four times two rows.
    expect(run.program.rows[0]).toBe(8);
    const short = await open();
    const before = run.program.steps;
    await short.prefill([1, 1, 1]);
    // One step that may be under way, and one with the short one and a row of the other.
    expect(run.program.steps - before).toBeLessThanOrEqual(2);
    await long;
    expect(run.program.rows.slice(before, before + 2)).toContain(4);
    // The rest of the long one goes on in short steps: others may come again.
    expect(Math.max(...run.program.rows.slice(before + 2))).toBeLessThanOrEqual(3);
    await run.end();
  });

  test("all who wait come in turn where there are more than a step takes", async () => {
    const { run, open } = make();
    const answers: SequenceDecoder[] = [];
    for (let i = 0; i < 7; i++) answers.push(await open());
    for (const [i, answer] of answers.entries()) await answer.prefill([i % VOCABULARY]);
    const tokens = answers.map(() => 0);
    let isEnd = false;
    const work = answers.map(async (answer, i) => {
      for (let t = 0; t < 30 && !isEnd; t++) {
        await answer.step(0);
        tokens[i]!++;
      }
      isEnd = true;
    });
    await Promise.all(work);
    expect(Math.min(...tokens)).toBeGreaterThanOrEqual(28);
    await run.end();
  });
});
