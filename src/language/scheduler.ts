/**
 * Runs the sequences of a program together: what several callers ask for at the same time shares steps, single tokens and
 * parts of prompts alike, under a budget of tokens.
 */
import { UnsupportedError } from "../errors.ts";
import { nextMacrotask } from "../event-loop.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import { blamedForInputs } from "../runtime/blame.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { Session } from "../runtime/session.ts";
import type { Sequence } from "../sequences/sequence.ts";
import type { SequenceStore } from "../sequences/store.ts";
import type { Tensor } from "../tensor.ts";
import { hiddenOf, logitsOf } from "./logits.ts";
import { DRAFT_METHOD } from "./program-decoder.ts";
import { StepInputs } from "./step-inputs.ts";
import {
  isPrefill,
  nextToken,
  type Part,
  type Pending,
  planStep,
  type SequenceRequest,
  type StepLimits,
} from "./step-plan.ts";

/** How long others may take to ask for their next token before a step goes on without them, in turns of the event loop. */
const GATHER_TURNS = 3;

/** Tokens of a step with drafts at most: more are computed in another way on some CPUs, which changes bits. */
const DRAFT_ROWS = 8;

/** Tokens of a step of prompts while nobody else asks, in `prefillTokens`. */
const ALONE = 4;

/** What a draft gives for tokens found whose sequence has lost those before it. */
const LOST = -1;

/** How long others are expected to come after some did. */
const OTHERS_MS = 3000;

export class Scheduler {
  readonly limits: StepLimits;
  readonly #program: LoadedProgram;
  readonly #store: SequenceStore;
  readonly #session: Session;
  readonly #inputs: StepInputs;
  readonly #vocabularySize: number;
  /** Logits of a token that the model's own head drafts. */
  readonly #draftVocabularySize: number;
  /** Elements of the hidden states that steps give, 0 for none. */
  readonly #hiddenSize: number;
  readonly #pending: Pending[] = [];
  /** When sequences came, by their first request. */
  readonly #ages = new WeakMap<Sequence, number>();
  /** Sequences that nobody disposed of, the longest unused first: their pages can be taken away between requests. */
  readonly #idle = new Set<Sequence>();
  /** Sequences that were given logits in the last step and are expected to ask again. */
  readonly #expected = new Set<Sequence>();
  /** Request that found no room last time; it fails if it finds none again. */
  #lacked: Pending | null = null;
  #wake: () => void = () => {};
  #isRunning = false;
  #steps = 0;
  #requests = 0;
  /** When requests of two sequences waited at the same time last. */
  #metAt = Number.NEGATIVE_INFINITY;

  /** For a program with a store of sequences. */
  constructor(program: LoadedProgram, store: SequenceStore, options: { readonly prefillTokens: number }) {
    this.#program = program;
    this.#store = store;
    this.#session = program.createSession();
    const tokens = program.count("get_max_seq_len");
    this.limits = {
      tokens,
      prefillTokens: Math.min(options.prefillTokens, tokens),
      logitRows: Math.min(tokens, program.count("get_max_logit_rows", 1)),
      sequences: store.table.slots,
      pagePositions: store.layout.pagePositions,
      endsPages: store.layout.shape.stateBytes > 0,
    };
    this.#inputs = new StepInputs(tokens);
    this.#vocabularySize = program.count("get_vocab_size");
    this.#draftVocabularySize = program.count("get_draft_vocab_size", this.#vocabularySize);
    this.#hiddenSize = program.has(DRAFT_METHOD) ? program.count("get_hidden_size") : 0;
  }

