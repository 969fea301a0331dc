/** Grammars in EBNF: `name ::= "text" [a-z] other (a | b)* c? d{2,3} # comment`, as llama.cpp and xgrammar read them. */
import { InvalidArgumentError } from "../../errors.ts";
import { complement, type Range } from "./code-points.ts";
import { choice, EMPTY, type Grammar, type Node, oneOf, repeat, rule, sequence, text } from "./grammar.ts";

const LENGTH_MAX = 200_000;
const DEPTH_MAX = 100;
const COUNT_MAX = 10_000;
const ESCAPES: Readonly<Record<string, string>> = {
  ...{ n: "\n", t: "\t", r: "\r", f: "\f", v: "\v", b: "\b", a: "\x07", e: "\x1b", "0": "\0" },
};

/**
 * Parses a grammar's rules. Its root is the rule `root`, or the first where there is none of that name.
 *
 * @throws InvalidArgumentError, with the line, for a syntax error.
 */
export function parseEbnf(ebnf: string): Grammar {
  if (typeof ebnf !== "string") throw new InvalidArgumentError(`grammar: expected a text but found ${typeof ebnf}`);
  if (ebnf.length > LENGTH_MAX)
    throw new InvalidArgumentError(`grammar: expected at most ${LENGTH_MAX} characters but found ${ebnf.length}`);
  const rules = new EbnfParser(ebnf).rules();
  const [first] = rules.keys();
  if (first === undefined) throw new InvalidArgumentError('grammar: expected rules such as root ::= "yes" | "no"');
  if (!rules.has("root")) rules.set("root", rule(first));
  return rules;
}

class EbnfParser {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(source: string) {
    this.#text = source;
  }

  rules(): Map<string, Node> {
    const rules = new Map<string, Node>();
    for (;;) {
      this.#skip();
      if (this.#at >= this.#text.length) return rules;
      const head = this.#match(/([A-Za-z_][\w.-]*)\s*::=/y);
      if (!head) throw this.#wrong("a rule such as name ::= …");
      if (rules.has(head[1]!)) throw this.#wrong(`one rule ${head[1]}`);
      rules.set(head[1]!, this.#choice());
    }
  }

  #choice(): Node {
    if (++this.#depth > DEPTH_MAX) throw this.#wrong(`at most ${DEPTH_MAX} levels`);
    const options: Node[] = [];
    do options.push(this.#sequence());
    while (this.#takes("|"));
    this.#depth--;
    return choice(options);
  }

  #sequence(): Node {
    const parts: Node[] = [];
    for (let part = this.#part(); part; part = this.#part()) parts.push(part);
    return parts.length === 0 ? EMPTY : sequence(...parts);
  }

  #part(): Node | null {
    const atom = this.#atom();
    if (!atom) return null;
    let node = atom;
    for (;;) {
      const counts = this.#match(/\s*(?:([*+?])|\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\})/y);
      if (!counts) return node;
      const [, sign, least, comma, most] = counts;
      if (sign) node = repeat(node, sign === "+" ? 1 : 0, sign === "?" ? 1 : Number.POSITIVE_INFINITY);
      else {
        const min = Number(least);
        const max = comma === undefined ? min : most === "" ? Number.POSITIVE_INFINITY : Number(most);
        if (max < min || min > COUNT_MAX || (max > COUNT_MAX && max !== Number.POSITIVE_INFINITY))
          throw this.#wrong(`rising repetitions up to ${COUNT_MAX}`);
        node = max === 0 ? EMPTY : repeat(node, min, max);
      }
    }
  }

  #atom(): Node | null {
    this.#skip();
    const next = this.#text[this.#at] ?? "";
    if (next === '"' || next === "'") return text(this.#string(next));
    if (next === "[") return oneOf(this.#class());
    if (next === "(") {
      this.#at++;
      const node = this.#choice();
      if (!this.#takes(")")) throw this.#wrong(")");
      return node;
    }
    if (next === ".") {
      this.#at++;
      return oneOf([[0, 0x10ffff]]);
    }
    // A name before `::=` begins the next rule.
    const name = this.#match(/([A-Za-z_][\w.-]*)(?!\s*::=)(?![\w.-])/y);
    if (name) return rule(name[1]!);
    if (next === "" || next === "|" || next === ")" || /[A-Za-z_]/.test(next)) return null;
    throw this.#wrong("texts, classes, rules and groups");
  }

  #string(quote: string): string {
    this.#at++;
    let value = "";
    while (this.#text[this.#at] !== quote) value += this.#character("the end of a text");
    this.#at++;
    return value;
  }

  #class(): Range[] {
    this.#at++;
    const isNegative = this.#text[this.#at] === "^";
    if (isNegative) this.#at++;
    const ranges: Range[] = [];
    while (this.#text[this.#at] !== "]") {
      const first = this.#character("the end of a class").codePointAt(0)!;
      const isRange = this.#text[this.#at] === "-" && this.#text[this.#at + 1] !== "]";
      if (isRange) this.#at++;
      const last = isRange ? this.#character("the end of a class").codePointAt(0)! : first;
      if (last < first) throw this.#wrong("rising ranges");
      ranges.push([first, last]);
    }
    this.#at++;
    return isNegative ? complement(ranges) : ranges;
  }

  #character(expected: string): string {
    const point = this.#text.codePointAt(this.#at);
    if (point === undefined || point === 10) throw this.#wrong(expected);
    const character = String.fromCodePoint(point);
    this.#at += character.length;
    if (character !== "\\") return character;
    const code = this.#match(/x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|u\{([0-9a-fA-F]{1,6})\}/y);
    if (code) {
      const value = Number.parseInt(code[1] ?? code[2] ?? code[3] ?? code[4]!, 16);
      if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) throw this.#wrong("code points of characters");
      return String.fromCodePoint(value);
    }
    const escaped = String.fromCodePoint(this.#text.codePointAt(this.#at) ?? 10);
    if (escaped === "\n") throw this.#wrong(expected);
    this.#at += escaped.length;
    return ESCAPES[escaped] ?? escaped;
  }

  #skip(): void {
    this.#match(/(?:\s|#[^\n]*)*/y);
  }

  #takes(character: string): boolean {
    this.#skip();
    if (this.#text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  #match(expression: RegExp): RegExpExecArray | null {
    expression.lastIndex = this.#at;
    const match = expression.exec(this.#text);
    if (match) this.#at += match[0].length;
    return match;
  }

  #wrong(expected: string): InvalidArgumentError {
    const line = this.#text.slice(0, this.#at).split("\n").length;
    const found = this.#text.slice(this.#at, this.#at + 20) || "the end";
    return new InvalidArgumentError(`grammar: line ${line}: expected ${expected} but found ${found}`);
  }
}
