/** Stops encoding a long text as soon as it is sure to exceed its context length. */
import { ContextLengthError } from "../errors.ts";
import type { Model } from "./tokenizer/model.ts";

/** UTF-16 units up to which a text is encoded completely, so that the error can say how many tokens it has. */
const COUNTED_LENGTH = 1 << 16;

/** The error for a prompt that is too long; `tokens` says its length in words. */
export function promptTooLong(tokens: string, contextLength: number): ContextLengthError {
  return new ContextLengthError(
    `prompt: ${tokens} do not fit the context length of ${contextLength}; ` +
      "shorten the prompt or load the program with a longer context (contextLength, --context)",
  );
}

export class TokenBudget {
  readonly #model: Model;
  readonly #contextLength: number;

  /** `length`: UTF-16 units of the text. */
  constructor(model: Model, length: number, contextLength: number) {
    this.#model = model;
    this.#contextLength = length > COUNTED_LENGTH ? contextLength : Number.POSITIVE_INFINITY;
  }

  /** ContextLengthError if `count` exceeds the context length. */
  check(count: number): void {
    if (count > this.#contextLength)
      throw promptTooLong(`more than ${this.#contextLength} tokens`, this.#contextLength);
  }

  /** ContextLengthError if a word after `count` tokens surely exceeds it, even if all its tokens had the greatest length. */
  checkWord(word: string, count: number): void {
    const longest = this.#contextLength === Number.POSITIVE_INFINITY ? null : this.#model.longestToken;
    if (longest === null) return;
    const enough = (this.#contextLength - count) * longest;
    if (word.length <= enough) return;
    let units = 0;
    for (const character of word) {
      const id = this.#model.vocabulary.ids.get(character);
      // Unknown characters may be fused to one token.
      if (id !== undefined && id !== this.#model.unknownId) units += character.length;
      if (units > enough) break;
    }
    this.check(count + units / longest);
  }
}
