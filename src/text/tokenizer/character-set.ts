/** Sets of code points with fast lookup: the predicate is evaluated once for each code point, in pages of 256. */

import {
  beyondUnicode16,
  notCombining,
  notNonspacing,
  notPunctuation,
  onceCombining,
  onceNonspacing,
  oncePunctuation,
} from "./unicode-versions.ts";

export type Predicate = (codePoint: number) => boolean;

const UNKNOWN = 0;
const ABSENT = 1;
const PRESENT = 2;

/** A code point that no Unicode version assigns. */
const UNASSIGNED = 0xfffe;

export class CharacterSet {
  readonly #predicate: Predicate;
  readonly #pages: (Uint8Array | undefined)[] = new Array(256).fill(undefined);

  constructor(predicate: Predicate) {
    this.#predicate = predicate;
  }

  has(codePoint: number): boolean {
    const page = this.#pages[codePoint >> 8];
    const known = page === undefined ? UNKNOWN : page[codePoint & 255]!;
    return known === UNKNOWN ? this.#ask(codePoint) : known === PRESENT;
  }

  #ask(codePoint: number): boolean {
    this.#pages[codePoint >> 8] ??= new Uint8Array(256);
    const isPresent = this.#predicate(codePoint);
    this.#pages[codePoint >> 8]![codePoint & 255] = isPresent ? PRESENT : ABSENT;
    return isPresent;
  }
}

/** Predicate of a class in a JavaScript pattern with the flag u, such as `\p{L}` or `a-z`. */
export function classOf(source: string): Predicate {
  const pattern = new RegExp(`^[${source}]$`, "u");
  return (codePoint) => pattern.test(String.fromCodePoint(codePoint));
}

export const not = (predicate: Predicate): Predicate => {
  return (codePoint) => !predicate(codePoint);
};
export const anyOf = (predicates: readonly Predicate[]): Predicate => {
  return (codePoint) => predicates.some((predicate) => predicate(codePoint));
};
export const allOf = (predicates: readonly Predicate[]): Predicate => {
  return (codePoint) => predicates.every((predicate) => predicate(codePoint));
};

/** Predicate of a list of ranges in hexadecimal, such as "61d 2e43-2e4f". */
export function codePoints(ranges: string): Predicate {
  let ends: readonly (readonly number[])[] | undefined;
  return (codePoint) => {
    ends ??= ranges.split(" ").map((range) => range.split("-").map((end) => Number.parseInt(end, 16)));
    return ends.some(([from = 0, to = from]) => codePoint >= from && codePoint <= to);
  };
}

/**
 * A class adjusted to the library's older Unicode tables: without the characters that they lack, with those that only they
 * have.
 */
const older = (source: string, without: string, once: string): CharacterSet => {
  return new CharacterSet(anyOf([allOf([classOf(source), not(codePoints(without))]), codePoints(once)]));
};

/** A class as in Unicode 16, in which newer characters are unassigned. */
const newer = codePoints(beyondUnicode16);
export function unicode16(source: string): Predicate {
  const predicate = classOf(source);
  return (codePoint) => predicate(newer(codePoint) ? UNASSIGNED : codePoint);
}

/** Unicode's White_Space, as Rust's `char::is_whitespace`. */
export const whiteSpace = new CharacterSet(classOf("\\p{White_Space}"));
/** Unicode's numeric characters, as Rust's `char::is_numeric`. */
export const numeric = new CharacterSet(classOf("\\p{N}"));
/** Punctuation for tokenizers: Unicode's, and ASCII's symbols. */
export const punctuation = older("\\p{P}!-\\/:-@\\[-`{-~", notPunctuation, oncePunctuation);
/** The `\w` of Rust's regex crate. */
export const wordCharacter = new CharacterSet(unicode16("\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200C\\u200D"));
/** Accents for BertNormalizer. */
export const nonspacingMark = older("\\p{Mn}", notNonspacing, onceNonspacing);
/** Accents for StripAccents. */
export const combiningMark = older("\\p{M}", notCombining, onceCombining);
/** Control characters that BertNormalizer drops; format characters are those of Unicode 7. */
export const control = new CharacterSet(
  allOf([classOf("\\p{Cc}\\p{Cf}\\p{Co}"), not(codePoints("890-891 8e2 110cd 13430-1343f"))]),
);
