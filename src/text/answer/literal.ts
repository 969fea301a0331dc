/** Reads values as models write them (JSON, Python literals, Gemma's form, with small models' slips) and streams JSON. */
import type { AnswerCursor, Reading } from "./cursor.ts";
import { pythonEscape } from "./python-escapes.ts";
import { isBareText, type LiteralKind, scalarText } from "./scalars.ts";
import type { TextRule } from "./schema-types.ts";

/** How a value ended: completely, cut off by the end of the text, or at a character that no value has. */
export type Outcome = "whole" | "cut" | "broken";

/** How values are written, and what ends them. */
export interface LiteralStyle {
  readonly kind: LiteralKind;
  /** Delimiter of strings, beside the quotes that all styles have. */
  readonly quote?: string | undefined;
  /** Markers that end the call around the value: brackets still open there are closed. */
  readonly ends?: readonly string[] | undefined;
  /** Closing brackets of what encloses the value. */
  readonly outer?: readonly string[] | undefined;
  /** Whether the value of a key of the outermost object may be an unquoted string. */
  readonly textRule?: ((key: string) => TextRule) | undefined;
}

const QUOTES: Readonly<Record<string, string>> = { '"': '"', "'": "'", "“": "”" };
const CLOSERS: Readonly<Record<string, string>> = { "{": "}", "[": "]", "(": ")" };
const DEPTH_MAX = 200;
/** Longest key that is searched for after a comma. */
const KEY_MAX = 256;

