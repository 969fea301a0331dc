/**
 * Scheduler of a program with a paged KV cache: requests of several sequences share steps, single tokens and parts of
 * prompts alike, under a budget of tokens.
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

/** Turns of the event loop that a step waits for sequences that are expected to ask for their next token. */
const GATHER_TURNS = 3;

/** Most tokens of a step with drafts: for more, some CPUs have other kernels, whose results differ in bits. */
const DRAFT_ROWS = 8;

/** Tokens of a step of prompts while nobody else asks, as a multiple of `prefillTokens`. */
const ALONE = 4;

/** Result of a draft whose sequence has lost the tokens before it. */
const LOST = -1;

/** How long after two requests met (waited at the same time) steps are kept short for others. */
const OTHERS_MS = 3000;

export class Scheduler {
  readonly limits: StepLimits;
  readonly #program: LoadedProgram;
  readonly #store: SequenceStore;
  readonly #session: Session;
  readonly #inputs: StepInputs;
  readonly #vocabularySize: number;
  /** Number of logits of a token from the draft head. */
  readonly #draftVocabularySize: number;
  /** Elements of a token's hidden state, which steps give; 0 where they give none. */
  readonly #hiddenSize: number;
  readonly #pending: Pending[] = [];
  /** Number of each sequence's first request: lower means older. */
  readonly #ages = new WeakMap<Sequence, number>();
  /** Sequences without a request that are not disposed of, the longest unused first: their pages may be taken away. */
  readonly #idle = new Set<Sequence>();
  /** Sequences that got logits in the last step and are expected to ask for the next token. */
  readonly #expected = new Set<Sequence>();
  /** Request that found no room last time; it fails if it finds none again. */
  #lacked: Pending | null = null;
  #wake: () => void = () => {};
  #isRunning = false;
  #steps = 0;
  #requests = 0;
  /** When requests of two sequences last waited at the same time. */
  #metAt = Number.NEGATIVE_INFINITY;

  /** `program` must have a paged KV cache, `store`. */
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
   * Most tokens of a sequence in a step that verifies drafts: its next token, drafts, and tokens that are computed again.
   * The more sequences ask, the fewer, since their tokens cost a step less than rejected drafts. Where layers are
   * recurrent, drafts end with a page, so that each page has a state to continue from.
   */
  draftRows(sequence: Sequence): number {
    const asking = new Set([...this.#pending.map((pending) => pending.sequence), ...this.#expected]);
    const others = asking.size - (asking.has(sequence) ? 1 : 0);
    const toEnd = this.limits.endsPages ? sequence.nextBoundary - sequence.position : DRAFT_ROWS;
    return Math.min(toEnd, Math.floor(DRAFT_ROWS / (1 + others)));
  }

  /** Makes an empty sequence. It shares pages with those of the same branch (method) and scope only. */
  open(branch: string, scope?: PrefixScope): Sequence {
    const sequence = this.#store.open([], { branch, scope });
    this.#idle.add(sequence);
    return sequence;
  }

  /** Makes another sequence with the same tokens, which shares their pages. */
  fork(sequence: Sequence): Sequence {
    const fork = sequence.fork();
    this.#idle.add(fork);
    return fork;
  }

  /** Disposes of a sequence; a request of it ends with an error. */
  close(sequence: Sequence): void {
    sequence.dispose();
    const pending = this.#pending.find((request) => request.sequence === sequence);
    if (pending) this.#end(pending, new UnsupportedError("the decoder was disposed of"));
    this.#idle.delete(sequence);
    this.#noLongerExpected(sequence);
  }

  /**
   * Computes the tokens of a request that its sequence does not hold yet, in one step or several, shared with other
   * requests. Gives the number of tokens that the prefix cache held.
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
   * Computes one draft: the last token of the request's ids, by the draft head. False where the sequence has lost its
   * tokens meanwhile.
   */
  async draft(request: SequenceRequest): Promise<boolean> {
    return (await this.run(request)) >= 0;
  }

  /** Reads the request's prefix from the archive (disk) before it is queued; other requests go on meanwhile. */
  async #load(request: SequenceRequest, order: number, age: number): Promise<number> {
    const { sequence, ids, logitsFrom } = request;
    // Until it is read, its pages must not be taken away.
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
   * Waits some turns for the sequences of the last step to ask for their next token, so that they share the next step, too.
   * Gives the number of those that have not asked.
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

  /** Tokens of a step of prompts alone: fewer while others come, since they wait until a step ends. */
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

  /** Takes a request out of the queue; it resolves, or rejects with `error`. */
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
      // Throws the program's own error, which says more than that its sequences were disposed of.
      this.#program.checkUsable();
      const { parts, lacking } = this.#reserved(late);
      failing = parts.map(({ pending }) => pending);
      if (parts.length > 0) await this.#compute(parts);
      else if (lacking) await this.#wait(lacking);
    } catch (error) {
      for (const pending of failing) this.#end(pending, pending.signal?.aborted ? pending.signal.reason : error);
    }
  }

