/** A model of tokenizer.json: a word to the ids of its tokens. */
import type { Field } from "./field.ts";
import type { Vocabulary } from "./vocabulary.ts";
import type { Work } from "./work-limit.ts";

export interface Model {
  readonly vocabulary: Vocabulary;
  /** The token that stands for what has none, null for none. */
  readonly unknownId: number | null;
  /** Appends the ids of a word, which is not empty. */
  encode(word: string, work: Work, ids: number[]): void;
  /**
   * UTF-16 units of the longest token where words are surely made of tokens of the vocabulary that are as long as their
   * text; null where that is not so.
   */
  readonly longestToken: number | null;
}

/** The error of models that need an unknown token where the file names none. */
export function noUnknownToken(field: Field, word: string): Error {
  const shown = word.length > 40 ? `${word.slice(0, 37)}...` : word;
  return field.invalid(`has no unknown token in its vocabulary, which the text ${JSON.stringify(shown)} needs`);
}
