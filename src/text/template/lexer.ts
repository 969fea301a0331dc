/**
 * Tokenizes a template's source as jinja2 3.1.6 does with trim_blocks and lstrip_blocks. Written by hand in place of jinja2's
 * regular expressions, so that every source takes linear time.
 */
import { TemplateFault } from "./faults.ts";
import { charge } from "./limits.ts";
import { isSpace } from "./unicode.ts";
import { integer } from "./values.ts";

/** "data", "name", "string", "integer", "float", "eof", a bracket of a tag such as "{%", or an operator as it is written. */
export interface Token {
  readonly type: string;
  /** Its value: strings unescaped, numbers as numbers. */
  readonly value: string | number | bigint;
  readonly line: number;
}

const OPERATORS = [..."//,**,==,!=,>=,<=".split(","), ..."+ - / * % ~ [ ] ( ) { } > < = . : | , ;".split(" ")];
const FLOAT = /(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const NAME = /[\p{XID_Continue}\w]+/uy;
const IDENTIFIER = /^[\p{XID_Start}_]/u;
const RAW_BEGIN = /\{%[-+]?\s*raw\s*(?:-%\}|%\})/y;
const RAW_END = /\{%([-+]?)\s*endraw\s*([-+]?)%\}/g;
const CLOSING: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

export function tokenize(template: string): Token[] {
  charge(template.length);
  let source = template.replace(/\r\n?/g, "\n");
  if (source.endsWith("\n")) source = source.slice(0, -1);
  return new Lexer(source).run();
}

class Lexer {
  readonly #source: string;
  #position = 0;
  #line = 1;
  /** Position of the first newline that is not counted in #line. */
  #newline: number;
  /** Whether the next character is the first of a line. */
  #lineStarts = true;
  readonly #tokens: Token[] = [];

  constructor(source: string) {
    this.#source = source;
    this.#newline = this.#newlineFrom(0);
  }

  run(): Token[] {
    while (this.#position < this.#source.length) this.#data();
    this.#push("eof", "");
    return this.#tokens;
  }

  #push(type: string, value: Token["value"]): void {
    this.#tokens.push({ type, value, line: this.#lineAt(this.#position) });
  }

