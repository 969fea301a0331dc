/** Parses JavaScript regular expressions to trees; what cannot be enforced is refused. */
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import { AutomatonSizeError, automatonOf, both, others, type Pattern } from "./automaton.ts";
import { ANY, complement, type Range } from "./code-points.ts";
import { choice, EMPTY, type Node, oneOf, repeat, sequence, text } from "./grammar.ts";
import { escapedClass, LINE_ENDS, propertyClass } from "./regex-classes.ts";

/** A parsed regular expression. */
export interface Expression {
  /** Whole texts in which the expression matches, with what may stand before and after the match. */
  readonly tree: Pattern;
  /** The match itself, without anchors and lookahead, which only exclude some texts. */
  readonly node: Node;
  /** Whether anchors and lookahead require more than a match of the whole text. */
  readonly isAnchored: boolean;
  /** Whether every match begins at the start of the text, and ends at its end. */
  readonly fromStart: boolean;
  readonly toEnd: boolean;
}

/** A lookahead: what must, or must not, follow. */
interface Look {
  readonly kind: "look";
  readonly isNegative: boolean;
  readonly branches: readonly Branch[];
}

type Branch = readonly (Pattern | Look)[];

const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, "0": 0, b: 8 };
const PATTERN_MAX = 10_000;
const DEPTH_MAX = 100;
const COUNT_MAX = 10_000;

/** Options of parseRegex. */
interface RegexOptions {
  /** Whether a match must cover the whole text. */
  readonly isWhole?: boolean;
  /** Characters that a dot matches. */
  readonly dot?: readonly Range[];
}

/**
 * Parses a regular expression by code points, as with the flag `u`; one that this flag refuses, as without it.
 *
 * @throws InvalidArgumentError for a syntax error.
 * @throws UnsupportedError for backreferences, lookbehind, and lookahead within groups.
 */
export function parseRegex(
  pattern: string,
  what: string,
  { isWhole = false, dot = complement(LINE_ENDS) }: RegexOptions = {},
): Expression {
  if (typeof pattern !== "string")
    throw new InvalidArgumentError(`${what}: expected a regular expression but found ${typeof pattern}`);
  if (pattern.length > PATTERN_MAX)
    throw new InvalidArgumentError(`${what}: expected at most ${PATTERN_MAX} characters but found ${pattern.length}`);
  checkSyntax(pattern, what);
  return expressionOf(new RegexParser(pattern, what, dot).whole(), what, isWhole);
}

/** Checks the syntax with and without the flag `u`: an escape that only the flag refuses stands for its character. */
function checkSyntax(pattern: string, what: string): void {
  const plain = pattern.replace(/\\\\|\\-|\\[^\w^$\\.*+?()[\]{}|/]/gu, (found) =>
    found === "\\\\" ? found : `\\u{${found.codePointAt(1)!.toString(16)}}`,
  );
  for (const [source, flags] of [
    [plain, "u"],
    [pattern, ""],
  ] as const) {
    try {
      new RegExp(source, flags);
      return;
    } catch (cause) {
      if (flags === "") throw new InvalidArgumentError(`${what}: ${(cause as Error).message}`, { cause });
    }
  }
}

/** The expression of these alternatives. With `isWhole`, a match covers the whole text. */
function expressionOf(branches: readonly Branch[], what: string, isWhole: boolean): Expression {
  const fromStart = branches.every(([first]) => first?.kind === "start");
  const toEnd = branches.every((branch) => branch.at(-1)?.kind === "end");
  const any: Pattern = isWhole ? EMPTY : repeat(oneOf(ANY), 0);
  try {
    for (const branch of branches) checkLooks(branch, what, isWhole);
    const trees = branches.map((branch) => sequence(any, behind(branch, any)));
    return {
      tree: choice(trees),
      node: choice(branches.map(superset)),
      isAnchored: branches.some((branch) =>
        branch.some(
          (part, index) =>
            !(part.kind === "start" && index === 0) &&
            !(part.kind === "end" && index === branch.length - 1) &&
            (part.kind === "look" || hasAnchor(part)),
        ),
      ),
      fromStart,
      toEnd,
    };
  } catch (cause) {
    if (!(cause instanceof AutomatonSizeError)) throw cause;
    throw new UnsupportedError(`${what}: look-ahead of so many cases cannot be enforced token by token`, { cause });
  }
}

/** UnsupportedError for lookahead within a text whose continuation depends on what came before. */
function checkLooks(branch: Branch, what: string, isWhole: boolean): void {
  const looksBack = (parts: Branch): boolean =>
    parts.some((part) =>
      part.kind === "look" ? part.branches.some(looksBack) : hasAnchor(part, (kind) => kind !== "end"),
    );
  const first = branch.findIndex(({ kind }) => kind !== "start" && kind !== "look");
  const within = branch.findLastIndex(({ kind }) => kind === "look");
  const isAtStart = within < (first < 0 ? branch.length : first) && (isWhole || branch[0]?.kind === "start");
  if (within >= 0 && !isAtStart && looksBack(branch.slice(branch.findIndex(({ kind }) => kind === "look"))))
    throw unsupported(what, "look-ahead beside ^ or word boundaries");
}

/** Pattern of a branch and all that follows it: a lookahead applies to everything after it. */
function behind(branch: Branch, end: Pattern): Pattern {
  const at = branch.findLastIndex(({ kind }) => kind === "look");
  const rest = sequence(...(branch.slice(at + 1) as Pattern[]), end);
  if (at < 0) return rest;
  const look = branch[at] as Look;
  const any: Pattern = repeat(oneOf(ANY), 0);
  const ahead = automatonOf(choice(look.branches.map((own) => behind(own, any))));
  const automaton = both(automatonOf(rest), look.isNegative ? others(ahead) : ahead);
  return behind(branch.slice(0, at), { kind: "automaton", automaton });
}

