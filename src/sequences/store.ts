/** The paged KV cache of a program: keys, values and recurrent states of all sequences. */
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

/** Statistics of a paged KV cache. */
export interface SequenceStatistics {
  /** Number of sequences that are not disposed of. */
  readonly sequences: number;
  /** Pages that sequences hold. */
  readonly pages: number;
  /** Pages that several sequences share. */
  readonly sharedPages: number;
  /** Full pages that no sequence holds, kept as prefix cache until they are evicted. */
  readonly idlePages: number;
  /** Pages evicted so far. */
  readonly evictedPages: number;
  /** Bytes of memory taken. */
  readonly bytes: number;
  /** Bytes of it that pages and states use. */
  readonly usedBytes: number;
  /** Most bytes of memory. */
  readonly limitBytes: number;
  /** Tokens found in the prefix cache so far, which were not computed. */
  readonly reusedTokens: number;
}

/**
 * Owns the pages and recurrent states of all sequences of a loaded program, and the block table that kernels find them by.
 * Memory is taken as sequences grow; only the kernels of a step write it.
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
  /** Functions that wait until blocks may move. */
  #waiting: (() => void)[] = [];

  /**
   * Makes a store for what a program's calls keep. InvalidArgumentError for options out of range, and for `cacheBytes` that
   * do not hold one sequence of a page and a step more.
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

  /** The table that kernels read. */
  get table(): SequenceTable {
    return this.#table;
  }

  /**
   * Makes a sequence with the longest prefix of `ids` in the prefix cache, except for the last token. Sequences of another
   * branch, such as one with other RoPE frequencies, share nothing with it; those of another scope share public pages only.
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
   * Runs a step: writes the table for its runs and waits for `work`, in which kernels read it. The sequences then `commit`
   * the tokens, except for runs that begin ahead. When `work` fails, they are as before. InvalidArgumentError for runs
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

  /** Writes the table for a step; gives the function that ends the step, after success or failure. */
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
   * Gives a sequence as the bytes of a file, part by part: ids, keys, values and state, and the `program` (any text that
   * identifies it) that computed them. The sequence may go on meanwhile.
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
   * Restores a sequence that `save` wrote, in any process; its pages join the prefix cache. InvalidFileError for a file
   * that is damaged, or of another program, type or version; ContextLengthError when it is longer than the context;
   * UnsupportedError when there is no room for it.
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

  /** Archive of full pages and recurrent states beyond this store's memory; null for none. */
  set archive(archive: PageArchive | null) {
    this.#checkUsable();
    this.#pages.archive = archive;
  }

  get archive(): PageArchive | null {
    return this.#pages.archive;
  }

  /**
   * Gives an empty sequence the longest prefix of `ids` in the store or its archive, except for the last token. Meanwhile,
   * the sequence must not be used but may be disposed of.
   */
  async load(sequence: Sequence, ids: readonly number[]): Promise<void> {
    this.#checkOwn("load", sequence);
    const { archive } = this;
    if (!archive) sequence.match(ids);
    else await this.#inPlace(() => sequence.load(ids, archive));
  }

  /** Evicts everything that no sequence holds. */
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

  /** Disposes of all sequences and frees the memory: at once, or after the step under way. */
  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    for (const sequence of [...this.#sequences]) sequence.dispose();
    if (this.#pages.uses === 0) this.#free();
  }

  /** Resolves when no step runs and no file is read, which keep blocks in use; null when that is so now. */
  whenIdle(): Promise<void> | null {
    if (this.#pages.uses === 0) return null;
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
    });
  }

  /** Runs work during which blocks must not move. */
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
