/**
 * Runs the sequences of a program together: what several callers ask for at the same time shares steps, single tokens and
 * parts of prompts alike, under a budget of rows.
 */
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { nextMacrotask } from "../event-loop.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { Session } from "../runtime/session.ts";
import type { Sequence } from "../sequences/sequence.ts";
import type { SequenceStore } from "../sequences/store.ts";
import { type Part, type Pending, planStep, type SequenceRequest, type StepLimits } from "./step-plan.ts";

/** How long others may take to ask for their next token before a step goes on without them, in turns of the event loop. */
const GATHER_TURNS = 3;

export class Scheduler {
  readonly limits: StepLimits;
  readonly #store: SequenceStore;
  readonly #session: Session;
  readonly #vocabularySize: number;
  readonly #pending: Pending[] = [];
  /** When sequences came, by their first request. */
  readonly #ages = new WeakMap<Sequence, number>();
  /** Sequences that nobody disposed of, the longest unused first: their pages can be taken away between requests. */
  readonly #idle = new Set<Sequence>();
  /** Sequences that were given logits in the last step and are expected to ask again. */
  readonly #expected = new Set<Sequence>();
  #wake: () => void = () => {};
  #isRunning = false;
  #steps = 0;
  #requests = 0;

  /** For a program with a store of sequences. */
  constructor(program: LoadedProgram, store: SequenceStore, options: { readonly promptRows: number }) {
    this.#store = store;
    this.#session = program.createSession();
    this.#vocabularySize = program.count("get_vocab_size");
    const rows = program.count("get_max_seq_len");
    this.limits = {
      rows,
      promptRows: Math.min(options.promptRows, rows),
      logitRows: Math.min(rows, program.count("get_max_logit_rows", 1)),
      sequences: store.table.slots,
      pagePositions: store.layout.pagePositions,
    };
  }

  /** A sequence that is known to the scheduler. Sequences of other branches share nothing with it. */
  open(branch: string): Sequence {
    const sequence = this.#store.open([], { branch });
    this.#idle.add(sequence);
    return sequence;
  }

  /** Ends a sequence. */
  close(sequence: Sequence): void {
    this.#idle.delete(sequence);
    this.#noLongerExpected(sequence);
    sequence.dispose();
  }

  /** Computes the tokens of a request that its sequence does not hold, in one step with others, or in several. */
  run(request: SequenceRequest): Promise<Float32Array> {
    const { sequence, signal, ids, logitsFrom } = request;
    const age = this.#ages.get(sequence) ?? this.#requests++;
    this.#ages.set(sequence, age);
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const logits = new Float32Array((ids.length - logitsFrom) * this.#vocabularySize);
      const isFresh = sequence.position === 0;
      const pending: Pending = { ...request, age, isFresh, servedAt: this.#steps, logits, resolve, reject };
      this.#idle.delete(sequence);
      this.#pending.push(pending);
      this.#noLongerExpected(sequence);
      if (!this.#isRunning) void this.#work();
    });
  }

  #noLongerExpected(sequence: Sequence): void {
    this.#expected.delete(sequence);
    if (this.#expected.size === 0) this.#wake();
  }

  async #work(): Promise<void> {
    this.#isRunning = true;
    try {
      while (this.#pending.length > 0) {
        await this.#gather();
        this.#dropAborted();
        if (this.#pending.length === 0) continue;
        await this.#step();
      }
    } finally {
      this.#isRunning = false;
    }
  }

  /** Gives those who were served last the time to ask for their next token, so that they are served together again. */
  async #gather(): Promise<void> {
    for (let turn = 0; turn < GATHER_TURNS && this.#expected.size > 0; turn++) {
      const asked = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      await Promise.race([asked, nextMacrotask()]);
    }
    this.#wake = () => {};
    this.#expected.clear();
  }

  #dropAborted(): void {
    for (const pending of this.#pending.slice()) if (pending.signal?.aborted) this.#end(pending, pending.signal.reason);
  }

