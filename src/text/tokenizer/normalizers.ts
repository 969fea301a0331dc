/** The normalizers of tokenizer.json. Each changes a span of text. */

import { toByteCharacters } from "./byte-alphabet.ts";
import { CharacterSet, codePoints, combiningMark, control, nonspacingMark, whiteSpace } from "./character-set.ts";
import { CharacterMap } from "./charsmap.ts";
import type { Field } from "./field.ts";
import { readPattern } from "./pattern.ts";
import { changed, cut, prepended, replaced, type Span } from "./span.ts";
import type { Work } from "./work-limit.ts";

export type Normalizer = (span: Span, work: Work) => Span;

const ideographs = [
  ...[0x4e00, 0x9fff, 0x3400, 0x4dbf, 0x20000, 0x2a6df, 0x2a700, 0x2b73f],
  ...[0x2b740, 0x2b81f, 0x2b920, 0x2ceaf, 0xf900, 0xfaff, 0x2f800, 0x2fa1f],
];
const ideograph = new CharacterSet((code) =>
  ideographs.some((from, i) => i % 2 === 0 && code >= from && code <= ideographs[i + 1]!),
);

/** Control characters that Nmt drops, and characters that it replaces by a space. */
const nmtDropped = new CharacterSet(codePoints("1-8 b e-1f 7f 8f 9f"));
const nmtSpaces = /[\t\n\f\r\u1680\u200B-\u200F\u2028\u2029\u2581\uFEFF\uFFFD]/g;

const readers: Record<string, (field: Field) => Normalizer> = {
  NFC: () => form("NFC"),
  NFD: () => form("NFD"),
  NFKC: () => form("NFKC"),
  NFKD: () => form("NFKD"),
  Lowercase: () => characters(lowercase),
  StripAccents: () => characters((text) => without(text, combiningMark)),
  Nmt: () => characters((text) => without(text, nmtDropped).replace(nmtSpaces, " ")),
  ByteLevel: () => characters(toByteCharacters),
  BertNormalizer: readBert,
  Strip: readStrip,
  Prepend(field) {
    const prefix = field.get("prepend").text();
    return (span) => prepended(span, prefix);
  },
  Replace: readReplace,
  Precompiled(field) {
    const map = new CharacterMap(field.get("precompiled_charsmap"));
    return (span, work) => changed(span, (text) => map.normalize(text, work));
  },
  Sequence(field) {
    const parts = field.get("normalizers").items().map(readNormalizer);
    return (span, work) => parts.reduce((result, part) => part(result, work), span);
  },
};

/** Reads a normalizer. InvalidFileError for an unknown type. */
export function readNormalizer(field: Field): Normalizer {
  const type = field.get("type").text();
  if (!Object.hasOwn(readers, type)) throw field.get("type").invalid(`"${type}" is no normalizer`);
  const normalize = readers[type]!(field);
  return (span, work) => {
    work.add(span.text.length + 1);
    const result = normalize(span, work);
    work.checkLength(result.text.length);
    return result;
  };
}

function characters(change: (text: string) => string): Normalizer {
  return (span) => changed(span, change);
}

function form(name: "NFC" | "NFD" | "NFKC" | "NFKD"): Normalizer {
  return characters((text) => text.normalize(name));
}

/** Lowercases each character on its own: JavaScript's special form of a sigma at the end of a word is avoided. */
function lowercase(text: string): string {
  return text.includes("\u03A3") ? text.replaceAll("\u03A3", "\u03C3").toLowerCase() : text.toLowerCase();
}

function without(text: string, set: CharacterSet): string {
  let result = "";
  for (const character of text) if (!set.has(character.codePointAt(0)!)) result += character;
  return result;
}

function readBert(field: Field): Normalizer {
  const cleans = field.get("clean_text").boolean();
  const separates = field.get("handle_chinese_chars").boolean();
  const lowers = field.get("lowercase").boolean();
  const strips = field.optional("strip_accents")?.boolean() ?? lowers;
  return characters((text) => {
    let result = cleans ? clean(text) : text;
    if (separates)
      result = mapCharacters(result, (character, code) => (ideograph.has(code) ? ` ${character} ` : character));
    if (strips) result = without(result.normalize("NFD"), nonspacingMark);
    return lowers ? lowercase(result) : result;
  });
}

/**
 * BertNormalizer's clean-up: drops control characters and replaces white space. Of the control characters that are white space,
 * only tab, line feed and carriage return count as white space in Rust's library.
 */
function clean(text: string): string {
  return mapCharacters(text, (character, code) => {
    if (code === 9 || code === 10 || code === 13) return " ";
    if (code === 0 || code === 0xfffd || control.has(code)) return "";
    return whiteSpace.has(code) ? " " : character;
  });
}

function mapCharacters(text: string, change: (character: string, code: number) => string): string {
  let result = "";
  for (const character of text) result += change(character, character.codePointAt(0)!);
  return result;
}

function readStrip(field: Field): Normalizer {
  const left = field.get("strip_left").boolean();
  const right = field.get("strip_right").boolean();
  const isSpace = (text: string, at: number) => whiteSpace.has(text.charCodeAt(at));
  return (span) => {
    let start = 0;
    let end = span.text.length;
    if (left) while (start < end && isSpace(span.text, start)) start++;
    if (right) while (end > start && isSpace(span.text, end - 1)) end--;
    return { ...cut(span, start, end), isFirst: span.isFirst };
  };
}

function readReplace(field: Field): Normalizer {
  const find = readPattern(field.get("pattern"));
  const content = field.get("content").text();
  return (span, work) => {
    if (span.text === "") return span;
    const matches: number[] = [];
    find(span.text, work, (start, end) => {
      matches.push(start, end);
    });
    work.checkLength(span.text.length + (matches.length / 2) * content.length);
    return replaced(span, matches, content);
  };
}
