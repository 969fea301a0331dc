/**
 * Limits the work of encoding and decoding with an untrusted tokenizer, whose patterns, replacements and templates determine
 * it.
 */
import { LimitError } from "../../errors.ts";

/** Limits of one call of a tokenizer. A call that exceeds one throws LimitError. */
export interface TokenizerLimits {
  /** Seconds that a call may take. Default 30. */
  readonly seconds: number;
  /** Steps of matching, replacing and joining for each character of the text. Default 1000. */
  readonly stepsPerCharacter: number;
  /** Factor by which normalizing or decoding may lengthen a text. Default 64. */
  readonly growth: number;
}

export const DEFAULT_LIMITS: TokenizerLimits = { seconds: 30, stepsPerCharacter: 1000, growth: 64 };

/** Steps and length that a text may have, however short it is. */
const STEPS_FOR_ANY_TEXT = 10_000_000;
const LENGTH_FOR_ANY_TEXT = 1_000_000;

/** Steps between two checks of the clock: a few milliseconds. */
const STEPS_BETWEEN_LOOKS = 500_000;

/** Counts the work of one call. */
export class Work {
  readonly #file: string;
  readonly #limits: TokenizerLimits;
  readonly #start = performance.now();
  readonly #mostSteps: number;
  readonly #mostLength: number;
  #steps = 0;
  #nextLook = STEPS_BETWEEN_LOOKS;

  /** `length`: UTF-16 units of the text that is encoded, or of the tokens that are decoded. */
  constructor(file: string, limits: TokenizerLimits, length: number) {
    this.#file = file;
    this.#limits = limits;
    this.#mostSteps = STEPS_FOR_ANY_TEXT + length * limits.stepsPerCharacter;
    this.#mostLength = LENGTH_FOR_ANY_TEXT + length * limits.growth;
  }

  /** Counts steps; LimitError when the steps so far, or their time, exceed the limit. */
  add(steps: number): void {
    this.#steps += steps;
    if (this.#steps < this.#nextLook) return;
    this.#nextLook = this.#steps + STEPS_BETWEEN_LOOKS;
    const { seconds, stepsPerCharacter } = this.#limits;
    if (this.#steps > this.#mostSteps)
      throw this.#exceeded(`needs more than ${stepsPerCharacter} steps a character`, "stepsPerCharacter");
    if (performance.now() - this.#start > seconds * 1000)
      throw this.#exceeded(`needs more than ${seconds} seconds`, "seconds");
  }

  /** LimitError when a text has become too long. */
  checkLength(length: number): void {
    if (length > this.#mostLength)
      throw this.#exceeded(`makes it more than ${this.#limits.growth} times longer`, "growth");
  }

  /** Makes the LimitError for a pattern that needs too large a backtracking stack. */
  outOfMemory(): LimitError {
    return new LimitError(this.#file, "a pattern of this tokenizer needs too much memory for this text");
  }

  #exceeded(problem: string, limit: keyof TokenizerLimits): LimitError {
    return new LimitError(
      this.#file,
      `this tokenizer ${problem} for this text; limits.${limit} allows more for files that you trust`,
    );
  }
}