  /** Waits until a file that is being read frees its memory; with nothing to wait for, the request ends with an error. */
  async #wait(lacking: Pending): Promise<void> {
    const idle = this.#store.whenIdle();
    if (idle || this.#lacked !== lacking) {
      this.#lacked = idle ? null : lacking;
      await idle;
      // A turn in which the owner of a restored sequence may dispose of it.
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
   * The parts of the next step, with pages reserved for their tokens. Where no part has room, none, and the oldest request
   * that lacks room. The youngest sequences lose their pages to older ones.
   */
  #reserved(late: number): { readonly parts: readonly Part[]; readonly lacking: Pending | null } {
    /**
     * Requests that this step leaves out. Those that lost their pages would find them again in the prefix cache, and hold
     * them.
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

  /** Frees the pages of an idle sequence, or of the youngest request's; false when none is younger than the asking one. */
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
      const wanted = parts.map(wantedOf);
      const isDraft = parts[0]!.pending.draft !== undefined;
      const rows = isDraft ? parts.length : inputs.at(-1)!.data.length;
      const vocabularySize = isDraft ? this.#draftVocabularySize : this.#vocabularySize;
      const expected = { file: this.#program.file, vocabularySize, method, rows };
      const read = ([logits, hidden]: readonly Tensor[]) => {
        takeValues(wanted, logitsOf(logits, expected), ({ logits }) => logits);
        if (this.#hiddenSize === 0) return;
        takeValues(wanted, hiddenOf(hidden, this.#hiddenSize, expected), (pending) => pending.hidden);
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

  /** Appends computed tokens to the sequence, and ends a request that has all its tokens. */
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

/** Tokens between the end of the sequence and the position that a request writes; 0 but for drafts. */
function aheadOf({ draft, sequence }: Pending): number {
  return draft ? draft.row - sequence.position : 0;
}

/** Tokens of a part whose logits are wanted. */
interface Wanted {
  readonly pending: Pending;
  /** Index of the first in the request's result. */
  readonly at: number;
  readonly count: number;
}

/** What a part wants, to be asked before the step: a request that is closed during it gives up its tokens. */
function wantedOf({ pending, tokens }: Part): Wanted {
  const start = nextToken(pending);
  const first = Math.max(start, pending.logitsFrom);
  return { pending, at: first - pending.logitsFrom, count: Math.max(0, start + tokens - first) };
}

/** Copies logits or hidden states of a step to the requests that want them, before the step is committed. */
function takeValues(
  wanted: readonly Wanted[],
  values: Float32Array,
  targetOf: (pending: Pending) => Float32Array | undefined,
): void {
  const all = wanted.reduce((sum, { count }) => sum + count, 0);
  if (all === 0) return;
  const size = values.length / all;
  let row = 0;
  for (const { pending, at, count } of wanted) {
    // A sequence that was disposed of meanwhile has ended its request, whose array may serve another.
    const target = pending.sequence.isDisposed ? undefined : targetOf(pending);
    target?.set(values.subarray(row * size, (row + count) * size), at * size);
    row += count;
  }
}

/**
 * Looks in the prefix cache for the tokens of a request that begins, which then starts after them; true where any were
 * found.
 */
function findPrefix(pending: Pending): boolean {
  const { sequence, ids, logitsFrom, isFresh } = pending;
  if (!isFresh) return false;
  pending.isFresh = false;
  pending.found = sequence.match(ids.slice(0, logitsFrom + 1));
  return pending.found > 0;
}

/** Aborts a step when all of its requests are aborted: until then, the others go on. */
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
