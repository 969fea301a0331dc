/** Ends the encoding of a long text as soon as it is sure to have more tokens than its context has room for. */
import { ContextLengthError } from "../errors.ts";
import type { Model } from "./tokenizer/model.ts";

/** UTF-16 units up to which a text is encoded to its end, so that the error can say how many tokens it has. */
const COUNTED_LENGTH = 1 << 16;

/** `tokens`: how many they are, in words. */
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

  /** ContextLengthError for more tokens than there is room for. */
  check(count: number): void {
    if (count > this.#contextLength)
      throw promptTooLong(`more than ${this.#contextLength} tokens`, this.#contextLength);
  }

  /** ContextLengthError when a word behind `count` tokens surely has too many, as if all were of the greatest length. */
  checkWord(word: string, count: number): void {
    const longest = this.#model.longestToken;
    if (longest === null) return;
    const enough = (this.#contextLength - count) * longest;
    if (word.length <= enough) return;
    let units = 0;
    for (const character of word) {
      const id = this.#model.vocabulary.ids.get(character);
      // Unknown characters may be joined to one token.
      if (id !== undefined && id !== this.#model.unknownId) units += character.length;
      if (units > enough) break;
    }
    this.check(count + units / longest);
  }
}
