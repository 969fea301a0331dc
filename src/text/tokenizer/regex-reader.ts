/** Reader of a pattern's source. */
import type { Predicate } from "./character-set.ts";
import { namedClass } from "./regex-classes.ts";

/** Thrown for a pattern that is invalid in Oniguruma or not supported; the message says which part. */
export class PatternError extends Error {}

const LENGTH_LIMIT = 100_000;

const controls: Record<string, number> = { t: 9, n: 10, v: 11, f: 12, r: 13, a: 7, e: 27 };

export class PatternReader {
  readonly source: string;
  position = 0;

  constructor(source: string) {
    if (source.length > LENGTH_LIMIT) throw new PatternError(`it is longer than ${LENGTH_LIMIT} characters`);
    this.source = source;
  }

  /** Skips a text if the source continues with it; returns whether it does. */
  take(text: string): boolean {
    if (!this.source.startsWith(text, this.position)) return false;
    this.position += text.length;
    return true;
  }

  /** Reads the next character. */
  next(): string {
    const code = this.source.codePointAt(this.position);
    if (code === undefined) throw new PatternError("it ends too early");
    const character = String.fromCodePoint(code);
    this.position += character.length;
    return character;
  }

  /** Reads up to an end text, and skips that. */
  until(end: string): string {
    const at = this.source.indexOf(end, this.position);
    if (at < 0) throw new PatternError(`expected "${end}"`);
    const text = this.source.slice(this.position, at);
    this.position = at + end.length;
    return text;
  }

  /** The code point of an escape after `letter`, which is already read; null for other escapes. */
  escapedCodePoint(letter: string): number | null {
    if (Object.hasOwn(controls, letter)) return controls[letter]!;
    if (letter === "x" && this.take("{")) return this.#codePoint(this.until("}").trim(), 16);
    if (letter === "x") return this.#codePoint(this.digits(/[0-9a-fA-F]{0,2}/y) || "0", 16);
    if (letter === "u") return this.#codePoint(this.digits(/[0-9a-fA-F]{4}/y), 16);
    if (letter === "0") return this.#codePoint(this.digits(/[0-7]{0,2}/y) || "0", 8);
    if (/[A-Za-z0-9]/.test(letter)) return null;
    return letter.codePointAt(0)!;
  }

  /** Reads the class of `\p{name}` after its letter; it ignores the flag for case. */
  property(letter: string): Predicate {
    if (!this.take("{")) throw new PatternError(`expected "{" after "\\${letter}"`);
    const text = this.until("}");
    const inverted = text.startsWith("^");
    const found = namedClass(inverted ? text.slice(1) : text);
    if (!found) throw new PatternError(`"\\${letter}{${text}}" is not supported`);
    return inverted === (letter === "P") ? found : (codePoint) => !found(codePoint);
  }

  /** Reads the match of a sticky pattern. */
  digits(pattern: RegExp): string {
    pattern.lastIndex = this.position;
    const text = pattern.exec(this.source)?.[0] ?? "";
    this.position += text.length;
    return text;
  }

  #codePoint(digits: string, base: number): number {
    const code = /^[0-9a-fA-F]+$/.test(digits) ? Number.parseInt(digits, base) : Number.NaN;
    if (!(code <= 0x10ffff) || (code >= 0xd800 && code <= 0xdfff))
      throw new PatternError(`"${digits}" is no code point`);
    return code;
  }
}