  /** Takes a request out of the queue, with what became of it. */
  #end(pending: Pending, error?: unknown): void {
    const place = this.#pending.indexOf(pending);
    if (place < 0) return;
    this.#pending.splice(place, 1);
    if (!pending.sequence.isDisposed) this.#idle.add(pending.sequence);
    if (error === undefined) pending.resolve(pending.logits);
    else pending.reject(error);
  }

  async #step(): Promise<void> {
    this.#steps++;
    let failing = this.#pending.slice();
    try {
      const { parts, lacking } = this.#reserved();
      failing = parts.map(({ pending }) => pending);
      if (parts.length > 0) await this.#compute(parts);
      else if (lacking) this.#end(lacking, this.#noRoom());
    } catch (error) {
      for (const pending of failing) this.#end(pending, pending.signal?.aborted ? pending.signal.reason : error);
    }
  }

  #noRoom(): UnsupportedError {
    const { limitBytes } = this.#store.statistics;
    return new UnsupportedError(
      `the store of sequences has no room for one of this length: expected it within cacheBytes, ${limitBytes}; load the program with more`,
    );
  }

  /** The parts of the next step, with room for what they compute. The youngest sequences give way to older ones. */
  #reserved(): { readonly parts: readonly Part[]; readonly lacking: Pending | null } {
    for (;;) {
      const parts = planStep(this.#pending, this.limits);
      if (parts.map(({ pending }) => findPrefix(pending)).includes(true)) continue;
      const hasRoom = ({ pending, rows }: Part) => pending.sequence.reserve(rows);
      const lacking = parts.toSorted((a, b) => a.pending.age - b.pending.age).find((part) => !hasRoom(part));
      if (!lacking) return { parts, lacking: null };
      if (this.#makeRoom(lacking.pending)) continue;
      return { parts: parts.filter((part) => part !== lacking && hasRoom(part)), lacking: lacking.pending };
    }
  }

  /** Takes the pages of a sequence that nobody runs, or of the youngest that waits; false when none is younger. */
  #makeRoom({ age, sequence }: Pending): boolean {
    for (const idle of this.#idle) {
      if (idle.position === 0) continue;
      idle.release();
      return true;
    }
    let youngest: Pending | null = null;
    for (const other of this.#pending) {
      const holds = other.sequence !== sequence && other.sequence.position > 0;
      if (holds && other.age > age && other.age > (youngest?.age ?? -1)) youngest = other;
    }
    if (!youngest) return false;
    youngest.sequence.release();
    youngest.isFresh = true;
    return true;
  }

  async #compute(parts: readonly Part[]): Promise<void> {
    const inputs = stepInputs(parts);
    const stop = new AbortController();
    const release = abortWhenAll(parts, stop);
    try {
      const runs = parts.map(({ pending, rows }) => ({ sequence: pending.sequence, rows }));
      const { method } = parts[0]!.pending;
      const run = () => this.#session.run(method, inputs.tensors, stop.signal);
      const [logits] = await this.#store.step(runs, run);
      this.#give(parts, inputs.logitRows > 0 ? (logits!.data as Float32Array) : null);
    } finally {
      release();
    }
  }

  /** Notes what was computed, and ends the requests that have all they asked for. */
  #give(parts: readonly Part[], logits: Float32Array | null): void {
    const size = this.#vocabularySize;
    let row = 0;
    for (const { pending, rows } of parts) {
      const { sequence, ids, logitsFrom } = pending;
      const start = sequence.position;
      if (!sequence.isDisposed) sequence.commit(ids.slice(start, start + rows));
      const first = Math.max(start, logitsFrom);
      const count = start + rows - first;
      if (count > 0) {
        pending.logits.set(logits!.subarray(row * size, (row + count) * size), (first - logitsFrom) * size);
        row += count;
      }
      pending.servedAt = this.#steps;
      if (start + rows < ids.length && !sequence.isDisposed) continue;
      if (!pending.signal?.aborted) this.#expected.add(sequence);
      this.#end(pending, sequence.isDisposed ? new UnsupportedError("the decoder was disposed of") : undefined);
    }
  }
}

/** Whether a request that is about to begin has a prefix in the store, after which it begins then. */
function findPrefix(pending: Pending): boolean {
  const { sequence, ids, logitsFrom, isFresh } = pending;
  if (!isFresh) return false;
  pending.isFresh = false;
  return sequence.match(ids.slice(0, logitsFrom + 1)) > 0;
}

/** Aborts when every request of a step is aborted: until then, the others go on. */
function abortWhenAll(parts: readonly Part[], stop: AbortController): () => void {
  const signals = parts.map(({ pending }) => pending.signal);
  const check = () => {
    if (signals.every((signal) => signal?.aborted)) stop.abort(signals[0]!.reason);
  };
  for (const signal of signals) signal?.addEventListener("abort", check);
  return () => {
    for (const signal of signals) signal?.removeEventListener("abort", check);
  };
}

/** Tokens, positions and rows with logits of a step. A step that wants none is asked for those of its last row. */
function stepInputs(parts: readonly Part[]) {
  const tokens: bigint[] = [];
  const positions: bigint[] = [];
  const wanted: bigint[] = [];
  for (const { pending, rows } of parts) {
    const { sequence, ids, logitsFrom } = pending;
    const start = sequence.position;
    for (let i = start; i < start + rows; i++) {
      if (i >= logitsFrom) wanted.push(BigInt(tokens.length));
      tokens.push(BigInt(ids[i]!));
      positions.push(BigInt(i));
    }
  }
  const logitRows = wanted.length;
  if (logitRows === 0) wanted.push(BigInt(tokens.length - 1));
  const vector = (values: bigint[], shape: readonly number[]) =>
    ({ dtype: "i64", shape, data: BigInt64Array.from(values) }) as const;
  return {
    logitRows,
    tensors: [
      vector(tokens, [1, tokens.length]),
      vector(positions, [positions.length]),
      vector(wanted, [wanted.length]),
    ],
  };
}
