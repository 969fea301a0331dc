/** Converts Lark grammars, which tools with text input have, to EBNF. */
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { ANY, complement, type Range } from "../text/constraints/code-points.ts";
import {
  choice,
  EMPTY,
  type Node,
  oneOf,
  optional,
  repeat,
  rule,
  sequence,
  text,
} from "../text/constraints/grammar.ts";
import { parseRegex } from "../text/constraints/regex.ts";
import { COMMON_TERMINALS } from "./lark-common.ts";

const LENGTH_MAX = 100_000;
const DEPTH_MAX = 100;
const COUNT_MAX = 1_000;
/** A name that no Lark rule can have. */
const IGNORED = "ignored.";
const NEW_LINE: Range = [10, 10];

/**
 * Converts a Lark grammar to EBNF: rules and terminals, strings and regular expressions with the flags i and s, ranges,
 * groups, repetitions, `%import common.…` and `%ignore`. Left-recursive rules become repetitions.
 *
 * @throws InvalidArgumentError, with the line, for what is no Lark grammar.
 * @throws UnsupportedError, with the line, for what tokens cannot be constrained to.
 */
export function larkToEbnf(lark: string): string {
  if (lark.length > LENGTH_MAX)
    throw new InvalidArgumentError(`lark: expected at most ${LENGTH_MAX} characters but found ${lark.length}`);
  const rules = new LarkParser(lark).rules();
  if (!rules.has("start")) throw new InvalidArgumentError("lark: expected a rule start");
  const root = rules.has(IGNORED) ? sequence(rule(IGNORED), rule("start")) : rule("start");
  const all: [string, Node][] = [
    ["root", root],
    ...[...rules].map(([name, node]): [string, Node] => [own(name), node]),
  ];
  return all.map(([name, node]) => `${name} ::= ${written(node)}\n`).join("");
}

/** A rule's name in EBNF, kept apart from names with a meaning there. */
function own(name: string): string {
  return name === "root" ? "root." : name;
}

class LarkParser {
  readonly #text: string;
  readonly #rules = new Map<string, Node>();
  readonly #ignored: Node[] = [];
  readonly #hasIgnored: boolean;
  /** Whether a rule is being parsed, rather than a terminal: ignored text may follow the terminals in it. */
  #isRule = false;
  #at = 0;
  #depth = 0;

  constructor(source: string) {
    this.#text = source;
    this.#hasIgnored = /^[ \t]*%ignore\b/m.test(source);
  }

  rules(): ReadonlyMap<string, Node> {
    for (this.#skip(); this.#at < this.#text.length; this.#skip()) {
      const directive = this.#match(/%(\w+)[ \t]*/y);
      if (directive) this.#directive(directive[1]!);
      else this.#definition();
    }
    if (this.#ignored.length > 0) this.#rules.set(IGNORED, repeat(choice(this.#ignored), 0));
    return this.#rules;
  }

  #definition(): void {
    const head = this.#match(/[!?]{0,2}(_*[A-Za-z]\w*)[ \t]*(\{[^}\n]*\})?(?:\.-?\d+)?[ \t]*:/y);
    if (!head) throw this.#wrong("a rule or terminal such as name: …");
    const [, name, parameters] = head;
    if (parameters !== undefined) throw this.#unsupported("rules with parameters");
    if (this.#rules.has(name!)) throw this.#wrong(`one definition of ${name}`);
    this.#isRule = !isTerminal(name!);
    const node = this.#choice();
    this.#rules.set(name!, this.#isRule ? this.#withoutLeftRecursion(name!, node) : node);
  }

  #directive(name: string): void {
    this.#isRule = false;
    if (name === "ignore") this.#ignored.push(this.#choice());
    else if (name === "import") this.#import();
    else throw this.#unsupported(`%${name}`);
  }

