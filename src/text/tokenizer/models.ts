/** The models of tokenizer.json. */

import { readBpe } from "./bpe.ts";
import type { Field } from "./field.ts";
import { type Model, noUnknownToken } from "./model.ts";
import { readUnigram } from "./unigram.ts";
import { readVocabulary } from "./vocabulary.ts";
import type { Work } from "./work-limit.ts";

const readers: Record<string, (field: Field) => Model> = {
  BPE: readBpe,
  Unigram: readUnigram,
  WordLevel: readWordLevel,
  WordPiece: readWordPiece,
};

/** Reads a model. InvalidFileError for an unknown type; older files name none, and it is inferred from their fields. */
export function readModel(field: Field): Model {
  const type = field.optional("type")?.text() ?? typeOf(field);
  if (!Object.hasOwn(readers, type)) throw field.get("type").invalid(`"${type}" is no model`);
  if (field.optional("vocab") === null) throw field.get("vocab").expected("a vocabulary");
  return readers[type]!(field);
}

function typeOf(field: Field): string {
  if (field.optional("merges")) return "BPE";
  if (field.optional("max_input_chars_per_word")) return "WordPiece";
  return Array.isArray(field.get("vocab").value) ? "Unigram" : "WordLevel";
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

  /** The longest token that, before `tail`, begins the rest of a word, as id and end; id -1 when there is none. */
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