  /**
   * Rows of a step that a sequence may have for its next token and drafts, of which some may have been computed before and be
   * computed again: the fewer the more sequences there are, whose tokens cost less of a step than drafts do. Where layers are
   * recurrent, drafts end with a page, so that each page has a state to be found with.
   */
  draftRows(sequence: Sequence): number {
    const asking = new Set([...this.#pending.map((pending) => pending.sequence), ...this.#expected]);
    const others = asking.size - (asking.has(sequence) ? 1 : 0);
    const toEnd = this.limits.endsPages ? sequence.nextBoundary - sequence.position : DRAFT_ROWS;
    return Math.min(toEnd, Math.floor(DRAFT_ROWS / (1 + others)));
  }

  /** A sequence that is known to the scheduler. Sequences of other branches and scopes share nothing with it. */
  open(branch: string, scope?: PrefixScope): Sequence {
    const sequence = this.#store.open([], { branch, scope });
    this.#idle.add(sequence);
    return sequence;
  }

  /** Another sequence with the same tokens, which shares their pages. */
  fork(sequence: Sequence): Sequence {
    const fork = sequence.fork();
    this.#idle.add(fork);
    return fork;
  }

  /** Ends a sequence, and the request that it may have with an error. */
  close(sequence: Sequence): void {
    sequence.dispose();
    const pending = this.#pending.find((request) => request.sequence === sequence);
    if (pending) this.#end(pending, new UnsupportedError("the decoder was disposed of"));
    this.#idle.delete(sequence);
    this.#noLongerExpected(sequence);
  }

  /**
   * Computes the tokens of a request that its sequence does not hold, in one step with others, or in several. Gives how many
   * of them the store had already.
   */
  run(request: SequenceRequest): Promise<number> {
    const { sequence } = request;
    const order = this.#requests++;
    const age = this.#ages.get(sequence) ?? order;
    this.#ages.set(sequence, age);
    const isLong = request.logitsFrom >= this.limits.pagePositions;
    if (this.#store.archive && isLong && sequence.position === 0) return this.#load(request, order, age);
    return this.#enqueue(request, { order, age, found: 0 });
  }

  /**
   * Computes the last token of a request that drafts. False where the sequence has lost its tokens
   * meanwhile, so that there is nothing to draft from.
   */
  async draft(request: SequenceRequest): Promise<boolean> {
    return (await this.run(request)) >= 0;
  }

  /** Runs a request after what is kept beyond memory of it was read, while others go on. */
  async #load(request: SequenceRequest, order: number, age: number): Promise<number> {
    const { sequence, ids, logitsFrom } = request;
    // Its pages are nobody's to take meanwhile.
    this.#idle.delete(sequence);
    this.#noLongerExpected(sequence);
    await this.#store.load(sequence, ids.slice(0, logitsFrom + 1));
    if (sequence.isDisposed) throw new UnsupportedError("the decoder was disposed of");
    this.#idle.add(sequence);
    return this.#enqueue(request, { order, age, found: sequence.position });
  }

  #enqueue(request: SequenceRequest, known: Pick<Pending, "order" | "age" | "found">): Promise<number> {
    const { sequence, signal } = request;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const isFresh = sequence.position === 0;
      const pending: Pending = { ...request, ...known, isFresh, servedAt: this.#steps, resolve, reject };
      this.#idle.delete(sequence);
      this.#pending.push(pending);
      if (this.#pending.length > 1) this.#metAt = performance.now();
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
        const late = await this.#gather();
        this.#dropAborted();
        if (this.#pending.length === 0) continue;
        await this.#step(late);
      }
    } finally {
      this.#isRunning = false;
    }
  }

  /**
   * Gives those who were served last the time to ask for their next token, so that they are served together again. How many
   * have not asked yet.
   */
  async #gather(): Promise<number> {
    for (let turn = 0; turn < GATHER_TURNS && this.#expected.size > 0; turn++) {
      const asked = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      await Promise.race([asked, nextMacrotask()]);
    }
    this.#wake = () => {};
    const late = this.#expected.size;
    this.#expected.clear();
    return late;
  }

  /**
   * Rows of a step of prompts alone: fewer while others come, which wait for a step that is under way.
   */
  #promptTokens(): number {
    const { prefillTokens } = this.limits;
    return performance.now() - this.#metAt < OTHERS_MS ? prefillTokens : ALONE * prefillTokens;
  }