function hasAnchor(tree: Pattern, isMeant: (kind: string) => boolean = () => true): boolean {
  switch (tree.kind) {
    case "text":
    case "class":
      return false;
    case "sequence":
      return tree.parts.some((part) => hasAnchor(part, isMeant));
    case "choice":
      return tree.options.some((option) => hasAnchor(option, isMeant));
    case "repeat":
      return hasAnchor(tree.part, isMeant);
    default:
      return isMeant(tree.kind);
  }
}

/** The superset of a branch that the engine gets: without lookahead and anchors. */
function superset(branch: Branch): Node {
  return sequence(...branch.map((part) => (part.kind === "look" ? EMPTY : withoutAnchors(part))));
}

function withoutAnchors(tree: Pattern): Node {
  switch (tree.kind) {
    case "text":
    case "class":
      return tree;
    case "sequence":
      return { ...tree, parts: tree.parts.map(withoutAnchors) };
    case "choice":
      return { ...tree, options: tree.options.map(withoutAnchors) };
    case "repeat":
      return { ...tree, part: withoutAnchors(tree.part) };
    default:
      return EMPTY;
  }
}

class RegexParser {
  readonly #pattern: string;
  readonly #what: string;
  readonly #dot: readonly Range[];
  #at = 0;
  #depth = 0;

  constructor(pattern: string, what: string, dot: readonly Range[]) {
    this.#pattern = pattern;
    this.#what = what;
    this.#dot = dot;
  }

  whole(): Branch[] {
    const branches = this.#branches();
    if (this.#at < this.#pattern.length) throw this.#unsupported(`${this.#rest()} at ${this.#at}`);
    return branches;
  }

  #branches(): Branch[] {
    if (++this.#depth > DEPTH_MAX)
      throw new InvalidArgumentError(`${this.#what}: expected at most ${DEPTH_MAX} levels`);
    const branches: Branch[] = [];
    do {
      const parts: (Pattern | Look)[] = [];
      while (this.#at < this.#pattern.length && !this.#ahead("|") && !this.#ahead(")")) parts.push(this.#term());
      branches.push(parts);
    } while (this.#takes("|"));
    this.#depth--;
    return branches;
  }

  #term(): Pattern | Look {
    const atom = this.#atom();
    const counts = /^(?:\*|\+|\?|\{(\d+)(?:(,)(\d*))?\})\??/.exec(this.#rest());
    if (!counts) return atom;
    if (atom.kind === "look") throw this.#unsupported("look-ahead that is repeated");
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

  #atom(): Pattern | Look {
    if (this.#takes("(")) return this.#group();
    if (this.#takes("[")) return oneOf(this.#class());
    if (this.#takes(".")) return oneOf(this.#dot);
    if (this.#takes("\\")) return this.#escaped();
    if (this.#takes("^")) return { kind: "start" };
    if (this.#takes("$")) return { kind: "end" };
    return text(this.#character());
  }

  #group(): Pattern | Look {
    if (/^\?<[=!]/.test(this.#rest())) throw this.#unsupported("look-behind");
    const head = /^\?(?::|=|!|<[^>]*>)/.exec(this.#rest())?.[0] ?? "";
    if (head === "" && this.#ahead("?")) throw this.#unsupported("groups with flags");
    this.#at += head.length;
    const branches = this.#branches();
    this.#takes(")");
    if (head === "?=" || head === "?!") return { kind: "look", isNegative: head === "?!", branches };
    return choice(branches.map((branch) => sequence(...branch.map((part) => this.#withoutLook(part)))));
  }

  #withoutLook(part: Pattern | Look): Pattern {
    if (part.kind === "look") throw this.#unsupported("look-ahead within groups");
    return part;
  }

  #escaped(): Pattern {
    const next = this.#rest()[0] ?? "";
    if (next === "b" || next === "B") {
      this.#at++;
      return { kind: next === "b" ? "boundary" : "inside" };
    }
    if (/[1-9k]/.test(next)) throw this.#unsupported("references to groups");
    const ranges = this.#set();
    return ranges ? oneOf(ranges) : oneOf([point(this.#escape())]);
  }

  /** Ranges of a class escape; null for another escape. */
  #set(): Range[] | null {
    const property = /^([pP])\{([^}]*)\}/.exec(this.#rest());
    if (property) {
      const found = propertyClass(property[2]!);
      if (!found) throw this.#unsupported(`the property ${property[2]}`);
      this.#at += property[0].length;
      return property[1] === "p" ? found : complement(found);
    }
    const found = escapedClass(this.#rest()[0] ?? "");
    if (found) this.#at++;
    return found;
  }

  /** The code point of an escape, after its backslash. */
  #escape(): number {
    const code =
      /^(?:x([0-9a-fA-F]{2})|u\{([0-9a-fA-F]+)\}|u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|c([A-Za-z]))/.exec(
        this.#rest(),
      );
    if (code) {
      const [all, hex, long, high, low, short, control] = code;
      this.#at += all.length;
      if (control !== undefined) return control.charCodeAt(0) & 31;
      if (high !== undefined)
        return String.fromCharCode(Number.parseInt(high, 16), Number.parseInt(low!, 16)).codePointAt(0)!;
      return Number.parseInt(hex ?? long ?? short!, 16);
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

  /** One member of a class: a code point, or the ranges of a class escape. */
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
    return unsupported(this.#what, thing);
  }
}

function unsupported(what: string, thing: string): UnsupportedError {
  return new UnsupportedError(
    `${what}: ${thing}: cannot be enforced token by token; expected groups, classes, alternatives, repetitions, anchors, and look-ahead outside of groups`,
  );
}

function point(code: number): Range {
  return [code, code];
}