  /** The line number of a position. Positions must ascend, since each newline is counted once. */
  #lineAt(position: number): number {
    while (this.#newline < position) {
      this.#line++;
      this.#newline = this.#newlineFrom(this.#newline + 1);
    }
    return this.#line;
  }

  #newlineFrom(position: number): number {
    const at = this.#source.indexOf("\n", position);
    return at === -1 ? Number.POSITIVE_INFINITY : at;
  }

  #fail(message: string): never {
    throw new TemplateFault("TemplateSyntaxError", message, this.#lineAt(this.#position));
  }

  /** Reads text up to the next tag, and that tag. */
  #data(): void {
    const start = this.#position;
    const open = findTag(this.#source, start);
    if (open === -1) {
      this.#push("data", this.#source.slice(start));
      this.#position = this.#source.length;
      return;
    }
    const kind = this.#source[open + 1]!;
    const sign = this.#signAt(open + 2);
    const text = this.#trimmed(start, open, sign, kind !== "{");
    if (text) this.#push("data", text);
    this.#position = open;
    RAW_BEGIN.lastIndex = open;
    const raw = kind === "%" ? RAW_BEGIN.exec(this.#source) : null;
    if (raw) this.#raw(open + raw[0].length, raw[0].at(-3) === "-");
    else if (kind === "#") this.#comment(open + 2 + sign.length);
    else this.#tag(kind === "%" ? "%" : "}", open + 2 + sign.length);
    this.#lineStarts = this.#source[this.#position - 1] === "\n";
  }

  #signAt(position: number): string {
    const character = this.#source[position];
    return character === "-" || character === "+" ? character : "";
  }

  /** The text before a tag, without the white space that the tag's `-` or lstrip_blocks removes. */
  #trimmed(start: number, end: number, sign: string, isBlock: boolean): string {
    const text = this.#source.slice(start, end);
    let length = text.length;
    while (length > 0 && isSpace(text[length - 1]!)) length--;
    if (sign === "-") return text.slice(0, length);
    if (sign === "+" || !isBlock) return text;
    const lineStart = text.lastIndexOf("\n") + 1;
    const opensLine = lineStart > 0 || this.#lineStarts;
    return opensLine && length <= lineStart ? text.slice(0, lineStart) : text;
  }

  #skipSpace(position: number): number {
    let end = position;
    while (end < this.#source.length && isSpace(this.#source[end]!)) end++;
    return end;
  }

  /** Where text begins after a tag that ends at `end`: `-` skips all white space, trim_blocks one newline. */
  #after(end: number, sign: string): number {
    if (sign === "-") return this.#skipSpace(end);
    return sign === "" && this.#source[end] === "\n" ? end + 1 : end;
  }

  #comment(start: number): void {
    const end = this.#source.indexOf("#}", start);
    if (end === -1) this.#fail("Missing end of comment tag");
    this.#position = this.#after(end + 2, end > start ? this.#signAt(end - 1) : "");
  }

  #raw(begin: number, strips: boolean): void {
    const start = strips ? this.#skipSpace(begin) : begin;
    RAW_END.lastIndex = start;
    const end = RAW_END.exec(this.#source);
    if (!end) this.#fail("Missing end of raw directive");
    this.#lineStarts = this.#source[start - 1] === "\n";
    const text = this.#trimmed(start, end.index, end[1]!, true);
    if (text) this.#push("data", text);
    this.#position = this.#after(RAW_END.lastIndex, end[2]!);
  }

  /** Reads the tokens of a tag that ends with "%}" or "}}". */
  #tag(close: "%" | "}", start: number): void {
    this.#push(close === "%" ? "{%" : "{{", "");
    this.#position = start;
    const open: string[] = [];
    for (;;) {
      const position = this.#skipSpace(this.#position);
      this.#position = position;
      if (position >= this.#source.length) return;
      if (open.length === 0 && this.#ends(close)) return;
      if (!this.#literal()) this.#operator(open);
    }
  }

  #ends(close: "%" | "}"): boolean {
    const sign = this.#signAt(this.#position);
    if (close === "}" && sign === "+") return false;
    const end = this.#position + sign.length;
    if (!this.#source.startsWith(`${close}}`, end)) return false;
    this.#push(`${close}}`, "");
    this.#position = close === "}" && sign === "" ? end + 2 : this.#after(end + 2, sign);
    return true;
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#position;
    return pattern.exec(this.#source)?.[0];
  }

  /** Reads a number, name or string; false when there is none here. */
  #literal(): boolean {
    const character = this.#source[this.#position]!;
    if (character === "'" || character === '"') {
      this.#string(character);
      return true;
    }
    const isDigit = character >= "0" && character <= "9";
    const float = isDigit && this.#source[this.#position - 1] !== "." ? this.#match(FLOAT) : undefined;
    const int = isDigit && float === undefined ? this.#match(INTEGER) : undefined;
    const name = float === undefined && int === undefined ? this.#match(NAME) : undefined;
    if (float !== undefined) this.#push("float", Number(float.replaceAll("_", "")));
    else if (int !== undefined) this.#integer(int);
    else if (name === undefined) return false;
    else if (!IDENTIFIER.test(name)) this.#fail("Invalid character in identifier");
    else this.#push("name", name);
    this.#position += (float ?? int ?? name)!.length;
    return true;
  }

  #integer(digits: string): void {
    const text = digits.replaceAll("_", "");
    if (text.length > 4300 && /^\d+$/.test(text))
      this.#fail("Exceeds the limit (4300 digits) for integer string conversion");
    this.#push("integer", integer(BigInt(text)));
  }

  #string(quote: string): void {
    let end = this.#position + 1;
    while (end < this.#source.length && this.#source[end] !== quote) end += this.#source[end] === "\\" ? 2 : 1;
    if (end >= this.#source.length) this.#fail(`unexpected char ${quote === "'" ? `"'"` : `'"'`} at ${this.#position}`);
    const text = this.#source.slice(this.#position + 1, end);
    this.#push("string", text.includes("\\") ? this.#unescape(text) : text);
    this.#position = end + 1;
  }

  #operator(open: string[]): void {
    const operator = OPERATORS.find((candidate) => this.#source.startsWith(candidate, this.#position));
    if (operator === undefined)
      this.#fail(
        `unexpected char '${String.fromCodePoint(this.#source.codePointAt(this.#position)!)}' at ${this.#position}`,
      );
    if (operator in CLOSING) open.push(CLOSING[operator]!);
    else if (operator === ")" || operator === "]" || operator === "}") {
      const expected = open.pop();
      if (expected === undefined) this.#fail(`unexpected '${operator}'`);
      if (expected !== operator) this.#fail(`unexpected '${operator}', expected '${expected}'`);
    }
    this.#push(operator, operator);
    this.#position += operator.length;
  }

  /**
   * Decodes escapes as Python's unicode_escape. A character beyond ASCII after a backslash becomes the text of its escape, as
   * there.
   */
  #unescape(text: string): string {
    const escapes =
      /\\(?:\n|([0-7]{1,3})|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([xuUN])|([\\'"abfnrtv])|([^\0-\x7f]))/gu;
    return text.replace(escapes, (all, octal, x, u, long, broken, simple, wide) => {
      if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
      if (x !== undefined || u !== undefined) return String.fromCharCode(Number.parseInt(x ?? u, 16));
      if (long !== undefined) {
        const code = Number.parseInt(long, 16);
        if (code > 0x10ffff) this.#fail("illegal Unicode character");
        return String.fromCodePoint(code);
      }
      if (broken !== undefined) this.#badEscape(broken);
      if (simple !== undefined) return SIMPLE_ESCAPES[simple] ?? all;
      if (wide === undefined) return all === "\\\n" ? "" : all;
      const code = (wide as string).codePointAt(0)!;
      const hex = code.toString(16);
      if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
      return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
    });
  }

  #badEscape(letter: string): never {
    if (letter === "N") this.#fail("escapes by name of character (\\N{...}) are not supported");
    this.#fail(`truncated \\${letter}${letter === "x" ? "XX" : letter === "u" ? "XXXX" : "XXXXXXXX"} escape`);
  }
}

const SIMPLE_ESCAPES: Readonly<Record<string, string>> = {
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

/** Position of the next "{%", "{{" or "{#" from `start`; -1 when there is none. */
function findTag(source: string, start: number): number {
  for (let at = source.indexOf("{", start); at !== -1; at = source.indexOf("{", at + 1)) {
    const next = source[at + 1];
    if (next === "%" || next === "{" || next === "#") return at;
  }
  return -1;
}