  #import(): void {
    const path = this.#match(/([\w.]*\w)[ \t]*/y)?.[1];
    if (path === undefined) throw this.#unsupported("%import of files");
    const list = this.#match(/\(([^()]*)\)/y)?.[1];
    const parts = path.split(".");
    const names = list === undefined ? [parts.pop()!] : list.split(",").map((name) => name.trim());
    if (parts.join(".") !== "common") throw this.#unsupported(`%import ${path}: other than from common`);
    const alias = this.#match(/->[ \t]*(\w+)/y)?.[1];
    for (const name of names) {
      const pattern = COMMON_TERMINALS[name];
      if (pattern === undefined) throw this.#wrong(`a terminal of common, which has no ${name}`);
      this.#rules.set(alias ?? name, parseRegex(pattern, name).node);
    }
  }

  #choice(): Node {
    if (++this.#depth > DEPTH_MAX) throw this.#wrong(`at most ${DEPTH_MAX} levels`);
    const options: Node[] = [];
    do {
      const parts: Node[] = [];
      for (let part = this.#part(); part; part = this.#part()) parts.push(part);
      this.#match(/[ \t]*->[ \t]*\w+/y);
      options.push(parts.length === 0 ? EMPTY : sequence(...parts));
      this.#skip();
    } while (this.#match(/\|/y));
    this.#depth--;
    return choice(options);
  }

  /** Parses an atom with its repetition; null at the end of a sequence. */
  #part(): Node | null {
    this.#skip();
    const atom = this.#atom();
    if (!atom) return null;
    const counts = this.#match(/[ \t]*(?:([*+]|\?(?![a-z_]))|~[ \t]*(\d+)(?:[ \t]*\.\.[ \t]*(\d+))?)/y);
    if (!counts) return atom;
    const [, sign, least, most = least] = counts;
    if (sign) return repeat(atom, sign === "+" ? 1 : 0, sign === "?" ? 1 : Number.POSITIVE_INFINITY);
    const [min, max] = [Number(least), Number(most)];
    if (max < min || max > COUNT_MAX) throw this.#wrong(`rising repetitions up to ${COUNT_MAX}`);
    return max === 0 ? EMPTY : repeat(atom, min, max);
  }

  #atom(): Node | null {
    const next = this.#text[this.#at] ?? "";
    if (next === '"') return this.#terminal(this.#string());
    if (next === "/") return this.#terminal(this.#regex());
    if (next === "(" || next === "[") return this.#group(next);
    if (this.#match(/(?=[!?]{0,2}_*[A-Za-z]\w*[ \t]*(?:\{[^}\n]*\})?(?:\.-?\d+)?[ \t]*:)/y)) return null;
    const name = this.#match(/(_*[A-Za-z]\w*)(\{)?/y);
    if (name?.[2]) throw this.#unsupported("rules with parameters");
    if (name) return isTerminal(name[1]!) ? this.#terminal(rule(own(name[1]!))) : rule(own(name[1]!));
    if (next === "" || "|)]%-".includes(next)) return null;
    throw this.#wrong("texts, expressions, names and groups");
  }

  /** A terminal; in rules, ignored text may follow it. */
  #terminal(node: Node): Node {
    return this.#isRule && this.#hasIgnored ? sequence(node, rule(IGNORED)) : node;
  }

  #group(begin: "(" | "["): Node {
    this.#at++;
    const node = this.#choice();
    const end = begin === "(" ? ")" : "]";
    if (this.#text[this.#at] !== end) throw this.#wrong(end);
    this.#at++;
    return begin === "(" ? node : optional(node);
  }

  #string(): Node {
    const first = this.#quoted();
    if (!this.#match(/[ \t]*\.\.[ \t]*(?=")/y))
      return this.#match(/i(?!\w)/y) ? ignoringCase(text(first)) : text(first);
    const [low, high] = [...first, "", ...this.#quoted()].filter((one) => one !== "").map((one) => one.codePointAt(0)!);
    if (low === undefined || high === undefined || high < low) throw this.#wrong("a rising range of characters");
    return oneOf([[low, high]]);
  }

  #quoted(): string {
    const found = this.#match(/"((?:[^"\\\n]|\\.)*)"/y);
    if (!found) throw this.#wrong("a text that ends in its line");
    return found[1]!.replace(ESCAPE, (all, code: string | undefined, letter: string | undefined) => {
      if (code !== undefined) return String.fromCodePoint(Number.parseInt(code.slice(1), 16));
      return LETTERS[letter!] ?? all;
    });
  }

  #regex(): Node {
    const found = this.#match(/\/((?:[^/\\\n]|\\.)+)\/([a-z]*)/y);
    if (!found) throw this.#wrong("an expression that ends in its line");
    const [, pattern, flags] = found;
    const other = [...flags!].find((flag) => !"isu".includes(flag));
    if (other !== undefined) throw this.#unsupported(`the flag ${other}`);
    const dot = flags!.includes("s") ? ANY : complement([NEW_LINE]);
    const what = `lark: line ${this.#line}`;
    const { node, isAnchored } = parseRegex(pattern!.replaceAll("\\/", "/"), what, { isWhole: true, dot });
    if (isAnchored) throw this.#unsupported("anchors and look-ahead in expressions");
    return flags!.includes("i") ? ignoringCase(node) : node;
  }

  /** Removes left recursion: `a: a "x" | "y"` becomes `a: "y" "x"*`. */
  #withoutLeftRecursion(name: string, node: Node): Node {
    const options = node.kind === "choice" ? node.options : [node];
    const partsOf = (option: Node) => (option.kind === "sequence" ? option.parts : [option]);
    const isOwn = (option: Node) => {
      const [first] = partsOf(option);
      return first?.kind === "rule" && first.name === own(name);
    };
    const tails = options.filter(isOwn).map((option) => sequence(...partsOf(option).slice(1)));
    if (tails.length === 0) return node;
    const bases = options.filter((option) => !isOwn(option));
    if (bases.length === 0) throw this.#wrong(`a rule ${name} that can begin otherwise than with itself`);
    return sequence(choice(bases), repeat(choice(tails), 0));
  }

  #skip(): void {
    this.#match(/(?:\s|\/\/[^\n]*|#[^\n]*)*/y);
  }

  get #line(): number {
    return this.#text.slice(0, this.#at).split("\n").length;
  }

  #match(expression: RegExp): RegExpExecArray | null {
    expression.lastIndex = this.#at;
    const match = expression.exec(this.#text);
    if (match) this.#at += match[0].length;
    return match;
  }

  #wrong(expected: string): InvalidArgumentError {
    const found = this.#text.slice(this.#at, this.#at + 20) || "the end";
    return new InvalidArgumentError(`lark: line ${this.#line}: expected ${expected} but found ${found}`);
  }

  #unsupported(what: string): UnsupportedError {
    return new UnsupportedError(
      `lark: line ${this.#line}: ${what}: cannot be enforced; expected rules, terminals, texts, expressions with the flags i and s, ranges, groups, repetitions, %import common and %ignore`,
    );
  }
}

