/** The keys, values and states of all sequences of a program: one store, which steps read and write. */
import { checkIds } from "../arguments.ts";
import type { ByteSource } from "../byte-source.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { KernelMemory } from "../kernels/contract.ts";
import type { SequenceTable, SequenceUse } from "../kernels/sequence-table.ts";
import { everyone, type PrefixScope } from "../prefix-scope.ts";
import type { PageArchive } from "./archive.ts";
import { bytesForSequence, type SequenceLayout, type SequenceOptions, sequenceLayout } from "./layout.ts";
import type { Page } from "./page.ts";
import { PageStore } from "./page-store.ts";
import { readPages, readStart, takeRoom } from "./restore.ts";
import { savedParts } from "./save.ts";
import { Sequence } from "./sequence.ts";
import { type StepRun, Table } from "./table.ts";

/** What a store holds, and how often it was of use. */
export interface SequenceStatistics {
  /** Sequences that were not disposed of. */
  readonly sequences: number;
  /** Pages that sequences hold. */
  readonly pages: number;
  /** Pages that several sequences hold. */
  readonly sharedPages: number;
  /** Full pages that no sequence holds, kept to be found until their room is needed. */
  readonly idlePages: number;
  /** Pages given up so far because their room was needed. */
  readonly evictedPages: number;
  /** Bytes of memory taken. */
  readonly bytes: number;
  /** Bytes that pages and states use of it. */
  readonly usedBytes: number;
  /** Most bytes that may be taken. */
  readonly limitBytes: number;
  /** Tokens that sequences took from the store so far instead of having them computed. */
  readonly reusedTokens: number;
}

/**
 * Owns the pages of keys and values and the states of all sequences of a loaded program, and the table that kernels find
 * them by. Memory is taken as sequences grow; nobody else writes it but the kernels of a step.
 */
export class SequenceStore {
  readonly layout: SequenceLayout;
  readonly contextLength: number;
  readonly #pages: PageStore;
  readonly #table: Table;
  readonly #sequences = new Set<Sequence>();
  #reusedTokens = 0;
  #isStepping = false;
  #isDisposed = false;
  /** Who wait for work that needs blocks to stay where they are. */
  #waiting: (() => void)[] = [];

  /**
   * For what the calls of a program keep. InvalidArgumentError for options out of range, and for `cacheBytes` that do not
   * hold one sequence of a page and a step more.
   */
  constructor(memory: KernelMemory, uses: readonly SequenceUse[], options: SequenceOptions) {
    const { contextLength, cacheBytes, type } = options;
    this.layout = sequenceLayout(uses, options);
    this.contextLength = contextLength;
    const { pagePositions } = this.layout;
    const stepTokens = Math.min(options.stepTokens ?? pagePositions, contextLength);
    const positions = Math.min(contextLength, pagePositions + stepTokens);
    const needed = bytesForSequence(this.layout, positions, stepTokens);
    if (!(cacheBytes >= needed))
      throw new InvalidArgumentError(
        `cacheBytes: expected at least ${needed}, for ${positions} tokens of one sequence in ${type}, but found ${cacheBytes}`,
      );
    this.#pages = new PageStore(memory, cacheBytes, this.layout.shape);
    this.#table = new Table(memory, this.#pages, this.layout);
  }

  /** What kernels read. */
  get table(): SequenceTable {
    return this.#table;
  }

  /**
   * A sequence that holds the longest prefix of `ids` that is in the store, whoever computed it, but for the last token.
   * Sequences of another branch, such as one with other rotary frequencies, share nothing with it; those of another scope,
   * no more than what is everyone's.
   */
  open(
    ids: readonly number[] = [],
    { branch = "", scope }: { readonly branch?: string | undefined; readonly scope?: PrefixScope | undefined } = {},
  ): Sequence {
    this.#checkUsable();
    checkIds("open", ids);
    const sequence = this.#newSequence(branch, scope);
    if (ids.length > 0) sequence.match(ids);
    return sequence;
  }

