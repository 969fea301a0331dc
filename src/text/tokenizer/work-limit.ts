/** What encoding and decoding by a stranger's tokenizer may cost: its patterns, replacements and templates decide that. */
import { LimitError } from "../../errors.ts";

/** Limits of one call of a tokenizer. A call that meets one ends with a LimitError. */
export interface TokenizerLimits {
  /** Seconds that a call may take. Default 30. */
  readonly seconds: number;
  /** Steps (of pattern matching, replacing and joining) for each character of the text. Default 1000. */
  readonly stepsPerCharacter: number;
  /** How many times longer a text may get by normalizing or decoding. Default 64. */
  readonly growth: number;
}

export const DEFAULT_LIMITS: TokenizerLimits = { seconds: 30, stepsPerCharacter: 1000, growth: 64 };

/** A text of a few characters has at least these steps, and may grow to this length. */
const STEPS_FOR_ANY_TEXT = 10_000_000;
const LENGTH_FOR_ANY_TEXT = 1_000_000;

/** Steps between two looks at the clock: a few milliseconds. */
const STEPS_BETWEEN_LOOKS = 500_000;

/** The work of one call, counted. */
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

  /** Counts steps; LimitError when those so far, or their time, are too many. */
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

  /** Compares the length of a text; LimitError when it has become too long. */
  checkLength(length: number): void {
    if (length > this.#mostLength)
      throw this.#exceeded(`makes it more than ${this.#limits.growth} times longer`, "growth");
  }

  /** Makes the LimitError for a pattern that goes back to more places than can be kept. */
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
