/**
 * A byte pair tokenizer as tables that are used where they lie: building them from tokenizer.json takes longer than all else at
 * the start of a small model. They are little-endian numbers of 32 bits: sizes, offsets of the tokens in their text, a hash table
 * of tokens, merges, a hash table of merges. Behind them are the rest of the file, as JSON, and the text of all tokens.
 */
import { InvalidFileError } from "../../errors.ts";
import { parsePythonJson, pythonJson } from "../../json-text.ts";
import { Merges, readMerges } from "./bpe.ts";
import { Field } from "./field.ts";
import { hash } from "./pair-table.ts";
import { ID_LIMIT, readVocabulary, type TokenIds, Vocabulary } from "./vocabulary.ts";

/** Another layout, or another hash, has another number. */
const VERSION = 1;
const SIZES = 6;

/** Most slots that are searched for a key, since files of strangers may have them all full. */
const PROBES_MAX = 256;

/** Tables of a tokenizer.json, which is parsed already; null for a tokenizer that tables cannot describe. */
export function encodeTokenizer(file: { readonly model?: unknown }): Uint8Array | null {
  const field = new Field("tokenizer.json", "", file).get("model");
  if ((field.optional("type")?.value ?? "BPE") !== "BPE" || !field.optional("merges")) return null;
  const vocabulary = readVocabulary(field.get("vocab"));
  const { triples, ranks } = readMerges(field, vocabulary);
  const tokens = Array.from({ length: vocabulary.limit }, (_, id) => vocabulary.token(id) ?? "");
  const text = tokens.join("");
  const isUnlike = tokens.some((token, id) => token !== "" && vocabulary.ids.get(token) !== id);
  if (isUnlike || tokens.filter((token) => token !== "").length !== vocabulary.size || /\p{Surrogate}/u.test(text))
    return null;
  const offsets = new Int32Array(tokens.length + 1);
  for (const [id, { length }] of tokens.entries()) offsets[id + 1] = offsets[id]! + length;
  const count = triples.length / 3;
  const tokenSlots = slotsOf(tokens.length, (id) => (tokens[id] === "" ? null : hashOf(tokens[id]!)));
  const mergeSlots = slotsOf(count, (rank) => {
    const [left, right] = triples.subarray(3 * rank, 3 * rank + 2) as unknown as [number, number];
    return ranks.get(left, right) === rank ? hash(left, right) : null;
  });
  if (!tokenSlots || !mergeSlots) return null;
  const { model, ...rest } = file;
  const { vocab: _vocab, merges: _merges, ...kept } = model as Record<string, unknown>;
  const [restBytes, textBytes] = [pythonJson({ ...rest, model: kept }), text].map((part) =>
    new TextEncoder().encode(part),
  );
  const sizes = [VERSION, vocabulary.size, tokens.length, count, restBytes!.length, textBytes!.length];
  const numbers = [Int32Array.from(sizes), offsets, tokenSlots, triples, mergeSlots];
  const parts = [...numbers.map(({ buffer }) => new Uint8Array(buffer)), restBytes!, textBytes!];
  const tables = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    tables.set(part, at);
    at += part.length;
  }
  return tables;
}

/**
 * The file that tables were made of, as `Tokenizer` takes it, with tokens and merges that are read already; null for tables of
 * another version. The tables stay in use. InvalidFileError, naming `name`, for bytes that are none.
 */
