/** The pre-tokenizers of tokenizer.json. Each cuts spans of text into smaller ones. */
import { toByteCharacters } from "./byte-alphabet.ts";
import { type CharacterSet, numeric, punctuation, whiteSpace, wordCharacter } from "./character-set.ts";
import type { Field } from "./field.ts";
import { type Matcher, readPattern } from "./pattern.ts";
import { Regex } from "./regex.ts";
import { scriptOf } from "./scripts.ts";
import { cut, prepended, replaced, type Span } from "./span.ts";
import type { Work } from "./work-limit.ts";

/** Appends the parts of a span to a list; empty parts are dropped later. */
type Cutter = (span: Span, work: Work, parts: Span[]) => void;
export type PreTokenizer = (spans: readonly Span[], work: Work) => Span[];

const behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"] as const;
type Behavior = (typeof behaviors)[number];

/** GPT-2's pattern of words. */
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const readers: Record<string, (field: Field) => Cutter[]> = {
  BertPreTokenizer: () => [splitter(inSet(whiteSpace), "Removed"), splitter(inSet(punctuation), "Isolated")],
  ByteLevel: readByteLevel,
  CharDelimiterSplit(field) {
    const delimiter = field.get("delimiter").character().codePointAt(0)!;
    return [splitter(inSet({ has: (code) => code === delimiter }), "Removed")];
  },
  Digits(field) {
    return [splitter(inSet(numeric), field.get("individual_digits").boolean() ? "Isolated" : "Contiguous")];
  },
  FixedLength: readFixedLength,
  Metaspace: readMetaspace,
  Punctuation(field) {
    return [splitter(inSet(punctuation), field.optional("behavior")?.oneOf(behaviors) ?? "Isolated")];
  },
  Sequence(field) {
    return field.get("pretokenizers").items().flatMap(readCutters);
  },
  Split: readSplit,
  UnicodeScripts: () => [cutAtScripts],
  Whitespace: () => [cutWords],
  WhitespaceSplit: () => [splitter(inSet(whiteSpace), "Removed")],
};

/** Reads a pre-tokenizer. InvalidFileError for an unknown type. */
export function readPreTokenizer(field: Field): PreTokenizer {
  const cutters = readCutters(field);
  return (spans, work) => {
    let parts = [...spans];
    for (const cutter of cutters) {
      const next: Span[] = [];
      for (const span of parts) {
        work.add(span.text.length + 1);
        cutter(span, work, next);
      }
      parts = next.filter(({ text }) => text !== "");
    }
    return parts;
  };
}

function readCutters(field: Field): Cutter[] {
  const type = field.get("type").text();
  if (Object.hasOwn(readers, type)) return readers[type]!(field);
  throw field.get("type").invalid(`"${type}" is no pre-tokenizer`);
}

function readByteLevel(field: Field): Cutter[] {
  const addsSpace = field.get("add_prefix_space").boolean();
  const usesRegex = field.optional("use_regex")?.boolean() ?? true;
  const regex = new Regex(GPT2);
  const split = splitter((text, work, found) => regex.forEachMatch(text, work, found), "Isolated");
  return [
    (span, work, parts) => {
      const whole = addsSpace && !span.text.startsWith(" ") ? prepended(span, " ") : span;
      if (usesRegex) split(whole, work, parts);
      else parts.push(whole);
    },
    (span, _, parts) => {
      const fromStart = span.fromStart && toByteCharacters(span.text.slice(0, span.fromStart)).length;
      parts.push({ ...span, text: toByteCharacters(span.text), fromStart });
    },
  ];
}

function readFixedLength(field: Field): Cutter[] {
  const length = field.optional("length")?.count(1) ?? 5;
  return [
    (span, _, parts) => {
      let start = 0;
      let count = 0;
      for (let at = 0; at < span.text.length; ) {
        at += span.text.codePointAt(at)! > 0xffff ? 2 : 1;
        if (++count < length && at < span.text.length) continue;
        parts.push(cut(span, start, at));
        start = at;
        count = 0;
      }
    },
  ];
}

function readMetaspace(field: Field): Cutter[] {
  const { replacement, scheme } = readMetaspaceFields(field);
  const splits = field.optional("split")?.boolean() ?? true;
  const split = splitter(inSet({ has: (code) => code === replacement.codePointAt(0) }), "MergedWithNext");
  return [
    (span, work, parts) => {
      const spaces: number[] = [];
      for (let at = span.text.indexOf(" "); at >= 0; at = span.text.indexOf(" ", at + 1)) spaces.push(at, at + 1);
      let marked = replaced(span, spaces, replacement);
      const wanted = scheme === "always" || (scheme === "first" && span.isFirst);
      if (wanted && !marked.text.startsWith(replacement)) marked = prepended(marked, replacement);
      if (splits) split(marked, work, parts);
      else parts.push(marked);
    },
  ];
}

