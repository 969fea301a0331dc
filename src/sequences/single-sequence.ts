/** A store of one sequence, for models that run call by call: their steps are done when they return. */
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

  /** What calls read. */
  get table(): SequenceTable {
    return this.#store.table;
  }

  /** How many tokens it holds. */
  get position(): number {
    return this.#sequence.position;
  }

  /** Runs calls on tokens after those that it holds, which it holds once they are committed: several are of a prompt. */
  step<R>(tokens: number, work: () => R): R {
    // There is room for a whole context, and nobody else who takes it.
    this.#sequence.reserve(tokens);
    return this.#store.stepNow([{ sequence: this.#sequence, tokens, isPrefill: tokens > 1 }], work);
  }

  /** Appends the tokens of the last step. */
  commit(ids: readonly number[]): void {
    this.#sequence.commit(ids);
  }

  /** Begins anew in a branch: what was computed in others is of no use to it. */
  restart(branch: string): void {
    this.#sequence.dispose();
    this.#sequence = this.#store.open([], { branch });
  }

  /** Forgets the tokens from `position` on, or more. Gives the number of those that it then holds. */
  truncate(position: number): number {
    return this.#sequence.truncate(position);
  }
}
