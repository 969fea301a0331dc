/** Decoder of a program with a paged KV cache: one sequence, which the scheduler runs beside others. */
import { checkIds, checkOptions, shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { Sequence } from "../sequences/sequence.ts";
import type { ComputeOptions } from "../text/decoder.ts";
import { DRAFT_METHOD, methodFor, type ProgramDecoder } from "./program-decoder.ts";
import type { Scheduler } from "./scheduler.ts";
import { TokenContext } from "./token-context.ts";

interface CachedTokens {
  readonly context: TokenContext;
  readonly sequence: Sequence | null;
  readonly hidden: KnownHidden;
}

/** Hidden states of consecutive tokens, and the position of the first. */
interface KnownHidden {
  readonly from: number;
  readonly values: Float32Array;
}

export class SequenceDecoder implements ProgramDecoder {
  readonly file: string;
  readonly contextLength: number;
  readonly vocabularySize: number;
  readonly logitRows: number;
  readonly draft: ProgramDecoder["draft"];
  readonly #program: LoadedProgram;
  readonly #scheduler: Scheduler;
  /** All ids so far; the sequence may hold fewer of them, since its pages can be taken away. */
  readonly #context: TokenContext;
  readonly #scope: PrefixScope | undefined;
  #sequence: Sequence | null;
  /** Logits of the last call, which the next one overwrites. */
  #logits = new Float32Array(0);
  readonly #hiddenSize: number;
  readonly #isDraftFixed: boolean;
  /** Number of logits of a token from the draft head. */
  readonly #draftVocabularySize: number;
  /** Hidden states of the last tokens of the last call. */
  #hidden: KnownHidden;
  /** Hidden state of the last draft, and the number of tokens that had been drafted with it. */
  #drafted = new Float32Array(0);
  #draftLength = 0;
  #isDisposed = false;
  #cachedTokens = 0;

  /**
   * `scope`: whose prefixes are shared; without one, those of all decoders that have none. `cached`: ids to begin with, and
   * the sequence that holds them.
   */
  constructor(
    program: LoadedProgram,
    scheduler: Scheduler,
    contextLength: number,
    { scope, cached }: { readonly scope?: PrefixScope | undefined; readonly cached?: CachedTokens } = {},
  ) {
    this.file = program.file;
    this.contextLength = contextLength;
    this.vocabularySize = program.count("get_vocab_size");
    this.logitRows = scheduler.limits.logitRows;
    const remedy = "load the program with a longer context (--context), as far as the model and memory have it";
    const { vocabularySize } = this;
    this.#context = cached?.context ?? new TokenContext({ contextLength, vocabularySize, remedy });
    this.#sequence = cached?.sequence ?? null;
    this.#hidden = cached?.hidden ?? { from: 0, values: new Float32Array(0) };
    this.#scope = scope;
    this.#program = program;
    this.#scheduler = scheduler;
    this.draft = program.has(DRAFT_METHOD) ? (ids, options) => this.#draft(ids, options) : undefined;
    this.#hiddenSize = this.draft ? program.count("get_hidden_size") : 0;
    this.#draftVocabularySize = program.count("get_draft_vocab_size", this.vocabularySize);
    this.#isDraftFixed = program.count("get_draft_fixed", 0) > 0;
  }

  get position(): number {
    return this.#context.ids.length;
  }

  get cachedTokens(): number {
    return this.#cachedTokens;
  }

  async dispose(): Promise<void> {
    this.#isDisposed = true;
    if (this.#sequence) this.#scheduler.close(this.#sequence);
    this.#sequence = null;
  }

  rewind(position: number): void {
    this.#checkUsable();
    this.#context.rewind(position);
    this.#forgetFrom(position);
    const sequence = this.#sequence;
    if (sequence && sequence.position > position) sequence.truncate(position);
  }

  fork(): SequenceDecoder {
    this.#checkUsable();
    const context = this.#context.fork();
    const sequence = this.#sequence && this.#scheduler.fork(this.#sequence);
    return new SequenceDecoder(this.#program, this.#scheduler, this.contextLength, {
      ...{ scope: this.#scope, cached: { context, sequence, hidden: this.#hidden } },
    });
  }

  /**
   * Most tokens of the next step with drafts: what the scheduler allows beside other sequences, and no more than one method
   * computes.
   */
  get draftRows(): number {
    const { length } = this.#context.ids;
    const long = this.#program.count("get_long_context_from", Number.POSITIVE_INFINITY);
    const room = length < long ? long - length : Number.POSITIVE_INFINITY;
    if (!this.#sequence) return 1;
    const rows = this.#scheduler.draftRows(this.#sequence) - this.recomputed;
    return Math.max(1, Math.min(room, this.logitRows, rows));
  }

  get recomputed(): number {
    return this.#context.ids.length - (this.#sequence?.position ?? 0);
  }

  /** After an abort, parts of the prompt may have been appended: see `position`. Other errors append nothing. */
  prefill(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#append("prefill", ids, { ...options, rows: 1, of: options?.of ?? "prompt" });
  }

  step(id: number, options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#append("step", [id], { ...options, rows: 1, of: options?.of ?? "answer" });
  }

  allLogits(ids: readonly number[], options: ComputeOptions = {}): Promise<Float32Array> {
    return this.#append("allLogits", ids, { ...options, rows: ids?.length, of: options?.of ?? "answer" });
  }

  /** Appends ids to the context, computes them, and gives the logits of the last `rows`. */
  async #append(
    call: string,
    given: readonly number[],
    options: ComputeOptions & { readonly rows: number },
  ): Promise<Float32Array> {
    this.#checkUsable();
    checkOptions(options);
    const { signal, rows, of } = options;
    if (of !== "prompt" && of !== "answer")
      throw new InvalidArgumentError(`of: expected prompt or answer but found ${shown(of)}`);
    return this.#context.alone(async () => {
      checkIds(call, given);
      if (given.length === 0) throw new InvalidArgumentError(`${call}: expected at least one token`);
      this.#context.check(given);
      const { ids, isAnswer } = this.#context;
      const before = ids.length;
      for (const id of given) this.#context.push(id, of === "answer");
      const sequence = this.#sequenceFor(methodFor(this.#program, ids.length));
      const logits = this.#logitsOf(rows);
      const hidden = this.draft && new Float32Array(rows * this.#hiddenSize);
      this.#draftLength = 0;
      try {
        this.#cachedTokens = await this.#scheduler.run({
          sequence,
          method: sequence.branch,
          ...{ ids, isAnswer, logits },
          logitsFrom: ids.length - rows,
          keepsStart: rows > 1,
          ...{ hidden, signal },
        });
        if (hidden) this.#hidden = { from: ids.length - rows, values: hidden };
        return logits;
      } catch (error) {
        this.#context.cut(signal?.aborted ? Math.max(before, sequence.position) : before);
        if (!sequence.isDisposed && sequence.position > ids.length) sequence.truncate(ids.length);
        throw error;
      }
    });
  }

  async #draft(given: readonly number[], options: ComputeOptions = {}): Promise<Float32Array | null> {
    this.#checkUsable();
    checkOptions(options);
    return this.#context.alone(async () => {
      checkIds("draft", given);
      const { ids, isAnswer } = this.#context;
      const sequence = this.#sequence;
      const before = this.#hiddenBefore(given.length);
      if (!before || !sequence || ids.length + given.length > this.contextLength) return null;
      const { length } = ids;
      // The keys and values that the draft attends to must exist.
      if (this.#isDraftFixed && sequence.position < length) return null;
      const last = length + given.length - 1;
      const position = this.#isDraftFixed ? length : last;
      const row = this.#isDraftFixed ? length - 1 : last;
      const logits = this.#logitsOf(1, this.#draftVocabularySize);
      const hidden = new Float32Array(before.length);
      for (const id of given) this.#context.push(id, true);
      try {
        const isComputed = await this.#scheduler.draft({
          ...{ sequence, method: DRAFT_METHOD, ids, isAnswer, logits, logitsFrom: last, keepsStart: false },
          ...{ hidden, draft: { before, position, row }, signal: options.signal },
        });
        if (!isComputed) return null;
      } finally {
        this.#context.cut(length);
      }
      this.#drafted = hidden;
      this.#draftLength = given.length;
      return logits;
    });
  }

  /**
   * The hidden state [hidden] that the draft of token number `drafted` after the context needs; null where it is not known.
   */
  #hiddenBefore(drafted: number): Float32Array | null {
    if (drafted > 1) return this.#draftLength === drafted - 1 ? this.#drafted : null;
    const { from, values } = this.#hidden;
    const size = this.#hiddenSize;
    const start = (this.#context.ids.length - 1 - from) * size;
    return start >= 0 && start + size <= values.length ? values.subarray(start, start + size) : null;
  }

  /** Drops hidden states of positions from one on, which other tokens may take. */
  #forgetFrom(position: number): void {
    const { from, values } = this.#hidden;
    const kept = Math.max(0, position - from) * this.#hiddenSize;
    this.#hidden = { from, values: values.subarray(0, kept) };
    this.#draftLength = 0;
  }

  #logitsOf(rows: number, vocabularySize = this.vocabularySize): Float32Array {
    const length = rows * vocabularySize;
    if (this.#logits.length < length) this.#logits = new Float32Array(length);
    return this.#logits.subarray(0, length);
  }

  /** The sequence of a method; keys and values of another method are of no use, so the sequence of that is closed. */
  #sequenceFor(method: string): Sequence {
    if (this.#sequence?.branch === method && !this.#sequence.isDisposed) return this.#sequence;
    if (this.#sequence) this.#scheduler.close(this.#sequence);
    this.#sequence = this.#scheduler.open(method, this.#scope);
    return this.#sequence;
  }

  #checkUsable(): void {
    this.#program.checkUsable();
    if (this.#isDisposed) throw new InvalidArgumentError("decoder: was disposed of");
  }
}