  #dropAborted(): void {
    for (const pending of this.#pending.slice()) {
      if (pending.signal?.aborted) this.#end(pending, pending.signal.reason);
      else if (pending.draft && (pending.sequence.isEmpty || aheadOf(pending) >= this.limits.pagePositions)) {
        pending.found = LOST;
        this.#end(pending);
      }
    }
  }

  /** Takes a request out of the queue, with what became of it. */
  #end(pending: Pending, error?: unknown): void {
    const place = this.#pending.indexOf(pending);
    if (place < 0) return;
    this.#pending.splice(place, 1);
    if (!pending.sequence.isDisposed) this.#idle.add(pending.sequence);
    if (error === undefined) pending.resolve(pending.found);
    else pending.reject(error);
  }

  async #step(late: number): Promise<void> {
    this.#steps++;
    let failing = this.#pending.slice();
    try {
      // Its sequences end with it, which would be less to say.
      this.#program.checkUsable();
      const { parts, lacking } = this.#reserved(late);
      failing = parts.map(({ pending }) => pending);
      if (parts.length > 0) await this.#compute(parts);
      else if (lacking) await this.#wait(lacking);
    } catch (error) {
      for (const pending of failing) this.#end(pending, pending.signal?.aborted ? pending.signal.reason : error);
    }
  }

  /** Until a file that is read has given its room back; with nothing to wait for, the request ends. */
  async #wait(lacking: Pending): Promise<void> {
    const idle = this.#store.whenIdle();
    if (idle || this.#lacked !== lacking) {
      this.#lacked = idle ? null : lacking;
      await idle;
      // Whoever restored a sequence has the time to dispose of it.
      await nextMacrotask();
      return;
    }
    const { limitBytes } = this.#store.statistics;
    const error = new UnsupportedError(
      `the store of sequences has no room for one of this length: expected it within cacheBytes, ${limitBytes}; load the program with more`,
    );
    this.#end(lacking, error);
  }

  /**
   * The parts of the next step, with room for what they compute; none, and the oldest that has no room, where none has any.
   * The youngest sequences give way to older ones.
   */
  #reserved(late: number): { readonly parts: readonly Part[]; readonly lacking: Pending | null } {
    /**
     * Calls that wait. Those that gave way would find their own pages in the store, which are to be had now, and hold
     * them again.
     */
    const waiting = new Set<Pending>();
    let oldest: Pending | null = null;
    for (;;) {
      const others = this.#pending.filter((pending) => !waiting.has(pending));
      const parts = planStep(others, this.limits, { late, tokens: this.#promptTokens() });
      if (parts.map(({ pending }) => findPrefix(pending)).includes(true)) continue;
      const inTurn = parts.toSorted((a, b) => a.pending.age - b.pending.age);
      const lacking = inTurn.find(({ pending, tokens }) => {
        const more = aheadOf(pending) + tokens;
        return more > 0 && !pending.sequence.reserve(more);
      })?.pending;
      if (!lacking) return { parts, lacking: oldest };
      if (this.#makeRoom(lacking, waiting)) continue;
      if (!oldest || lacking.age < oldest.age) oldest = lacking;
      waiting.add(lacking);
    }
  }

  /** Takes the pages of a sequence that nobody runs, or of the youngest that waits; false when none is younger. */
  #makeRoom({ age, sequence }: Pending, waiting: Set<Pending>): boolean {
    for (const idle of this.#idle) {
      if (idle.isEmpty) continue;
      idle.release();
      return true;
    }
    let youngest: Pending | null = null;
    for (const other of this.#pending) {
      const holds = other.sequence !== sequence && !other.sequence.isEmpty;
      if (holds && other.age > age && other.age > (youngest?.age ?? -1)) youngest = other;
    }
    if (!youngest) return false;
    youngest.sequence.release();
    youngest.isFresh = true;
    waiting.add(youngest);
    return true;
  }

  async #compute(parts: readonly Part[]): Promise<void> {
    const stop = new AbortController();
    const release = abortWhenAll(parts, stop);
    try {
      const runs = parts.map(({ pending, tokens }) => ({
        sequence: pending.sequence,
        tokens,
        ahead: aheadOf(pending),
        isPrefill: isPrefill(pending),
      }));
      const { method } = parts[0]!.pending;
      const inputs = this.#inputs.fill(parts);
      const isDraft = parts[0]!.pending.draft !== undefined;
      const rows = isDraft ? parts.length : inputs.at(-1)!.data.length;
      const vocabularySize = isDraft ? this.#draftVocabularySize : this.#vocabularySize;
      const expected = { file: this.#program.file, vocabularySize, method, rows };
      const read = ([logits, hidden]: readonly Tensor[]) => {
        takeValues(parts, logitsOf(logits, expected), ({ logits }) => logits);
        if (this.#hiddenSize === 0) return;
        takeValues(parts, hiddenOf(hidden, this.#hiddenSize, expected), (pending) => pending.hidden);
      };
      await this.#store
        .step(runs, () => this.#session.use(method, inputs, read, stop.signal))
        .catch((error) => {
          throw blamedForInputs(this.#program.file, stop.signal, error);
        });
      for (const part of parts) this.#commit(part);
    } finally {
      release();
    }
  }

  /** Notes what was computed, and ends the request when it has all it asked for. */
  #commit({ pending, tokens }: Part): void {
    const { sequence, ids, keepsStart, draft, signal } = pending;
    if (sequence.isDisposed) return;
    if (draft) {
      this.#expected.add(sequence);
      this.#end(pending);
      return;
    }
    const end = sequence.position + tokens;
    sequence.commit(ids.slice(sequence.position, end), { keepsStart });
    pending.servedAt = this.#steps;
    if (end < ids.length) return;
    if (tokens > 1 && !keepsStart) sequence.archiveStates();
    if (!signal?.aborted) this.#expected.add(sequence);
    this.#end(pending);
  }
}

/** How far behind the tokens of its sequence those of a request begin. */
function aheadOf({ draft, sequence }: Pending): number {
  return draft ? draft.row - sequence.position : 0;
}

/** Copies values of a step, as many of each token, to those who want them, before what was computed is committed. */
function takeValues(
  parts: readonly Part[],
  values: Float32Array,
  targetOf: (pending: Pending) => Float32Array | undefined,
): void {
  const wanted = parts.map(({ pending, tokens }) => {
    const start = nextToken(pending);
    const first = Math.max(start, pending.logitsFrom);
    return { pending, first, count: Math.max(0, start + tokens - first) };
  });
  const all = wanted.reduce((sum, { count }) => sum + count, 0);
  if (all === 0) return;
  const size = values.length / all;
  let at = 0;
  for (const { pending, first, count } of wanted) {
    // One that was disposed of meanwhile has ended its request, and may have given its memory to another.
    const target = pending.sequence.isDisposed ? undefined : targetOf(pending);
    target?.set(values.subarray(at * size, (at + count) * size), (first - pending.logitsFrom) * size);
    at += count;
  }
}

/** Whether a request that is about to begin has a prefix in the store, after which it begins then. */
function findPrefix(pending: Pending): boolean {
  const { sequence, ids, logitsFrom, isFresh } = pending;
  if (!isFresh) return false;
  pending.isFresh = false;
  pending.found = sequence.match(ids.slice(0, logitsFrom + 1));
  return pending.found > 0;
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
