/** Slices, strips and splits text as str's methods do, by code point, line, word and separator. */
import { charge, chargeText, checkLength } from "./limits.ts";
import { findAll, findLastText } from "./search-text.ts";
import { isSpace, LINE_BREAK } from "./unicode.ts";
import { hasSurrogates } from "./values.ts";

/** Code points `start` to `end`, both within the text. */
export function sliceText(text: string, start: number, end: number): string {
  if (end <= start) return "";
  chargeText(text.length);
  return hasSurrogates(text) ? Array.from(text).slice(start, end).join("") : text.slice(start, end);
}

/** The UTF-16 index of the code point with this index. */
export function unitIndex(text: string, index: number): number {
  if (!hasSurrogates(text)) return index;
  let units = 0;
  let points = 0;
  for (const character of text) {
    if (points++ === index) break;
    units += character.length;
  }
  return units;
}

/** Strips `characters` (default: white space) at the start, end or both. */
export function strip(text: string, sides: "left" | "right" | "both", characters?: string): string {
  if (text === "") return text;
  if (characters === undefined) {
    let [start, end] = [0, text.length];
    if (sides !== "right") while (start < end && isSpace(text[start]!)) start++;
    if (sides !== "left") while (end > start && isSpace(text[end - 1]!)) end--;
    chargeText(text.length - (end - start));
    return text.slice(start, end);
  }
  chargeText(text.length + characters.length);
  const set = new Set(characters);
  const points: ArrayLike<string> = hasSurrogates(text) ? Array.from(text) : text;
  let [start, end] = [0, points.length];
  if (sides !== "right") while (start < end && set.has(points[start]!)) start++;
  if (sides !== "left") while (end > start && set.has(points[end - 1]!)) end--;
  return typeof points === "string" ? points.slice(start, end) : (points as string[]).slice(start, end).join("");
}

export function splitLines(text: string, keepEnds = false): string[] {
  chargeText(text.length);
  const lines: string[] = [];
  let start = 0;
  for (const match of text.matchAll(LINE_BREAK)) {
    const end = match.index + match[0].length;
    lines.push(text.slice(start, keepEnds ? end : match.index));
    start = end;
  }
  if (start < text.length) lines.push(text.slice(start));
  return lines;
}

/** Splits at white space, from the left, at most `limit` times. */
export function splitWords(text: string, limit: number): string[] {
  chargeText(text.length);
  const words: string[] = [];
  let at = 0;
  for (;;) {
    while (at < text.length && isSpace(text[at]!)) at++;
    if (at >= text.length) return words;
    if (words.length >= limit) {
      words.push(text.slice(at));
      return words;
    }
    const start = at;
    while (at < text.length && !isSpace(text[at]!)) at++;
    words.push(text.slice(start, at));
  }
}

/** Splits at white space, from the right, at most `limit` times. */
export function splitWordsRight(text: string, limit: number): string[] {
  chargeText(text.length);
  const words: string[] = [];
  let at = text.length;
  for (;;) {
    while (at > 0 && isSpace(text[at - 1]!)) at--;
    if (at === 0) return words.reverse();
    if (words.length >= limit) {
      words.push(text.slice(0, at));
      return words.reverse();
    }
    const end = at;
    while (at > 0 && !isSpace(text[at - 1]!)) at--;
    words.push(text.slice(at, end));
  }
}

/** Splits at `separator`, which is not empty, from the left, at most `limit` times. */
export function splitText(text: string, separator: string, limit: number): string[] {
  const parts: string[] = [];
  let start = 0;
  for (const at of findAll(text, separator, limit)) {
    parts.push(text.slice(start, at));
    start = at + separator.length;
  }
  parts.push(text.slice(start));
  return parts;
}

/** Splits at `separator`, which is not empty, from the right, at most `limit` times. */
export function splitTextRight(text: string, separator: string, limit: number): string[] {
  const parts: string[] = [];
  let end = text.length;
  while (parts.length < limit) {
    // Charges only for the characters searched, so that many parts do not each cost the whole text's length.
    const at =
      separator.length > 64 ? findLastText(text, separator, end) : text.lastIndexOf(separator, end - separator.length);
    if (at < 0 || end < separator.length) break;
    chargeText(end - at);
    parts.push(text.slice(at + separator.length, end));
    end = at;
  }
  parts.push(text.slice(0, end));
  return parts.reverse();
}

/** Replaces occurrences of `old`, at most `limit`; an empty one occurs around every character. */
export function replaceText(text: string, old: string, replacement: string, limit: number): string {
  const parts: string[] = [];
  let length = 0;
  let start = 0;
  const push = (part: string) => {
    parts.push(part);
    length += part.length;
    charge();
    checkLength(length);
  };
  if (old === "") {
    const characters = Array.from(text);
    for (const [i, character] of characters.entries()) push(i < limit ? replacement + character : character);
    if (characters.length < limit) push(replacement);
    return checked(parts, length);
  }
  for (const at of findAll(text, old, limit)) {
    push(text.slice(start, at) + replacement);
    start = at + old.length;
  }
  push(text.slice(start));
  return checked(parts, length);
}

function checked(parts: readonly string[], length: number): string {
  chargeText(length);
  return parts.join("");
}
