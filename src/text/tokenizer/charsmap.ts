/** SentencePiece's precompiled normalizer: a double-array trie of UTF-8 prefixes, and the texts that replace them. */
import type { Field } from "./field.ts";
import type { Work } from "./work-limit.ts";

/** Longest grapheme in UTF-8 bytes that is replaced as a whole. */
const LONGEST_GRAPHEME = 5;

/** Matches texts that may have graphemes of several characters: with a carriage return, or characters beyond ASCII. */
const MAY_JOIN = /[\r\u0080-\u{10FFFF}]/u;
const isAscii = (unit: number) => unit < 0x80 && unit !== 13;

export class CharacterMap {
  readonly #field: Field;
  readonly #units: Uint32Array;
  readonly #texts: Uint8Array;
  readonly #memory = new Map<string, string | null>();
  readonly #graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });

  /** Reads a base64 field: the trie's size in bytes as a 32-bit number, the trie, and the zero-terminated replacement texts. */
  constructor(field: Field) {
    this.#field = field;
    const bytes = decodeBase64(field);
    const size = bytes.length < 4 ? Number.NaN : new DataView(bytes.buffer).getUint32(0, true);
    if (!(size >= 4 && size % 4 === 0 && 4 + size <= bytes.length)) throw field.invalid("is no map of SentencePiece");
    const view = new DataView(bytes.buffer, 4, size);
    this.#units = Uint32Array.from({ length: size / 4 }, (_, i) => view.getUint32(i * 4, true));
    this.#texts = bytes.subarray(4 + size);
  }

  normalize(text: string, work: Work): string {
    work.add(text.length);
    if (!MAY_JOIN.test(text)) return this.#each(text, work);
    const parts: string[] = [];
    let length = 0;
    for (let start = 0; start < text.length; ) {
      // Between two ASCII characters there is always a grapheme boundary.
      let end = start + 1;
      while (end < text.length && !(isAscii(text.charCodeAt(end - 1)) && isAscii(text.charCodeAt(end)))) end++;
      const part = text.slice(start, end);
      const normalized = end - start === 1 ? this.#grapheme(part) : this.#segments(part, work);
      length += normalized.length;
      work.checkLength(length);
      parts.push(normalized);
      start = end;
    }
    return parts.join("");
  }

  #each(text: string, work: Work): string {
    let result = "";
    for (const character of text) {
      result += this.#grapheme(character);
      work.checkLength(result.length);
    }
    return result;
  }

  #segments(text: string, work: Work): string {
    let result = "";
    for (const { segment } of this.#graphemes.segment(text)) {
      result += this.#grapheme(segment);
      work.add(10);
      work.checkLength(result.length);
    }
    return result;
  }

  #grapheme(grapheme: string): string {
    const whole = this.#replacement(grapheme);
    if (whole !== null) return whole;
    if (grapheme.length === 1) return grapheme;
    let result = "";
    for (const character of grapheme) result += this.#replacement(character) ?? character;
    return result;
  }

  /** Replacement of a short text, by the shortest of its prefixes that the trie has; null when it has none. */
  #replacement(text: string): string | null {
    const known = this.#memory.get(text);
    if (known !== undefined) return known;
    const bytes = new TextEncoder().encode(text);
    const found = bytes.length > LONGEST_GRAPHEME ? null : this.#find(bytes);
    if (this.#memory.size < 1 << 16) this.#memory.set(text, found);
    return found;
  }

  #find(bytes: Uint8Array): string | null {
    let node = offset(this.#unit(0));
    for (const byte of bytes) {
      if (byte === 0) return null;
      node ^= byte;
      const unit = this.#unit(node);
      if ((unit & 0x800000ff) >>> 0 !== byte) return null;
      node ^= offset(unit);
      if ((unit >>> 8) & 1) return this.#textAt(this.#unit(node) & 0x7fffffff);
    }
    return null;
  }

  #unit(node: number): number {
    const unit = this.#units[node];
    if (unit === undefined) throw this.#field.invalid("is no map of SentencePiece: an entry lies beyond its end");
    return unit;
  }

  #textAt(start: number): string {
    if (start > this.#texts.length) throw this.#field.invalid("is no map of SentencePiece: a text lies beyond its end");
    const end = this.#texts.indexOf(0, start);
    const bytes = this.#texts.subarray(start, end < 0 ? undefined : end);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      throw this.#field.invalid("is no map of SentencePiece: a text is not UTF-8");
    }
  }
}

function offset(unit: number): number {
  return (unit >>> 10) << ((unit & 512) >>> 6);
}

function decodeBase64(field: Field): Uint8Array {
  try {
    return Uint8Array.from(atob(field.text()), (character) => character.charCodeAt(0));
  } catch (error) {
    if (error instanceof DOMException) throw field.expected("base64");
    throw error;
  }
}
