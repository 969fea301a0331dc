/** A stream of tokens with a position, and the parser's errors. */
import { TemplateFault } from "./faults.ts";
import type { Token } from "./lexer.ts";

export class TokenStream {
  readonly #tokens: readonly Token[];
  #position = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  get current(): Token {
    return this.#tokens[this.#position]!;
  }

  get line(): number {
    return this.current.line;
  }

  /** The token after the current one. */
  get following(): Token {
    return this.#tokens[Math.min(this.#position + 1, this.#tokens.length - 1)]!;
  }

  next(): Token {
    const token = this.current;
    if (token.type !== "eof") this.#position++;
    return token;
  }

  is(type: string): boolean {
    return this.current.type === type;
  }

  isName(...names: string[]): boolean {
    return this.current.type === "name" && names.includes(this.current.value as string);
  }

  skipIf(type: string): boolean {
    if (!this.is(type)) return false;
    this.next();
    return true;
  }

  skipIfName(name: string): boolean {
    if (!this.isName(name)) return false;
    this.next();
    return true;
  }

  expect(type: string): Token {
    if (this.is(type)) return this.next();
    if (this.is("eof")) this.fail(`unexpected end of template, expected '${describe(type)}'.`);
    this.fail(`expected token '${describe(type)}', got '${describeToken(this.current)}'`);
  }

  /** Takes the next token, which must be a name, or this name; returns it. */
  expectName(name?: string): string {
    if (name !== undefined && !this.isName(name)) {
      const got = this.is("eof") ? "unexpected end of template, " : "";
      this.fail(`${got}expected token '${name}'${got ? "." : `, got '${describeToken(this.current)}'`}`);
    }
    return this.expect("name").value as string;
  }

  fail(message: string, line = this.line): never {
    throw new TemplateFault("TemplateSyntaxError", message, line);
  }
}

const DESCRIPTIONS: Readonly<Record<string, string>> = {
  "{%": "begin of statement block",
  "%}": "end of statement block",
  "{{": "begin of print statement",
  "}}": "end of print statement",
  data: "template data / text",
  eof: "end of template",
};

function describe(type: string): string {
  return DESCRIPTIONS[type] ?? type;
}

export function describeToken(token: Token): string {
  return token.type === "name" ? String(token.value) : describe(token.type);
}
