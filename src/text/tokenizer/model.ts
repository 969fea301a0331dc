/** A model of tokenizer.json: turns a word into token ids. */
import type { Field } from "./field.ts";
import type { Vocabulary } from "./vocabulary.ts";
import type { Work } from "./work-limit.ts";

export interface Model {
  readonly vocabulary: Vocabulary;
  /** The unknown token, null for none. */
  readonly unknownId: number | null;
  /** Appends the ids of a word, which is not empty, to `ids`. */
  encode(word: string, work: Work, ids: number[]): void;
  /**
   * Length of the longest token in UTF-16 units, for models whose tokens are always as long as the text that they stand for;
   * null for others.
   */
  readonly longestToken: number | null;
}

/** The error of a model that needs an unknown token where the file names none. */
export function noUnknownToken(field: Field, word: string): Error {
  const shown = word.length > 40 ? `${word.slice(0, 37)}...` : word;
  return field.invalid(`has no unknown token in its vocabulary, which the text ${JSON.stringify(shown)} needs`);
}