  /**
   * Runs a step: writes the table for its runs, whose tokens follow each other, and waits for `work`, in which kernels read
   * it. The sequences then `commit` the tokens, but for those that begin ahead of them. When `work` fails, they are as they were. InvalidArgumentError for runs
   * without `reserve`, more runs than slots, and a second step at a time.
   */
  async step<R>(runs: readonly StepRun[], work: () => Promise<R>): Promise<R> {
    const end = this.#begin(runs);
    return this.#inPlace(async () => {
      let isDone = false;
      try {
        const result = await work();
        isDone = true;
        return result;
      } finally {
        end(isDone);
      }
    });
  }

  /** Runs a step whose work is done when it returns. */
  stepNow<R>(runs: readonly StepRun[], work: () => R): R {
    const end = this.#begin(runs);
    let isDone = false;
    try {
      const result = work();
      isDone = true;
      return result;
    } finally {
      end(isDone);
    }
  }

  /** Writes the table for a step; gives what ends it, successfully or not. */
  #begin(runs: readonly StepRun[]): (isDone: boolean) => void {
    this.#checkUsable();
    this.#checkRuns(runs);
    this.#pages.trim();
    this.#table.write(runs);
    for (const { sequence } of runs) sequence.beginStep();
    this.#isStepping = true;
    return (isDone) => {
      this.#isStepping = false;
      this.#table.clear();
      for (const { sequence, tokens, ahead } of runs) sequence.endStep(isDone && !ahead ? tokens : 0);
    };
  }

  /**
   * A sequence as the bytes of a file, part by part: its ids, keys, values and state, and which `program` (any text that
   * tells it from others) they belong to. The sequence may go on meanwhile.
   */
  *save(sequence: Sequence, program: string): Generator<Uint8Array> {
    this.#checkOwn("save", sequence);
    const copy = sequence.fork();
    try {
      yield* savedParts(copy, this.layout, program);
    } finally {
      copy.dispose();
    }
  }

  /**
   * The sequence of a file that `save` wrote, in whatever process. Its pages can be found by others. InvalidFileError
   * for a file that is damaged, or of another program, type or version; ContextLengthError when it is longer than the
   * context; UnsupportedError when there is no room for it.
   */
  async restore(source: ByteSource, program: string): Promise<Sequence> {
    this.#checkUsable();
    const { layout, contextLength } = this;
    const start = await readStart(source, { layout, program, contextLength });
    this.#checkUsable();
    const room = takeRoom(start, this.#pages, layout);
    return this.#inPlace(async () => {
      const { branch, ...content } = await readPages(start, room, layout);
      const sequence = this.#newSequence(branch);
      sequence.adopt(content);
      if (this.#isDisposed) sequence.dispose();
      this.#checkUsable();
      return sequence;
    });
  }

  /** Where full pages, and states of recurrent layers, are kept and found beyond this store's memory; null for nowhere. */
  set archive(archive: PageArchive | null) {
    this.#checkUsable();
    this.#pages.archive = archive;
  }

  get archive(): PageArchive | null {
    return this.#pages.archive;
  }

  /**
   * Gives a sequence without tokens the longest prefix of `ids` that is in the store or its archive, but for the last token.
   * Nothing else may be done with it meanwhile but to dispose of it.
   */
  async load(sequence: Sequence, ids: readonly number[]): Promise<void> {
    this.#checkOwn("load", sequence);
    const { archive } = this;
    if (!archive) sequence.match(ids);
    else await this.#inPlace(() => sequence.load(ids, archive));
  }

  /** Forgets what is kept for later only. */
  clear(): void {
    this.#checkUsable();
    this.#pages.clear();
  }

  get statistics(): SequenceStatistics {
    const held = new Set<Page>();
    for (const { pages } of this.#sequences) for (const page of pages) held.add(page);
    const { pool, idlePages, evictedPages } = this.#pages;
    return {
      sequences: this.#sequences.size,
      pages: held.size,
      sharedPages: [...held].filter(({ holders }) => holders > 1).length,
      idlePages,
      evictedPages,
      bytes: pool.bytes,
      usedBytes: pool.usedBytes,
      limitBytes: pool.limit,
      reusedTokens: this.#reusedTokens,
    };
  }

  /** Disposes of all sequences and gives the memory back: at once or, while it is in use, after that. */
  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    for (const sequence of [...this.#sequences]) sequence.dispose();
    if (this.#pages.uses === 0) this.#free();
  }

  /**
   * Resolves when no step runs and no file is read, which keep room from others; null when that is so now.
   */
  whenIdle(): Promise<void> | null {
    if (this.#pages.uses === 0) return null;
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
    });
  }

  /** Work that needs blocks to stay where they are. */
  async #inPlace<R>(work: () => Promise<R>): Promise<R> {
    this.#pages.uses++;
    try {
      return await work();
    } finally {
      this.#pages.uses--;
      if (this.#isDisposed && this.#pages.uses === 0) this.#free();
      for (const resolve of this.#pages.uses === 0 ? this.#waiting.splice(0) : []) resolve();
    }
  }

  #free(): void {
    this.#table.dispose();
    this.#pages.dispose();
  }

  #newSequence(branch: string, scope: PrefixScope = everyone): Sequence {
    if (scope.pages !== undefined) this.#pages.limit(scope.salt, scope.pages);
    return new Sequence(this.#pages, {
      branch,
      scope,
      contextLength: this.contextLength,
      onOpen: (sequence) => this.#sequences.add(sequence),
      onMatch: (tokens) => {
        this.#reusedTokens += tokens;
      },
      onDispose: (sequence) => {
        this.#sequences.delete(sequence);
        this.#table.forget(sequence);
      },
    });
  }

  #checkRuns(runs: readonly StepRun[]): void {
    if (this.#isStepping) throw new InvalidArgumentError("step: expected one step at a time; await the last one first");
    if (runs.length < 1 || runs.length > this.#table.slots)
      throw new InvalidArgumentError(
        `step: expected from 1 to ${this.#table.slots} sequences in a step but found ${runs.length}`,
      );
    const met = new Set<Sequence>();
    for (const { sequence, tokens, ahead = 0 } of runs) {
      if (!this.#sequences.has(sequence) || met.has(sequence))
        throw new InvalidArgumentError("step: expected open sequences of this store, each once");
      met.add(sequence);
      const refusal = sequence.refusal(tokens, ahead);
      if (refusal) throw new InvalidArgumentError(`step: expected sequences that are ready but found ${refusal}`);
    }
  }

  #checkOwn(what: string, sequence: Sequence): void {
    this.#checkUsable();
    if (!this.#sequences.has(sequence))
      throw new InvalidArgumentError(`${what}: expected an open sequence of this store`);
  }

  #checkUsable(): void {
    if (this.#isDisposed) throw new UnsupportedError("the store of sequences was disposed of");
  }
}
