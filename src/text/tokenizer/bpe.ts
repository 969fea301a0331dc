/** Byte pair encoding: merges neighbouring symbols in the order of the merges' ranks. */
import type { Field } from "./field.ts";
import { MergeQueue } from "./merge-queue.ts";
import type { Model } from "./model.ts";
import { PairTable } from "./pair-table.ts";
import { readVocabulary, type Vocabulary } from "./vocabulary.ts";
import type { Work } from "./work-limit.ts";

/** Longest word whose ids are cached, and the number of cached words. */
const KEPT_LENGTH = 256;
const KEPT_WORDS = 20_000;

interface Options {
  readonly unknown: string | null;
  readonly prefix: string;
  readonly suffix: string;
  readonly fusesUnknown: boolean;
  readonly fallsBackToBytes: boolean;
  readonly ignoresMerges: boolean;
}

export function readBpe(field: Field): Model {
  const dropout = field.optional("dropout");
  if (dropout && dropout.value !== 0) throw dropout.unsupported("dropout, which makes tokens random, is not supported");
  const vocabulary = readVocabulary(field.get("vocab"));
  const options = {
    unknown: field.optional("unk_token")?.text() ?? null,
    prefix: field.optional("continuing_subword_prefix")?.text() ?? "",
    suffix: field.optional("end_of_word_suffix")?.text() ?? "",
    fusesUnknown: field.optional("fuse_unk")?.boolean() ?? false,
    fallsBackToBytes: field.optional("byte_fallback")?.boolean() ?? false,
    ignoresMerges: field.optional("ignore_merges")?.boolean() ?? false,
  };
  return new Bpe(field, vocabulary, options);
}

class Bpe implements Model {
  readonly vocabulary: Vocabulary;
  readonly unknownId: number | null;
  #longest: number | undefined;
  readonly #field: Field;
  readonly #options: Options;
  readonly #ranks: Merges["ranks"];
  /** The id that the merge of a rank makes. */
  readonly #made: (rank: number) => number;
  readonly #kept = new Map<string, Int32Array>();
  readonly #queue = new MergeQueue();

  constructor(field: Field, vocabulary: Vocabulary, options: Options) {
    this.#field = field;
    this.vocabulary = vocabulary;
    this.#options = options;
    this.unknownId = options.unknown === null ? null : (vocabulary.ids.get(options.unknown) ?? null);
    const { triples, ranks } = readMerges(field, vocabulary);
    this.#ranks = ranks;
    this.#made = (rank) => triples[3 * rank + 2]!;
  }

  get longestToken(): number | null {
    const { prefix, suffix } = this.#options;
    if (prefix || suffix) return null;
    this.#longest ??= longestOf(this.vocabulary.ids.keys());
    return this.#longest;
  }

