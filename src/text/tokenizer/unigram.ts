/** Unigram: segments a word into the tokens with the greatest sum of scores. */
import { longestOf } from "./bpe.ts";
import type { Field } from "./field.ts";
import { type Model, noUnknownToken } from "./model.ts";
import { Trie } from "./pair-table.ts";
import { ID_LIMIT, Vocabulary } from "./vocabulary.ts";
import type { Work } from "./work-limit.ts";

/** How far an unknown character's score is below the lowest score of a token. */
const UNKNOWN_PENALTY = 10;

const KEPT_LENGTH = 256;
const KEPT_WORDS = 20_000;

export function readUnigram(field: Field): Model {
  const entries = field.get("vocab").array();
  if (entries.length > ID_LIMIT) throw field.get("vocab").invalid(`has more than ${ID_LIMIT} tokens`);
  const scores = new Float64Array(entries.length);
  const ids = new Map<string, number>();
  const tokens: string[] = [];
  for (const [id, entry] of entries.entries()) {
    const [token, score] = Array.isArray(entry) && entry.length === 2 ? entry : [];
    if (typeof token !== "string" || typeof score !== "number" || !Number.isFinite(score))
      throw field.get("vocab").item(id).expected("a token and its score");
    ids.set(token, id);
    tokens.push(token);
    scores[id] = score;
  }
  const vocabulary = new Vocabulary(ids, (id) => tokens[id], tokens.length, tokens.length);
  const unknownId = field.optional("unk_id")?.count(0, entries.length - 1) ?? null;
  const fallsBackToBytes = field.optional("byte_fallback")?.boolean() ?? false;
  return new Unigram(field, vocabulary, new Trie(ids), scores, unknownId, fallsBackToBytes);
}

class Unigram implements Model {
  readonly vocabulary: Vocabulary;
  readonly unknownId: number | null;
  readonly longestToken: number;
  readonly #field: Field;
  readonly #scores: Float64Array;
  readonly #unknownScore: number;
  readonly #fallsBackToBytes: boolean;
  readonly #trie: Trie;
  readonly #kept = new Map<string, readonly number[]>();

  constructor(
    field: Field,
    vocabulary: Vocabulary,
    trie: Trie,
    scores: Float64Array,
    unknownId: number | null,
    fallsBackToBytes: boolean,
  ) {
    this.#field = field;
    this.vocabulary = vocabulary;
    this.#scores = scores;
    this.unknownId = unknownId;
    this.#fallsBackToBytes = fallsBackToBytes;
    this.#unknownScore =
      scores.reduce((least, score) => Math.min(least, score), Number.POSITIVE_INFINITY) - UNKNOWN_PENALTY;
    this.#trie = trie;
    this.longestToken = longestOf(vocabulary.ids.keys());
  }

  encode(word: string, work: Work, ids: number[]): void {
    const kept = this.#kept.get(word);
    if (kept) {
      work.add(1);
      for (const id of kept) ids.push(id);
      return;
    }
    const found: number[] = [];
    for (const piece of this.#pieces(word, work)) this.#append(piece, found);
    for (const id of found) ids.push(id);
    if (word.length > KEPT_LENGTH) return;
    if (this.#kept.size >= KEPT_WORDS) this.#kept.clear();
    this.#kept.set(word, found);
  }

  #append(piece: string, ids: number[]): void {
    const id = this.vocabulary.ids.get(piece);
    if (id !== undefined) {
      ids.push(id);
      return;
    }
    const bytes = this.#fallsBackToBytes ? this.vocabulary.byteIds(piece) : null;
    if (bytes) for (const byte of bytes) ids.push(byte);
    else if (this.unknownId === null) throw noUnknownToken(this.#field, piece);
    else ids.push(this.unknownId);
  }

  /** Pieces of the best segmentation; adjacent unknown characters are one piece. */
  #pieces(word: string, work: Work): string[] {
    const { starts, tokens } = this.#bestWay(word, work);
    const pieces: string[] = [];
    let unknownEnd = -1;
    for (let end = word.length; end > 0; ) {
      const start = starts[end]!;
      const isUnknown = tokens[end] === this.unknownId;
      if (isUnknown && unknownEnd < 0) unknownEnd = end;
      if (!isUnknown) {
        if (unknownEnd >= 0) pieces.push(word.slice(end, unknownEnd));
        unknownEnd = -1;
        pieces.push(word.slice(start, end));
      }
      end = start;
    }
    if (unknownEnd >= 0) pieces.push(word.slice(0, unknownEnd));
    return pieces.reverse();
  }

  /** Viterbi search: for each end of a piece, where the best piece that ends there begins, and its token. */
  #bestWay(word: string, work: Work): { readonly starts: Int32Array; readonly tokens: Int32Array } {
    const { length } = word;
    const starts = new Int32Array(length + 1).fill(-1);
    const tokens = new Int32Array(length + 1);
    const sums = new Float64Array(length + 1);
    const offer = (start: number, end: number, token: number, score: number) => {
      const sum = score + sums[start]!;
      if (starts[end] !== -1 && !(sum > sums[end]!)) return;
      sums[end] = sum;
      starts[end] = start;
      tokens[end] = token;
    };
    for (let start = 0; start < length; ) {
      const single = start + (word.codePointAt(start)! > 0xffff ? 2 : 1);
      let hasSingle = false;
      let node = 0;
      let end = start;
      while (end < length) {
        node = this.#trie.child(node, word.charCodeAt(end++));
        if (node < 0) break;
        const token = this.#trie.value(node);
        if (token < 0) continue;
        offer(start, end, token, this.#scores[token]!);
        if (end === single) hasSingle = true;
      }
      work.add(1 + ((end - start) >> 1));
      if (!hasSingle) {
        if (this.unknownId === null) throw noUnknownToken(this.#field, word.slice(start, single));
        offer(start, single, this.unknownId, this.#unknownScore);
      }
      start = single;
    }
    return { starts, tokens };
  }
}
