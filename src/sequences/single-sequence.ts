/** A store of one sequence, for eager models: a step is done when its function returns. */
import { processMemory } from "../kernels/memory.ts";
import type { SequenceTable, SequenceUse } from "../kernels/sequence-table.ts";
import { bytesForSequence, type SequenceOptions, sequenceLayout } from "./layout.ts";
import type { Sequence } from "./sequence.ts";
import { SequenceStore } from "./store.ts";

export class SingleSequence {
  readonly #store: SequenceStore;
  #sequence: Sequence;

  /** InvalidArgumentError for options out of range. */
  constructor(uses: readonly SequenceUse[], { type, contextLength }: Pick<SequenceOptions, "type" | "contextLength">) {
    const options = { type, contextLength, sequences: 1, stepTokens: contextLength };
    const cacheBytes = bytesForSequence(sequenceLayout(uses, options), contextLength, contextLength);
    this.#store = new SequenceStore(processMemory(), uses, { ...options, cacheBytes });
    this.#sequence = this.#store.open();
  }

  /** The table that kernels read. */
  get table(): SequenceTable {
    return this.#store.table;
  }

  /** Number of tokens that it holds. */
  get position(): number {
    return this.#sequence.position;
  }

  /** Runs calls on `tokens` tokens after those that it holds; `commit` then appends them. */
  step<R>(tokens: number, work: () => R): R {
    // There is room for a whole context, and no other sequence.
    this.#sequence.reserve(tokens);
    return this.#store.stepNow([{ sequence: this.#sequence, tokens }], work);
  }

  /** Appends the tokens of the last step. */
  commit(ids: readonly number[]): void {
    this.#sequence.commit(ids);
  }

  /** Starts over in a branch, since keys and values of other branches are of no use to it. */
  restart(branch: string): void {
    this.#sequence.dispose();
    this.#sequence = this.#store.open([], { branch });
  }

  /** Forgets the tokens from `position` on, or more. Gives the number of tokens that it then holds. */
  truncate(position: number): number {
    return this.#sequence.truncate(position);
  }
}
