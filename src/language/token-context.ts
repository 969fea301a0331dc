/** The ids of one decoder's sequence: checks what is appended, and that calls do not overlap. */
import { shown } from "../arguments.ts";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";

/** Limits that ids and lengths are checked against. */
export interface ContextLimits {
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** How to get a longer context, for messages. */
  readonly remedy: string;
}

export class TokenContext {
  readonly ids: number[] = [];
  readonly #limits: ContextLimits;
  #isBusy = false;

  constructor(limits: ContextLimits) {
    this.#limits = limits;
  }

  /** Runs a call alone: each begins where the one before it ended. InvalidArgumentError while another is under way. */
  async alone<R>(work: () => Promise<R>): Promise<R> {
    this.#checkIdle();
    this.#isBusy = true;
    try {
      return await work();
    } finally {
      this.#isBusy = false;
    }
  }

  /** A copy with the same ids. InvalidArgumentError while a call is under way, since its tokens are not appended yet. */
  fork(): TokenContext {
    this.#checkIdle();
    const fork = new TokenContext(this.#limits);
    for (const id of this.ids) fork.ids.push(id);
    return fork;
  }

  /**
   * Forgets all ids from `position` on. InvalidArgumentError while a call is under way, since its tokens are not appended
   * yet.
   */
  rewind(position: number): void {
    this.#checkIdle();
    const { length } = this.ids;
    if (!Number.isInteger(position) || position < 0 || position > length)
      throw new InvalidArgumentError(`rewind: expected a position up to ${length} but found ${shown(position)}`);
    this.ids.length = position;
  }

  /** ContextLengthError for more ids than the context has room for, InvalidArgumentError for ids beyond the vocabulary. */
  check(ids: readonly number[]): void {
    const { contextLength, vocabularySize, remedy } = this.#limits;
    const length = this.ids.length + ids.length;
    if (length > contextLength)
      throw new ContextLengthError(`expected at most ${contextLength} tokens but found ${length}; ${remedy}`);
    for (const id of ids)
      if (!Number.isInteger(id) || id < 0 || id >= vocabularySize)
        throw new InvalidArgumentError(`token id: expected 0..${vocabularySize - 1} but found ${shown(id)}`);
  }

  #checkIdle(): void {
    if (this.#isBusy)
      throw new InvalidArgumentError("decoder: expected one call at a time; await the last, or make another decoder");
  }
}
