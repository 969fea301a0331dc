/** Regular expressions of JavaScript to grammars; what a grammar cannot say is refused. */
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import { choice, complement, EMPTY, type Node, oneOf, type Range, repeat, sequence, text } from "./grammar.ts";

/** An expression: what it matches, and whether that must begin or end the text. */
export interface Expression {
  readonly node: Node;
  readonly fromStart: boolean;
  readonly toEnd: boolean;
}

const DIGITS: readonly Range[] = [[0x30, 0x39]];
const WORDS: readonly Range[] = [...DIGITS, [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]];
const SPACES: readonly Range[] = [
  ...([
    [9, 13],
    [32, 32],
    [0xa0, 0xa0],
    [0x1680, 0x1680],
    [0x2000, 0x200a],
    [0x2028, 0x2029],
    [0x202f, 0x202f],
    [0x205f, 0x205f],
    [0x3000, 0x3000],
    [0xfeff, 0xfeff],
  ] as const),
];
/** What a dot does not match. */
const LINE_ENDS: readonly Range[] = [
  [10, 10],
  [13, 13],
  [0x2028, 0x2029],
];
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, "0": 0, b: 8 };
const PATTERN_MAX = 10_000;
const DEPTH_MAX = 100;
const COUNT_MAX = 10_000;

/**
 * An expression as a grammar.
 *
 * @throws InvalidArgumentError for what is no expression.
 * @throws UnsupportedError for look-around, references to groups, word boundaries, and anchors within.
 */
export function parseRegex(pattern: string, what: string): Expression {
  if (typeof pattern !== "string")
    throw new InvalidArgumentError(`${what}: expected a regular expression but found ${typeof pattern}`);
  if (pattern.length > PATTERN_MAX)
    throw new InvalidArgumentError(`${what}: expected at most ${PATTERN_MAX} characters but found ${pattern.length}`);
  try {
    new RegExp(pattern, "u");
  } catch {
    try {
      new RegExp(pattern);
    } catch (cause) {
      throw new InvalidArgumentError(`${what}: ${(cause as Error).message}`, { cause });
    }
  }
  return new RegexParser(pattern, what).whole();
}

class RegexParser {
  readonly #pattern: string;
  readonly #what: string;
  #at = 0;
  #depth = 0;

  constructor(pattern: string, what: string) {
    this.#pattern = pattern;
    this.#what = what;
  }

