/** Searches text in linear time. JavaScript's own search may take time proportional to the product of both lengths. */
import { chargeText } from "./limits.ts";

/** Longest pattern left to the built-in search, which compares at most this many characters at each position. */
const BUILT_IN_PATTERN = 64;

/** Index of the first occurrence of `pattern`; -1 when there is none. */
export function findText(text: string, pattern: string): number {
  if (text.length < pattern.length) return -1;
  chargeText(text.length);
  if (pattern.length <= BUILT_IN_PATTERN || text.length < 1024) return text.indexOf(pattern);
  chargeText(pattern.length);
  return knuthMorrisPratt(text, pattern).next().value ?? -1;
}

/** Index of the last occurrence of `pattern` that ends at or before `end`; -1 when there is none. */
export function findLastText(text: string, pattern: string, end = text.length): number {
  if (end < pattern.length) return -1;
  chargeText(end);
  if (pattern.length <= BUILT_IN_PATTERN || end < 1024) return text.lastIndexOf(pattern, end - pattern.length);
  let last = -1;
  for (const at of knuthMorrisPratt(text.slice(0, end), pattern)) last = at;
  return last;
}

/** Indices of occurrences of `pattern`, which is not empty, without overlaps, up to `limit` of them. */
export function* findAll(text: string, pattern: string, limit = Number.POSITIVE_INFINITY): Generator<number> {
  chargeText(text.length);
  const isShort = pattern.length <= BUILT_IN_PATTERN;
  let count = 0;
  let end = 0;
  const matches = isShort ? builtIn(text, pattern) : knuthMorrisPratt(text, pattern);
  for (const at of matches) {
    if (at < end) continue;
    if (count++ >= limit) return;
    end = at + pattern.length;
    yield at;
  }
}

function* builtIn(text: string, pattern: string): Generator<number, undefined> {
  for (let at = text.indexOf(pattern); at !== -1; at = text.indexOf(pattern, at + pattern.length)) yield at;
}

function* knuthMorrisPratt(text: string, pattern: string): Generator<number, undefined> {
  const borders = new Int32Array(pattern.length + 1);
  borders[0] = -1;
  for (let i = 0, border = -1; i < pattern.length; borders[++i] = ++border)
    while (border >= 0 && pattern.charCodeAt(i) !== pattern.charCodeAt(border)) border = borders[border]!;
  for (let i = 0, matched = 0; i < text.length; i++) {
    while (matched >= 0 && text.charCodeAt(i) !== pattern.charCodeAt(matched)) matched = borders[matched]!;
    if (++matched < pattern.length) continue;
    yield i + 1 - pattern.length;
    matched = borders[matched]!;
  }
}