/** A text escaped for a JSON string, without quotes. */
export function escaped(text: string): string {
  // Surrogates may come one at a time, and JSON.stringify would escape a lone one.
  return text.replace(/["\\\p{Cc}]/gu, (character) => JSON.stringify(character).slice(1, -1));
}

/**
 * Reads values and emits them as JSON piece by piece: JSON as it is written, all else formatted as Python's json.dumps does.
 * What was emitted is a prefix of the final JSON, whatever text follows.
 */
export class LiteralReader {
  readonly #cursor: AnswerCursor;
  readonly #style: LiteralStyle;
  readonly #ends: readonly string[];
  /** Closing brackets that are due, the outermost first. */
  readonly #open: string[];
  readonly #outer: number;
  #take: (text: string) => void;

  constructor(cursor: AnswerCursor, style: LiteralStyle, take: (text: string) => void) {
    this.#cursor = cursor;
    this.#style = style;
    this.#ends = style.ends ?? [];
    this.#open = [...(style.outer ?? [])];
    this.#outer = this.#open.length;
    this.#take = take;
  }

  get #isJson(): boolean {
    return this.#style.kind === "json";
  }

  /** Reads white space and a value. */
  *value(textRule: TextRule = "unknown"): Reading<Outcome> {
    const cursor = this.#cursor;
    const next = yield* cursor.skipSpace();
    if (next === "") return "cut";
    if (this.#open.length > DEPTH_MAX) return "broken";
    const quote = yield* this.#quoteAt(0);
    if (quote === null) return "cut";
    if (quote) return yield* this.#string(quote, "value");
    if (next === "{") return yield* this.#object();
    if (next === "[") return yield* this.#items("]");
    if (next === "(" && this.#style.kind === "python") return yield* this.#tuple();
    return yield* this.#word(textRule);
  }

  /** Reads a call's arguments after its opening parenthesis as an object; keys of positional ones come from `names`. */
  *call(names: readonly string[]): Reading<Outcome> {
    const cursor = this.#cursor;
    this.#take("{");
    this.#open.push(")");
    for (let count = 0; ; count++) {
      const closed = yield* this.#closed(")", "}");
      if (closed) return closed;
      const word = yield* this.#nameEnd(0);
      if ((yield* cursor.peek(word)) === "") return "cut";
      const key = (yield* this.#keyword(word)) ?? names[count];
      if (key === undefined) return "broken";
      this.#take(`${count === 0 ? "" : ", "}${JSON.stringify(key)}: `);
      const outcome = yield* this.value(this.#style.textRule?.(key));
      if (outcome !== "whole") return outcome;
      if ((yield* cursor.skipSpace()) === ",") cursor.skip(1);
      else return (yield* this.#closed(")", "}")) ?? "broken";
    }
  }

  /** Reads the name and equals sign before a keyword argument; null where there are none. */
  *#keyword(end: number): Reading<string | null> {
    const equals = yield* this.#cursor.spaceEnd(end);
    if (end === 0 || (yield* this.#cursor.peek(equals)) !== "=") return null;
    const name = this.#cursor.rest.slice(0, end);
    this.#cursor.skip(equals + 1);
    return name;
  }

  /** Runs a reading and also returns the text that it emitted. */
  *#noted(reading: () => Reading<Outcome>): Reading<{ readonly outcome: Outcome; readonly text: string }> {
    const take = this.#take;
    let text = "";
    this.#take = (piece) => {
      text += piece;
      take(piece);
    };
    try {
      return { outcome: yield* reading(), text };
    } finally {
      this.#take = take;
    }
  }

  /** Reads a key and what separates it from its value; returns the key's text, or how the reading ended. */
  *key(): Reading<{ readonly key: string } | "cut" | "broken"> {
    const cursor = this.#cursor;
    const quote = yield* this.#quoteAt(0);
    if (quote === null) return "cut";
    let name: string;
    if (quote) {
      const { outcome, text } = yield* this.#noted(() => this.#string(quote, "key"));
      if (outcome !== "whole") return outcome;
      name = text;
    } else {
      const end = yield* this.#nameEnd(0);
      if ((yield* cursor.peek(end)) === "") return "cut";
      if (end === 0) return "broken";
      name = JSON.stringify(cursor.rest.slice(0, end));
      cursor.skip(end);
      this.#take(name);
    }
    const before = yield* this.#space();
    const colon = yield* cursor.peek();
    if (colon !== ":") return colon === "" ? "cut" : "broken";
    cursor.skip(1);
    const behind = yield* this.#space();
    this.#take(this.#isJson ? `${before}:${behind}` : ": ");
    return { key: JSON.parse(name) as string };
  }

  /** Skips white space and returns it. */
  *#space(): Reading<string> {
    const end = yield* this.#cursor.spaceEnd(0);
    const space = this.#cursor.rest.slice(0, end);
    this.#cursor.skip(end);
    return space;
  }

  *#object(): Reading<Outcome> {
    const cursor = this.#cursor;
    const isOutermost = this.#open.length === this.#outer;
    cursor.skip(1);
    this.#take("{");
    this.#open.push("}");
    let separator = yield* this.#space();
    // Models write doubled braces if their templates show such.
    const isDoubled = this.#isJson && (yield* cursor.peek()) === "{";
    if (isDoubled) {
      cursor.skip(1);
      separator = yield* this.#space();
    }
    for (let count = 0; ; count++) {
      const closed = yield* this.#closed("}", "}", count === 0 ? separator : "");
      if (closed === "whole" && isDoubled && (yield* cursor.peek()) === "}") cursor.skip(1);
      if (closed) return closed;
      this.#take(this.#isJson ? separator : count === 0 ? "" : ", ");
      const key = yield* this.key();
      if (typeof key === "string") return key;
      const found = yield* this.value(isOutermost ? this.#style.textRule?.(key.key) : undefined);
      if (found !== "whole") return found;
      const next = yield* this.#separator("}");
      if (next === null) {
        const end = (yield* this.#closed("}", "}")) ?? "broken";
        if (end === "whole" && isDoubled && (yield* cursor.peek()) === "}") cursor.skip(1);
        return end;
      }
      separator = next;
    }
  }

  *#items(close: string): Reading<Outcome> {
    this.#cursor.skip(1);
    this.#take("[");
    this.#open.push(close);
    let separator = yield* this.#space();
    for (let count = 0; ; count++) {
      const closed = yield* this.#closed(close, "]", count === 0 ? separator : "");
      if (closed) return closed;
      this.#take(this.#isJson ? separator : count === 0 ? "" : ", ");
      const outcome = yield* this.value();
      if (outcome !== "whole") return outcome;
      const next = yield* this.#separator(close);
      if (next === null) return (yield* this.#closed(close, "]")) ?? "broken";
      separator = next;
    }
  }

  /** Reads what is between parentheses: a value, or, where there is a comma, a list. */
  *#tuple(): Reading<Outcome> {
    const take = this.#take;
    const items: string[] = [];
    let commas = 0;
    this.#cursor.skip(1);
    this.#open.push(")");
    this.#take = (piece) => {
      if (piece !== "") items[commas] = (items[commas] ?? "") + piece;
    };
    try {
      for (;;) {
        const closed = yield* this.#closed(")", "");
        const found = closed ?? (yield* this.value());
        if (closed === null && found === "whole" && (yield* this.#separator(")")) !== null) commas++;
        else if (found !== "whole") return found;
        else if (closed !== null || (yield* this.#closed(")", "")) === "whole") break;
        else return (yield* this.#cursor.peek()) === "" ? "cut" : "broken";
      }
    } finally {
      this.#take = take;
    }
    this.#take(commas > 0 || items.length === 0 ? `[${items.join(", ")}]` : items[0]!);
    return "whole";
  }

  /** Reads a comma and the white space around it; where there is no comma, skips only white space and returns null. */
  *#separator(close: string): Reading<string | null> {
    const cursor = this.#cursor;
    const before = yield* this.#space();
    if ((yield* cursor.peek()) === ",") {
      cursor.skip(1);
      const space = yield* this.#space();
      return `${before},${space}`;
    }
    if (close === "}" && this.#isJson) {
      const isKey = yield* this.#isQuotedKeyAt(0);
      if (isKey) return `,${before}`;
      if (isKey === null) cursor.skip(cursor.rest.length);
    }
    if (this.#isJson && (yield* cursor.peek()) === close) this.#take(before);
    return null;
  }

  /** Closes a bracket where its value ends: by its own bracket, an enclosing one, or the call's end. Null where it goes on. */
  *#closed(close: string, written: string, before = ""): Reading<Outcome | null> {
    const cursor = this.#cursor;
    const next = yield* cursor.skipSpace();
    if (next === "") return "cut";
    const isOuter = this.#open.slice(0, -1).includes(next);
    if (next !== close && !isOuter) {
      const end = yield* cursor.whichAt(0, this.#ends);
      if (end === null) return "cut";
      if (end === false) return null;
    }
    if (next === close) cursor.skip(1);
    this.#open.pop();
    this.#take((this.#isJson ? before : "") + written);
    return "whole";
  }

  /** The quote that opens a string at an offset; false where none does, null where the text ends. */
  *#quoteAt(offset: number): Reading<Quote | false | null> {
    const cursor = this.#cursor;
    const { quote, kind } = this.#style;
    if (quote !== undefined) {
      const isQuote = yield* cursor.hasAt(offset, quote);
      if (isQuote !== false) return isQuote && { length: quote.length, close: quote, escapes: "none" };
    }
    let at = offset;
    let next = yield* cursor.peek(at);
    let isRaw = false;
    if (kind === "python" && /[rRuU]/.test(next)) {
      isRaw = /r/i.test(next);
      next = yield* cursor.peek(++at);
    }
    const close = Object.hasOwn(QUOTES, next) ? QUOTES[next]! : "";
    if (close === "") return false;
    const triple = close === next ? yield* cursor.hasAt(at, next.repeat(3)) : false;
    if (triple === null && (yield* cursor.peek(at + 1)) === next) return null;
    const escapes = kind !== "python" && next !== "'" ? "json" : isRaw ? "raw" : "python";
    if (triple) return { length: at - offset + 3, close: next.repeat(3), escapes: isRaw ? "raw" : "python" };
    return { length: at - offset + 1, close, escapes };
  }

  *#string(first: Quote, role: "key" | "value"): Reading<Outcome> {
    const cursor = this.#cursor;
    let quote = first;
    /** Whether the string contains its own quote character: its end without a closing quote is uncertain then. */
    let hasQuotes = false;
    cursor.skip(quote.length);
    this.#take('"');
    for (;;) {
      const rest = yield* this.#plain(quote);
      if (rest === "") return "cut";
      if (rest === "\\" && quote.escapes !== "none") {
        if (!(yield* this.#escape(quote))) return "cut";
        continue;
      }
      const isUnclosed: boolean | null = hasQuotes ? false : yield* this.#isUnclosed(rest);
      if (isUnclosed === null) return "cut";
      const isClose: boolean | null = isUnclosed ? false : yield* cursor.hasAt(0, quote.close);
      if (isClose === null) return "cut";
      const follows = isUnclosed ? "end" : isClose ? yield* this.#follows(role, quote.close.length) : "text";
      if (follows === null) return "cut";
      if (follows === "text") {
        hasQuotes ||= isClose;
        this.#take(escaped(rest));
        cursor.skip(1);
        continue;
      }
      if (!isUnclosed) cursor.skip(quote.close.length);
      if (follows === "end") {
        this.#take('"');
        return "whole";
      }
      yield* cursor.skipSpace();
      quote = follows;
      cursor.skip(quote.length);
    }
  }

  /** Reads plain text up to a character that may have a meaning, and returns that character. */
  *#plain({ close }: Quote): Reading<string> {
    for (;;) {
      if ((yield* this.#cursor.peek()) === "") return "";
      const { rest } = this.#cursor;
      let end = 0;
      while (end < rest.length && !/[\\}\])]/.test(rest[end]!) && rest[end] !== close[0]) end++;
      if (end > 0) this.#take(escaped(rest.slice(0, end)));
      this.#cursor.skip(end);
      if (end < rest.length) return rest[end]!;
    }
  }

  /**
   * Whether a string without its closing quote ends at this bracket: only brackets, the end of the call and the end of the
   * answer follow. Null where the text ends before that is known.
   */
  *#isUnclosed(next: string): Reading<boolean | null> {
    if (!this.#open.includes(next)) return false;
    let at = 0;
    for (let character = next; /[}\])\s]/.test(character); character = yield* this.#cursor.peek(++at));
    if (at === 0 || (yield* this.#cursor.peek(at)) === "") return false;
    const end = yield* this.#cursor.whichAt(at, this.#ends);
    if (!end) return false;
    const behind = yield* this.#cursor.spaceEnd(at + end.length);
    if ((yield* this.#cursor.peek(behind)) !== "") return false;
    return this.#cursor.isCut ? null : true;
  }

  /**
   * Decides what a quote at the cursor is: the end of the string, if what follows can follow a string; a character of it; or
   * the first of several quotes, with which the string goes on. Null where the text ends before that is known.
   */
  *#follows(role: "key" | "value", length: number): Reading<"end" | "text" | Quote | null> {
    const cursor = this.#cursor;
    const at = yield* cursor.spaceEnd(length);
    const next = yield* cursor.peek(at);
    if (role === "key") return next === ":" ? "end" : next === "" ? null : "text";
    if (this.#open.length === 0) return "end";
    if (next === "") return null;
    if (this.#open.includes(next)) return "end";
    const ends = yield* cursor.whichAt(at, this.#ends);
    if (ends !== false) return ends === null ? null : "end";
    if (next === ",") {
      const isNext = yield* this.#isNextAt(yield* cursor.spaceEnd(at + 1));
      return isNext === null ? null : isNext ? "end" : "text";
    }
    if (this.#style.kind === "python") {
      const quote = yield* this.#quoteAt(at);
      return quote === null ? null : quote || "text";
    }
    const isKey = this.#isJson && this.#open.at(-1) === "}" ? yield* this.#isQuotedKeyAt(at) : false;
    return isKey === null ? null : isKey ? "end" : "text";
  }

  /** Whether a key or value, as it may follow a comma, stands at an offset; null where the text ends before that is known. */
  *#isNextAt(at: number): Reading<boolean | null> {
    const cursor = this.#cursor;
    const next = yield* cursor.peek(at);
    if (next === "") return null;
    const close = this.#open.at(-1)!;
    if (next === close || (close === "]" && this.#style.kind === "gemma")) return true;
    if (close === "}") {
      const isQuoted = yield* this.#isQuotedKeyAt(at);
      if (isQuoted !== false) return isQuoted;
    }
    if (close === "}" || close === ")") {
      const end = yield* this.#nameEnd(at);
      const behind = yield* cursor.spaceEnd(end);
      const sign = yield* cursor.peek(behind);
      if (sign === "") return null;
      if (end > at && sign === (close === "}" ? ":" : "=")) return true;
      if (close === "}") return false;
    }
    const quote = yield* this.#quoteAt(at);
    if (quote !== false) return quote === null ? null : true;
    return Object.hasOwn(CLOSERS, next) || /[-+.\d]/.test(next) || (yield* this.#isWordAt(at));
  }

  /** Whether a number, true, false or null stands at an offset; null where the text ends before that is known. */
  *#isWordAt(at: number): Reading<boolean | null> {
    const end = yield* this.#nameEnd(at);
    if ((yield* this.#cursor.peek(end)) === "") return null;
    return scalarText(this.#cursor.rest.slice(at, end)) !== null;
  }

  *#isQuotedKeyAt(start: number): Reading<boolean | null> {
    const quote = yield* this.#quoteAt(start);
    if (!quote) return quote;
    for (let at = start + quote.length; at < start + KEY_MAX; at++) {
      const character = yield* this.#cursor.peek(at);
      if (character === "") return null;
      if (character === "\n") return false;
      if (character === "\\" && quote.escapes !== "none") at++;
      else if (character === quote.close[0]) {
        const isClose = yield* this.#cursor.hasAt(at, quote.close);
        if (isClose === null) return null;
        if (!isClose) continue;
        const behind = yield* this.#cursor.spaceEnd(at + quote.close.length);
        const colon = yield* this.#cursor.peek(behind);
        return colon === "" ? null : colon === ":";
      }
    }
    return false;
  }

  /** The offset after the name that begins at an offset; the same offset where none does. */
  *#nameEnd(start: number): Reading<number> {
    for (let at = start; ; at++) if (!/[\p{L}\p{N}_$.-]/u.test(yield* this.#cursor.peek(at))) return at;
  }

  /** Reads an escape sequence. False where the text ends within it. */
  *#escape({ escapes, close }: Quote): Reading<boolean> {
    const cursor = this.#cursor;
    const next = yield* cursor.peek(1);
    if (next === "") return false;
    if (escapes === "raw") {
      this.#take(escaped(`\\${next === close[0] ? next : ""}`));
      cursor.skip(next === close[0] ? 2 : 1);
      return true;
    }
    const isOctal = escapes === "python" && /[0-7]/.test(next);
    const digits = isOctal ? 3 : ({ x: 2, u: 4, U: 8 }[next] ?? 0);
    const begin = isOctal ? 1 : 2;
    let count = 0;
    while (count < digits && (isOctal ? /[0-7]/ : /[\da-fA-F]/).test(yield* cursor.peek(begin + count))) count++;
    if (count < digits && (yield* cursor.peek(begin + count)) === "") return false;
    if (escapes === "python") {
      const { text, length } = pythonEscape(cursor.rest.slice(0, Math.max(2, begin + count)), count === digits);
      this.#take(escaped(text));
      cursor.skip(length);
      return true;
    }
    const isWhole = count === digits;
    const isJson = /["\\/bfnrt]/.test(next) || (next === "u" && isWhole);
    const length = isJson ? (next === "u" ? 6 : 2) : next === "'" ? 2 : 1;
    this.#take(isJson ? cursor.rest.slice(0, length) : next === "'" ? "'" : "\\\\");
    cursor.skip(length);
    return true;
  }

  /** Reads a number or word up to what may follow a value; a string if it is nothing else and strings are allowed. */
  *#word(textRule: TextRule): Reading<Outcome> {
    const cursor = this.#cursor;
    let end = 0;
    for (; ; end++) {
      const next = yield* cursor.peek(end);
      if (next === "") return "cut";
      if (/[,}\])\n]/.test(next)) break;
      const marker = yield* cursor.whichAt(end, this.#ends);
      if (marker === null) return "cut";
      if (marker) break;
    }
    const word = cursor.rest.slice(0, end).trim();
    const scalar = scalarText(word);
    const isText = scalar === null || (this.#style.kind === "gemma" && textRule === "only");
    if (isText && !isBareText(word, textRule, this.#style.kind)) return "broken";
    cursor.skip(end);
    this.#take(isText ? JSON.stringify(word) : scalar!);
    return "whole";
  }
}

/** How a string is quoted. */
interface Quote {
  /** Length of the opening quote in characters. */
  readonly length: number;
  readonly close: string;
  readonly escapes: "json" | "python" | "raw" | "none";
}