  whole(): Expression {
    const branches: Expression[] = [this.#branch()];
    while (this.#takes("|")) branches.push(this.#branch());
    if (this.#at < this.#pattern.length) throw this.#unsupported(`${this.#rest()} at ${this.#at}`);
    const fromStart = branches.every((branch) => branch.fromStart);
    const toEnd = branches.every((branch) => branch.toEnd);
    // Of several branches, each says by itself where it begins and ends.
    for (const branch of branches)
      if (branch.fromStart !== fromStart || branch.toEnd !== toEnd)
        throw this.#unsupported("anchors in some branches only");
    return { node: choice(branches.map(({ node }) => node)), fromStart, toEnd };
  }

  /** A branch of the whole, with its anchors; one group around it all may have them, too. */
  #branch(): Expression {
    const fromStart = this.#takes("^");
    const parts: Node[] = [];
    let toEnd = false;
    while (this.#at < this.#pattern.length && !this.#ahead("|") && !this.#ahead(")")) {
      if (this.#takes("$")) {
        toEnd = true;
        if (this.#at < this.#pattern.length && !this.#ahead("|")) throw this.#unsupported("$ within");
        break;
      }
      parts.push(this.#term());
    }
    return { node: parts.length === 0 ? EMPTY : sequence(...parts), fromStart, toEnd };
  }

  #choice(): Node {
    if (++this.#depth > DEPTH_MAX)
      throw new InvalidArgumentError(`${this.#what}: expected at most ${DEPTH_MAX} levels`);
    const options: Node[] = [];
    do {
      const parts: Node[] = [];
      while (this.#at < this.#pattern.length && !this.#ahead("|") && !this.#ahead(")")) parts.push(this.#term());
      options.push(parts.length === 0 ? EMPTY : sequence(...parts));
    } while (this.#takes("|"));
    this.#depth--;
    return choice(options);
  }

  #term(): Node {
    const atom = this.#atom();
    const counts = /^(?:\*|\+|\?|\{(\d+)(?:(,)(\d*))?\})\??/.exec(this.#rest());
    if (!counts) return atom;
    this.#at += counts[0].length;
    const [found, least, comma, most] = counts;
    if (found[0] === "*") return repeat(atom, 0);
    if (found[0] === "+") return repeat(atom, 1);
    if (found[0] === "?") return repeat(atom, 0, 1);
    const min = Number(least);
    const max = comma === undefined ? min : most === "" ? Number.POSITIVE_INFINITY : Number(most);
    if (min > COUNT_MAX || (max > COUNT_MAX && max !== Number.POSITIVE_INFINITY))
      throw new InvalidArgumentError(`${this.#what}: expected repetitions of at most ${COUNT_MAX}`);
    return max === 0 ? EMPTY : repeat(atom, min, max);
  }

  #atom(): Node {
    if (this.#takes("(")) return this.#group();
    if (this.#takes("[")) return oneOf(this.#class());
    if (this.#takes(".")) return oneOf(complement(LINE_ENDS));
    if (this.#takes("\\")) return this.#escaped();
    if (this.#ahead("^") || this.#ahead("$")) throw this.#unsupported(`${this.#pattern[this.#at]} within`);
    return text(this.#character());
  }

  #group(): Node {
    if (/^\?(?:[=!]|<[=!])/.test(this.#rest())) throw this.#unsupported("look-around");
    const head = /^\?(?::|<[^>]*>)/.exec(this.#rest());
    if (!head && this.#ahead("?")) throw this.#unsupported("groups with flags");
    this.#at += head?.[0].length ?? 0;
    const node = this.#choice();
    this.#takes(")");
    return node;
  }

  #escaped(): Node {
    const next = this.#rest()[0] ?? "";
    if (/[bB]/.test(next)) throw this.#unsupported("word boundaries");
    if (/[1-9k]/.test(next)) throw this.#unsupported("references to groups");
    const ranges = this.#set();
    return ranges ? oneOf(ranges) : oneOf([point(this.#escape())]);
  }

  /** Ranges of an escape that stands for several characters. */
  #set(): Range[] | null {
    const next = this.#rest()[0] ?? "";
    const set = { d: DIGITS, w: WORDS, s: SPACES }[next.toLowerCase()];
    if (next === "p" || next === "P") throw this.#unsupported("properties of characters");
    if (!set) return null;
    this.#at++;
    return next === next.toLowerCase() ? [...set] : complement(set);
  }

  /** The code point of an escape behind its backslash. */
  #escape(): number {
    const code = /^(?:x([0-9a-fA-F]{2})|u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|c([A-Za-z]))/.exec(this.#rest());
    if (code) {
      this.#at += code[0].length;
      if (code[4] !== undefined) return code[4].charCodeAt(0) & 31;
      return Number.parseInt(code[1] ?? code[2] ?? code[3]!, 16);
    }
    const character = this.#character();
    return CONTROLS[character] ?? character.codePointAt(0)!;
  }

  #class(): Range[] {
    const isNegative = this.#takes("^");
    const ranges: Range[] = [];
    while (!this.#takes("]")) {
      const first = this.#member();
      if (typeof first !== "number") {
        ranges.push(...first);
        continue;
      }
      const isRange = this.#ahead("-") && this.#pattern[this.#at + 1] !== "]";
      if (!isRange) {
        ranges.push(point(first));
        continue;
      }
      this.#at++;
      const last = this.#member();
      if (typeof last === "number") ranges.push([first, last]);
      else ranges.push(point(first), point(0x2d), ...last);
    }
    return isNegative ? complement(ranges) : ranges;
  }

  /** A code point of a class, or ranges. */
  #member(): number | Range[] {
    if (this.#takes("\\")) return this.#set() ?? this.#escape();
    return this.#character().codePointAt(0)!;
  }

  #rest(): string {
    return this.#pattern.slice(this.#at);
  }

  #ahead(character: string): boolean {
    return this.#pattern[this.#at] === character;
  }

  #takes(character: string): boolean {
    if (!this.#ahead(character)) return false;
    this.#at++;
    return true;
  }

  #character(): string {
    const character = String.fromCodePoint(this.#pattern.codePointAt(this.#at) ?? 0x20);
    this.#at += character.length;
    return character;
  }

  #unsupported(thing: string): UnsupportedError {
    return new UnsupportedError(
      `${this.#what}: ${thing}: cannot be held to token by token; expected groups, classes, alternatives, repetitions, and ^ and $ at the ends`,
    );
  }
}

function point(code: number): Range {
  return [code, code];
}