export function decodeTokenizer(tables: Uint8Array, name: string): unknown {
  const bytes = tables.byteOffset % 4 === 0 ? tables : tables.slice();
  const all = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
  const [version, size = 0, limit = 0, count = 0, restBytes = 0, textBytes = 0] = all;
  if (version !== VERSION) return null;
  const lengths = [limit + 1, slotCount(limit), 3 * count, slotCount(count)];
  const expected = 4 * lengths.reduce((sum, length) => sum + length, SIZES) + restBytes + textBytes;
  const isSize = (value: number) => value >= 0 && value <= ID_LIMIT;
  if (![size, limit, count].every(isSize) || Math.min(restBytes, textBytes) < 0 || expected !== bytes.length)
    throw new InvalidFileError(name, `expected ${expected} bytes but found ${bytes.length}`);
  let at = SIZES;
  const [offsets, tokenSlots, triples, mergeSlots] = lengths.map((length) => {
    at += length;
    return all.subarray(at - length, at);
  }) as [Int32Array, Int32Array, Int32Array, Int32Array];
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const rest = parsed(decoder.decode(bytes.subarray(4 * at, 4 * at + restBytes)), name);
  const ids = new StoredIds(decoder.decode(bytes.subarray(4 * at + restBytes)), offsets, tokenSlots);
  const vocab = new Vocabulary(ids, (id) => ids.token(id), limit, size);
  const merges = new Merges(triples, new StoredRanks(triples, mergeSlots, limit, name));
  return { ...rest, model: { ...rest?.model, vocab, merges } };
}

function parsed(text: string, name: string): { readonly model?: object } | null {
  try {
    return parsePythonJson(text) as { readonly model?: object } | null;
  } catch (cause) {
    throw new InvalidFileError(name, `is not valid JSON: ${(cause as Error).message}`, { cause });
  }
}

/** Slots of a hash table of so many keys. */
function slotCount(keys: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(16, 2 * keys)));
}

/** A hash table of the keys 0 to `count` - 1: in a slot, a key + 1, or 0. Null where keys are too far from their slots. */
function slotsOf(count: number, hashOf: (key: number) => number | null): Int32Array | null {
  const slots = new Int32Array(slotCount(count));
  const mask = slots.length - 1;
  for (let key = 0; key < count; key++) {
    const first = hashOf(key);
    if (first === null) continue;
    let probe = 0;
    while (slots[(first + probe) & mask] !== 0) probe++;
    if (probe >= PROBES_MAX) return null;
    slots[(first + probe) & mask] = key + 1;
  }
  return slots;
}

/** FNV-1a over UTF-16 units, its high bits mixed into the low ones. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash ^ (hash >>> 15);
}

/** Ids by token. */
class StoredIds implements TokenIds {
  readonly #text: string;
  readonly #offsets: Int32Array;
  readonly #slots: Int32Array;

  constructor(text: string, offsets: Int32Array, slots: Int32Array) {
    this.#text = text;
    this.#offsets = offsets;
    this.#slots = slots;
  }

  get(token: string): number | undefined {
    const first = hashOf(token);
    const mask = this.#slots.length - 1;
    for (let probe = 0; probe < PROBES_MAX; probe++) {
      const id = this.#slots[(first + probe) & mask]! - 1;
      if (id < 0) break;
      const start = this.#offsets[id]!;
      if (this.#offsets[id + 1]! - start === token.length && this.#text.startsWith(token, start)) return id;
    }
    return undefined;
  }

  token(id: number): string | undefined {
    return this.#text.slice(this.#offsets[id], this.#offsets[id + 1]) || undefined;
  }

  *keys(): MapIterator<string> {
    for (let id = 0; id + 1 < this.#offsets.length; id++) {
      const token = this.token(id);
      if (token !== undefined) yield token;
    }
  }
}

/** Ranks of merges by the ids of their sides. */
class StoredRanks {
  readonly #triples: Int32Array;
  readonly #slots: Int32Array;
  readonly #limit: number;
  readonly #name: string;

  constructor(triples: Int32Array, slots: Int32Array, limit: number, name: string) {
    this.#triples = triples;
    this.#slots = slots;
    this.#limit = limit;
    this.#name = name;
  }

  /** InvalidFileError for a merge that makes no token. */
  get(left: number, right: number): number {
    const first = hash(left, right);
    const mask = this.#slots.length - 1;
    for (let probe = 0; probe < PROBES_MAX; probe++) {
      const rank = this.#slots[(first + probe) & mask]! - 1;
      if (rank < 0) break;
      if (this.#triples[3 * rank] !== left || this.#triples[3 * rank + 1] !== right) continue;
      const made = this.#triples[3 * rank + 2]!;
      if (made >= 0 && made < this.#limit) return rank;
      throw new InvalidFileError(this.#name, `merge ${rank}: expected an id below ${this.#limit} but found ${made}`);
    }
    return -1;
  }
}
