/** The models of tokenizer.json: a word to the ids of its tokens. */
import type { Field } from "./field.ts";
import { readBpe } from "./bpe.ts";
import { readUnigram } from "./unigram.ts";
import { readVocabulary, type Vocabulary } from "./vocabulary.ts";
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

const readers: Record<string, (field: Field) => Model> = {
  BPE: readBpe,
  Unigram: readUnigram,
  WordLevel: readWordLevel,
  WordPiece: readWordPiece,
};

/** UnsupportedError for a model of an unknown type. Older files name none: their fields tell. */
export function readModel(field: Field): Model {
  const type = field.optional("type")?.text() ?? typeOf(field);
  if (!Object.hasOwn(readers, type)) throw field.get("type").unsupported(`"${type}" is no model that is supported`);
  if (field.optional("vocab") === null) throw field.get("vocab").expected("a vocabulary");
  return readers[type]!(field);
}

function typeOf(field: Field): string {
  if (field.optional("merges")) return "BPE";
  if (field.optional("max_input_chars_per_word")) return "WordPiece";
  return Array.isArray(field.get("vocab").value) ? "Unigram" : "WordLevel";
}

/** The error of models that need an unknown token where the file names none. */
export function noUnknownToken(field: Field, word: string): Error {
  const shown = word.length > 40 ? `${word.slice(0, 37)}...` : word;
  return field.invalid(`has no unknown token in its vocabulary, which the text ${JSON.stringify(shown)} needs`);
}

function readWordLevel(field: Field): Model {
  const vocabulary = readVocabulary(field.get("vocab"));
  const unknownId = vocabulary.ids.get(field.get("unk_token").text()) ?? null;
  return {
    ...{ vocabulary, unknownId, longestToken: null },
    encode(word, work, ids) {
      work.add(1);
      const id = vocabulary.ids.get(word) ?? unknownId;
      if (id === null) throw noUnknownToken(field, word);
      ids.push(id);
    },
  };
}

function readWordPiece(field: Field): Model {
  const vocabulary = readVocabulary(field.get("vocab"));
  const unknownId = vocabulary.ids.get(field.get("unk_token").text()) ?? null;
  const prefix = field.optional("continuing_subword_prefix")?.text() ?? "##";
  const most = field.optional("max_input_chars_per_word")?.count(0, Number.MAX_SAFE_INTEGER) ?? 100;

  /** The longest token that the rest of a word begins with, in front of `tail`; -1 when there is none. */
  const longest = (word: string, start: number, work: Work): readonly [number, number] => {
    for (let end = word.length; end > start; end--) {
      const unit = word.charCodeAt(end);
      if (unit >= 0xdc00 && unit < 0xe000) continue;
      work.add(1 + ((end - start) >> 3));
      const piece = word.slice(start, end);
      const id = vocabulary.ids.get(start > 0 ? prefix + piece : piece);
      if (id !== undefined) return [id, end];
    }
    return [-1, start];
  };

  return {
    ...{ vocabulary, unknownId, longestToken: null },
    encode(word, work, ids) {
      const before = ids.length;
      let isKnown = characterCount(word) <= most;
      for (let start = 0; isKnown && start < word.length; ) {
        const [id, end] = longest(word, start, work);
        isKnown = id >= 0;
        ids.push(id);
        start = end;
      }
      if (isKnown) return;
      ids.length = before;
      if (unknownId === null) throw noUnknownToken(field, word);
      ids.push(unknownId);
    },
  };
}

function characterCount(text: string): number {
  let count = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0xdc00 || unit > 0xdfff) count++;
  }
  return count;
}