/** Reads the fields that the pre-tokenizer and the decoder Metaspace share. */
export function readMetaspaceFields(field: Field): { replacement: string; scheme: "first" | "never" | "always" } {
  const replacement = field.get("replacement").character();
  const scheme = field.optional("prepend_scheme")?.oneOf(["first", "never", "always"]) ?? null;
  if (field.optional("add_prefix_space")?.boolean() !== false) return { replacement, scheme: scheme ?? "always" };
  // Older files have add_prefix_space; where both fields exist, Rust's library accepts only consistent ones.
  if (scheme !== "never") throw field.invalid('add_prefix_space is false, but prepend_scheme is not "never"');
  return { replacement, scheme };
}

function readSplit(field: Field): Cutter[] {
  const find = readPattern(field.get("pattern"));
  return [splitter(find, field.get("behavior").oneOf(behaviors), field.get("invert").boolean())];
}

function inSet(set: Pick<CharacterSet, "has">): Matcher {
  return (text, _, found) => {
    for (let at = 0; at < text.length; ) {
      const codePoint = text.codePointAt(at)!;
      const next = at + (codePoint > 0xffff ? 2 : 1);
      if (set.has(codePoint)) found(at, next);
      at = next;
    }
  };
}

/** Splits at matches of a pattern; with `invert`, the text between matches counts as the matches. */
function splitter(find: Matcher, behavior: Behavior, invert = false): Cutter {
  return (span, work, parts) => {
    /** Pieces that cover the text: alternately where one begins, and 1 if it is a match. */
    const pieces: number[] = [];
    let done = 0;
    find(span.text, work, (start, end) => {
      if (done !== start) pieces.push(done, Number(invert));
      pieces.push(start, Number(!invert));
      done = end;
    });
    if (done !== span.text.length) pieces.push(done, Number(invert));
    pieces.push(span.text.length, 0);
    work.add(pieces.length);
    join(pieces, behavior, (start, end) => parts.push(cut(span, start, end)));
  };
}

/** Joins pieces to parts as the behavior says. */
function join(pieces: readonly number[], behavior: Behavior, emit: (start: number, end: number) => void): void {
  const count = pieces.length / 2 - 1;
  const start = (i: number) => pieces[i * 2]!;
  const isMatch = (i: number) => pieces[i * 2 + 1] === 1;
  /** Whether a piece belongs to the same part as the piece before it. */
  const joins = (i: number): boolean => {
    if (behavior === "Contiguous") return isMatch(i) === isMatch(i - 1);
    if (behavior === "MergedWithPrevious") return isMatch(i) && !isMatch(i - 1);
    return behavior === "MergedWithNext" && isMatch(i - 1) && !isMatch(i);
  };
  for (let i = 0; i < count; ) {
    let next = i + 1;
    while (next < count && joins(next)) next++;
    if (behavior !== "Removed" || !isMatch(i)) emit(start(i), start(next));
    i = next;
  }
}

/** Splits into words of word characters and words of other characters, without white space (`\w+|[^\w\s]+`). */
const cutWords: Cutter = (span, _, parts) => {
  const { text } = span;
  const kindOf = (codePoint: number) => (wordCharacter.has(codePoint) ? 1 : whiteSpace.has(codePoint) ? 0 : 2);
  let start = 0;
  let kind = 0;
  for (let at = 0; at < text.length; ) {
    const codePoint = text.codePointAt(at)!;
    const found = kindOf(codePoint);
    if (found !== kind) {
      if (kind !== 0) parts.push(cut(span, start, at));
      start = at;
      kind = found;
    }
    at += codePoint > 0xffff ? 2 : 1;
  }
  if (kind !== 0) parts.push(cut(span, start, text.length));
};

/** Splits where the script changes; characters without a script, such as spaces, stay with those before them. */
const cutAtScripts: Cutter = (span, _, parts) => {
  let last: string | null = null;
  let start = -1;
  for (let at = 0; at < span.text.length; ) {
    const codePoint = span.text.codePointAt(at)!;
    const script = scriptOf(codePoint);
    if (script !== null && script !== last) {
      if (start >= 0) parts.push(cut(span, start, at));
      start = at;
    }
    if (script !== null) last = script;
    at += codePoint > 0xffff ? 2 : 1;
  }
  if (start >= 0) parts.push(cut(span, start, span.text.length));
};