  encode(word: string, work: Work, ids: number[]): void {
    work.add(1);
    if (this.#options.ignoresMerges) {
      const id = this.vocabulary.ids.get(word);
      if (id !== undefined) {
        ids.push(id);
        return;
      }
    }
    const kept = this.#kept.get(word);
    if (kept) {
      for (const id of kept) ids.push(id);
      return;
    }
    const symbols = this.#symbols(word);
    work.add(symbols.length);
    const merged = this.#merge(Int32Array.from(symbols), work);
    for (const id of merged) ids.push(id);
    if (word.length > KEPT_LENGTH) return;
    if (this.#kept.size >= KEPT_WORDS) this.#kept.clear();
    this.#kept.set(word, merged);
  }

  /** Initial symbols of a word: ids of its characters. */
  #symbols(word: string): number[] {
    const { prefix, suffix, fallsBackToBytes, fusesUnknown, unknown } = this.#options;
    const { ids } = this.vocabulary;
    const symbols: number[] = [];
    let hasUnknown = false;
    for (let at = 0; at < word.length; ) {
      const end = at + (word.codePointAt(at)! > 0xffff ? 2 : 1);
      let character = word.slice(at, end);
      if (at > 0 && prefix) character = prefix + character;
      if (end === word.length && suffix) character += suffix;
      at = end;
      const id = ids.get(character);
      if (id !== undefined) {
        if (hasUnknown) symbols.push(this.#unknown(word));
        hasUnknown = false;
        symbols.push(id);
        continue;
      }
      // As in Rust's library, byte tokens do not end a run of unknown characters.
      const bytes = fallsBackToBytes ? this.vocabulary.byteIds(character) : null;
      if (bytes) symbols.push(...bytes);
      else if (unknown !== null) {
        if (hasUnknown && !fusesUnknown) symbols.push(this.#unknown(word));
        hasUnknown = true;
      }
    }
    if (hasUnknown) symbols.push(this.#unknown(word));
    return symbols;
  }

  #unknown(word: string): number {
    if (this.unknownId === null)
      throw this.#field
        .get("unk_token")
        .invalid(`is not in the vocabulary, but ${JSON.stringify(word.slice(0, 40))} needs it`);
    return this.unknownId;
  }

  /** Merges symbols in place; a symbol that is merged into the one before it becomes -1. */
  #merge(symbols: Int32Array, work: Work): Int32Array {
    const count = symbols.length;
    if (count < 2) return symbols;
    const queue = this.#queue;
    queue.clear();
    const previous = Int32Array.from(symbols, (_, i) => i - 1);
    const next = Int32Array.from(symbols, (_, i) => i + 1);
    const offer = (at: number, following: number) => {
      const rank = this.#ranks.get(symbols[at]!, symbols[following]!);
      if (rank >= 0) queue.push(rank, at);
    };
    for (let i = 0; i + 1 < count; i++) offer(i, i + 1);
    let left = count;
    while (queue.pop()) {
      const at = queue.position;
      const following = next[at]!;
      if (symbols[at] === -1 || following >= count) continue;
      const made = this.#made(queue.rank);
      // A queue entry is stale unless the symbols now at its position make the same token.
      const rank = this.#ranks.get(symbols[at]!, symbols[following]!);
      if (rank < 0 || this.#made(rank) !== made) continue;
      symbols[at] = made;
      symbols[following] = -1;
      left--;
      const behind = next[following]!;
      next[at] = behind;
      if (behind < count) previous[behind] = at;
      if (previous[at]! >= 0) offer(previous[at]!, at);
      if (behind < count) offer(at, behind);
      if ((left & 1023) === 0) work.add(1024);
    }
    return left === count ? symbols : symbols.filter((id) => id !== -1);
  }
}

/** Merges of a byte pair model. */
export class Merges {
  /** For each rank the ids of left, right and what they make. */
  readonly triples: Int32Array;
  /** The rank of the merge of two ids; -1 where they make nothing. */
  readonly ranks: Pick<PairTable, "get">;

  constructor(triples: Int32Array, ranks: Pick<PairTable, "get">) {
    this.triples = triples;
    this.ranks = ranks;
  }
}

/** Reads merges as pairs of tokens or lines, or takes what `tables.ts` has read already. */
export function readMerges(model: Field, { ids }: Vocabulary): Merges {
  const field = model.get("merges");
  if (field.value instanceof Merges) return field.value;
  const entries = field.array();
  const isLines = entries.every((entry) => typeof entry === "string");
  const pairs = isLines ? entries.filter((line) => !line.startsWith("#version")) : entries;
  const skipped = new TextEncoder().encode(model.optional("continuing_subword_prefix")?.text() ?? "").length;
  const triples = new Int32Array(3 * pairs.length);
  const ranks = new PairTable(pairs.length);
  for (const [rank, entry] of pairs.entries()) {
    const pair = isLines ? (entry as string).split(" ") : entry;
    if (!Array.isArray(pair) || pair.length !== 2 || typeof pair[0] !== "string" || typeof pair[1] !== "string")
      throw field.item(rank).expected(isLines ? "two tokens with a space between them" : "two tokens");
    const [left, right] = pair;
    const [leftId, rightId, made] = [ids.get(left), ids.get(right), ids.get(left + withoutBytes(right, skipped))];
    if (leftId === undefined || rightId === undefined || made === undefined)
      throw field.item(rank).invalid("expected tokens of the vocabulary that make another one");
    triples.set([leftId, rightId, made], 3 * rank);
    ranks.set(leftId, rightId, rank);
  }
  return new Merges(triples, ranks);
}

/** Removes the first `count` UTF-8 bytes of a text; a character that is cut becomes U+FFFD. */
function withoutBytes(text: string, count: number): string {
  return count === 0
    ? text
    : new TextDecoder("utf-8", { ignoreBOM: true }).decode(new TextEncoder().encode(text).subarray(count));
}

/** Length of the longest text in UTF-16 units. */
export function longestOf(texts: Iterable<string>): number {
  let longest = 1;
  for (const { length } of texts) longest = Math.max(longest, length);
  return longest;
}