const ESCAPE = /\\(?:(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|([\s\S]))/g;
const LETTERS: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r", f: "\f", '"': '"', "\\": "\\" };

function isTerminal(name: string): boolean {
  return /^_*[A-Z]/.test(name);
}

/** The node with letters of either case (flag i). */
function ignoringCase(node: Node): Node {
  switch (node.kind) {
    case "text":
      return sequence(
        ...[...node.text].map((one) => ignoringCase(oneOf([[one.codePointAt(0)!, one.codePointAt(0)!]]))),
      );
    case "class":
      return oneOf([...node.ranges, ...node.ranges.flatMap(otherCase)]);
    case "sequence":
      return { ...node, parts: node.parts.map(ignoringCase) };
    case "choice":
      return { ...node, options: node.options.map(ignoringCase) };
    case "repeat":
      return { ...node, part: ignoringCase(node.part) };
    default:
      return node;
  }
}

/** Letters of a range in the other case, up to U+024F, so that long ranges are not walked. */
function otherCase([first, last]: Range): Range[] {
  const found: Range[] = [];
  for (let code = first; code <= Math.min(last, 0x24f); code++) {
    const letter = String.fromCodePoint(code);
    for (const other of [letter.toLowerCase(), letter.toUpperCase()])
      if (other !== letter && [...other].length === 1) found.push([other.codePointAt(0)!, other.codePointAt(0)!]);
  }
  return found;
}

/** The node as EBNF text. */
function written(node: Node): string {
  switch (node.kind) {
    case "text":
      return `"${[...node.text].map((one) => writtenPoint(one.codePointAt(0)!)).join("")}"`;
    case "class":
      return `[${node.ranges.map(([first, last]) => (first === last ? writtenPoint(first) : `${writtenPoint(first)}-${writtenPoint(last)}`)).join("")}]`;
    case "rule":
      return node.name;
    case "sequence":
      return node.parts.length === 0 ? '""' : `(${node.parts.map(written).join(" ")})`;
    case "choice":
      return `(${node.options.map(written).join(" | ")})`;
    case "repeat":
      return `(${written(node.part)}){${node.min},${node.max === Number.POSITIVE_INFINITY ? "" : node.max}}`;
    case "relaxed":
      return written(node.superset);
  }
}

function writtenPoint(point: number): string {
  const character = String.fromCodePoint(point);
  return /[A-Za-z0-9 ]/.test(character) ? character : `\\u{${point.toString(16)}}`;
}
