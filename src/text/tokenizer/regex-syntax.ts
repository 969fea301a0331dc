/** Patterns in Oniguruma's Ruby syntax, which those of tokenizer.json are in, to trees. What is not understood is refused. */
import { BracketParser } from "./regex-brackets.ts";
import { CharacterSet, classOf, type Predicate } from "./character-set.ts";
import { foldNodes } from "./regex-case.ts";
import { namedClass, shorthand } from "./regex-classes.ts";

export type Place = "textStart" | "textEnd" | "finalEnd" | "lineStart" | "lineEnd" | "wordEdge" | "noWordEdge" | "searchStart";

export type Node =
  | { readonly kind: "character"; readonly codePoint: number; readonly ignoreCase: boolean }
  | { readonly kind: "set"; readonly set: CharacterSet }
  | { readonly kind: "sequence"; readonly nodes: readonly Node[] }
  | { readonly kind: "choice"; readonly nodes: readonly Node[] }
  | {
      readonly kind: "repeat";
      readonly node: Node;
      readonly least: number;
      readonly most: number;
      readonly mode: "greedy" | "lazy" | "possessive";
    }
  | { readonly kind: "group"; readonly index: number; readonly node: Node }
  | { readonly kind: "atomic"; readonly node: Node }
  | { readonly kind: "look"; readonly node: Node; readonly behind: boolean; readonly negative: boolean }
  | { readonly kind: "place"; readonly place: Place }
  | { readonly kind: "back"; readonly index: number };

export const EMPTY: Node = { kind: "sequence", nodes: [] };

export interface Flags {
  readonly ignoreCase: boolean;
  readonly dotAll: boolean;
  readonly extended: boolean;
}

/** A pattern that Oniguruma does not have, or that is not supported; the message says which part. */
export class PatternError extends Error {}

/** Groups within groups; deeper ones would exhaust the stack. */
const DEPTH_LIMIT = 200;
const LENGTH_LIMIT = 100_000;
/** Oniguruma's own. */
const REPEAT_LIMIT = 100_000;

const places: Record<string, Place> = {
  A: "textStart",
  z: "textEnd",
  Z: "finalEnd",
  b: "wordEdge",
  B: "noWordEdge",
  G: "searchStart",
};

const controls: Record<string, number> = { t: 9, n: 10, v: 11, f: 12, r: 13, a: 7, e: 27 };

export class PatternParser {
  readonly source: string;
  position = 0;
  #depth = 0;
  #groups = 0;
  readonly #names = new Map<string, number>();
  readonly #hasNames: boolean;
  readonly #sets = new Map<string, CharacterSet>();

  constructor(source: string) {
    if (source.length > LENGTH_LIMIT) throw new PatternError(`it is longer than ${LENGTH_LIMIT} characters`);
    this.source = source;
    this.#hasNames = /\(\?<[^=!]/.test(source);
  }

  parse(): Node {
    const node = this.#choice({ ignoreCase: false, dotAll: false, extended: false });
    if (this.position < this.source.length) throw new PatternError('")" closes no group');
    return node;
  }

  /** Whether the source goes on with a text, which is then passed. */
  take(text: string): boolean {
    if (!this.source.startsWith(text, this.position)) return false;
    this.position += text.length;
    return true;
  }

  /** The next character, passed. */
  next(): string {
    const code = this.source.codePointAt(this.position);
    if (code === undefined) throw new PatternError("it ends too early");
    const character = String.fromCodePoint(code);
    this.position += character.length;
    return character;
  }

  /** What ends with a text, passed with it. */
  until(end: string): string {
    const at = this.source.indexOf(end, this.position);
    if (at < 0) throw new PatternError(`expected "${end}"`);
    const text = this.source.slice(this.position, at);
    this.position = at + end.length;
    return text;
  }

  /** A set with one memory for each source that is written again. */
  set(key: string, make: () => Predicate): Node {
    let set = this.#sets.get(key);
    if (!set) {
      set = new CharacterSet(make());
      this.#sets.set(key, set);
    }
    return { kind: "set", set };
  }

  /** The code point of an escape that names one, null for others. `letter` is passed already. */
  escapedCodePoint(letter: string): number | null {
    if (Object.hasOwn(controls, letter)) return controls[letter]!;
    if (letter === "x" && this.take("{")) return this.#codePoint(this.until("}").trim(), 16);
    if (letter === "x") return this.#codePoint(this.#digits(/[0-9a-fA-F]{0,2}/y) || "0", 16);
    if (letter === "u") return this.#codePoint(this.#digits(/[0-9a-fA-F]{4}/y), 16);
    if (letter === "0") return this.#codePoint(this.#digits(/[0-7]{0,2}/y) || "0", 8);
    if (/[A-Za-z0-9]/.test(letter)) return null;
    return letter.codePointAt(0)!;
  }

  /** The class of `\p{name}`, behind its letter. */
  property(letter: string, ignoreCase: boolean): Predicate {
    if (!this.take("{")) throw new PatternError(`expected "{" after "\\${letter}"`);
    const text = this.until("}");
    const inverted = text.startsWith("^");
    const found = namedClass(inverted ? text.slice(1) : text, ignoreCase);
    if (!found) throw new PatternError(`"\\${letter}{${text}}" is not supported`);
    return inverted === (letter === "P") ? found : (codePoint) => !found(codePoint);
  }

  #digits(pattern: RegExp): string {
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

  #choice(flags: Flags): Node {
    if (++this.#depth > DEPTH_LIMIT) throw new PatternError(`groups are nested more than ${DEPTH_LIMIT} deep`);
    const branches = [this.#sequence(flags)];
    while (this.take("|")) branches.push(this.#sequence(flags));
    this.#depth--;
    return branches.length === 1 ? branches[0]! : { kind: "choice", nodes: branches };
  }

  #sequence(flags: Flags): Node {
    const nodes: Node[] = [];
    while (this.position < this.source.length && !/[|)]/.test(this.source[this.position]!)) {
      if (flags.extended && this.#skipBlank()) continue;
      if (this.take("(?#")) {
        this.until(")");
        continue;
      }
      const changed = this.#isolatedFlags(flags);
      if (changed) {
        // The flags hold to the end of the group, whose further branches are branches of this one.
        nodes.push(this.#choice(changed));
        break;
      }
      const node = this.#atom(flags);
      nodes.push(this.#repeats(node, flags));
    }
    return foldNodes(nodes);
  }

  #skipBlank(): boolean {
    if (this.take("#")) {
      const end = this.source.indexOf("\n", this.position);
      this.position = end < 0 ? this.source.length : end + 1;
      return true;
    }
    if (!/\s/.test(this.source[this.position]!)) return false;
    this.position++;
    return true;
  }

  #isolatedFlags(flags: Flags): Flags | null {
    const found = /^\(\?([imx]*)(?:-([imx]*))?\)/.exec(this.source.slice(this.position, this.position + 16));
    if (!found) return null;
    this.position += found[0].length;
    return changedFlags(flags, found[1]!, found[2] ?? "");
  }

  #atom(flags: Flags): Node {
    const character = this.next();
    if (character === "(") return this.#group(flags);
    if (character === "[") {
      const start = this.position;
      const predicate = new BracketParser(this, flags.ignoreCase).parse();
      return this.set(`[${flags.ignoreCase}${this.source.slice(start, this.position)}`, () => predicate);
    }
    if (character === ".") return this.set(`.${flags.dotAll}`, () => (code) => flags.dotAll || code !== 10);
    if (character === "^") return { kind: "place", place: "lineStart" };
    if (character === "$") return { kind: "place", place: "lineEnd" };
    if (character === "\\") return this.#escape(flags);
    if (/[*+?]/.test(character)) throw new PatternError(`"${character}" repeats nothing`);
    return { kind: "character", codePoint: character.codePointAt(0)!, ignoreCase: flags.ignoreCase };
  }

  #escape(flags: Flags): Node {
    const letter = this.next();
    if (Object.hasOwn(places, letter)) return { kind: "place", place: places[letter]! };
    if (letter === "p" || letter === "P") {
      const start = this.position;
      const predicate = this.property(letter, flags.ignoreCase);
      return this.set(`\\${letter}${flags.ignoreCase}${this.source.slice(start, this.position)}`, () => predicate);
    }
    const short = shorthand(letter);
    if (short) return this.set(`\\${letter}`, () => short);
    if (letter === "R") return this.#newline();
    if (letter === "k") return this.#backReference(this.#groupName());
    if (/[1-9]/.test(letter)) return this.#backReference(letter + this.#digits(/[0-9]?/y));
    const codePoint = this.escapedCodePoint(letter);
    if (codePoint === null) throw new PatternError(`"\\${letter}" is not supported`);
    return { kind: "character", codePoint, ignoreCase: flags.ignoreCase };
  }

  #newline(): Node {
    const single = this.set("\\R", () => classOf("\\n-\\r\\x85\\u2028\\u2029"));
    const both = [13, 10].map((codePoint): Node => ({ kind: "character", codePoint, ignoreCase: false }));
    return { kind: "atomic", node: { kind: "choice", nodes: [{ kind: "sequence", nodes: both }, single] } };
  }

  #groupName(): string {
    if (!this.take("<")) throw new PatternError('expected "<" after "\\k"');
    return this.until(">");
  }

  #backReference(name: string): Node {
    const index = /^\d+$/.test(name) ? Number(name) : this.#names.get(name);
    if (index === undefined || index < 1 || index > this.#groups || (this.#hasNames && /^\d+$/.test(name)))
      throw new PatternError(`"${name}" refers to no group before it`);
    return { kind: "back", index };
  }

  #group(flags: Flags): Node {
    if (this.take("*")) throw new PatternError('"(*" is not supported');
    if (!this.take("?")) {
      const index = this.#hasNames ? 0 : ++this.#groups;
      const node = this.#closed(flags);
      return index ? { kind: "group", index, node } : node;
    }
    if (this.take(":")) return this.#closed(flags);
    if (this.take(">")) return { kind: "atomic", node: this.#closed(flags) };
    for (const [sign, behind, negative] of looks)
      if (this.take(sign)) return { kind: "look", node: this.#closed(flags), behind, negative };
    if (this.take("<")) {
      const name = this.until(">");
      if (!/^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) || this.#names.has(name))
        throw new PatternError(`"(?<${name}>" is not supported`);
      const index = ++this.#groups;
      this.#names.set(name, index);
      return { kind: "group", index, node: this.#closed(flags) };
    }
    const found = /^([imx]*)(?:-([imx]*))?:/.exec(this.source.slice(this.position, this.position + 16));
    if (!found) throw new PatternError(`"(?${this.source.slice(this.position, this.position + 1)}" is not supported`);
    this.position += found[0].length;
    return this.#closed(changedFlags(flags, found[1]!, found[2] ?? ""));
  }

  #closed(flags: Flags): Node {
    const node = this.#choice(flags);
    if (!this.take(")")) throw new PatternError('expected ")"');
    return node;
  }

  #repeats(atom: Node, flags: Flags): Node {
    let node = atom;
    for (let count = 0; ; count++) {
      if (flags.extended) while (this.position < this.source.length && this.#skipBlank());
      const range = this.#quantifier();
      if (!range) return node;
      if (count > 8) throw new PatternError("too many signs of repetition in a row");
      if (node.kind === "place" || node.kind === "look") throw new PatternError("a place is repeated");
      node = this.#repeated(foldNodes([node]), range);
    }
  }

  #repeated(node: Node, { least, most, isInterval }: Quantifier): Node {
    // In Ruby's syntax "a{2}?" is "(?:a{2})?", and "a{1,2}+" is "(?:a{1,2})+".
    if (isInterval && least === most) return { kind: "repeat", node, least, most, mode: "greedy" };
    if (this.take("?")) return { kind: "repeat", node, least, most, mode: "lazy" };
    if (!isInterval && this.take("+")) return { kind: "repeat", node, least, most, mode: "possessive" };
    return { kind: "repeat", node, least, most, mode: "greedy" };
  }

  #quantifier(): Quantifier | null {
    if (this.take("*")) return { least: 0, most: Number.POSITIVE_INFINITY, isInterval: false };
    if (this.take("+")) return { least: 1, most: Number.POSITIVE_INFINITY, isInterval: false };
    if (this.take("?")) return { least: 0, most: 1, isInterval: false };
    const found = /^\{(\d*)(,?)(\d*)\}/.exec(this.source.slice(this.position, this.position + 20));
    if (!found || (!found[1] && !found[3])) return null;
    this.position += found[0].length;
    const least = Number(found[1] || 0);
    const most = found[3] ? Number(found[3]) : found[2] ? Number.POSITIVE_INFINITY : least;
    if (least > most) throw new PatternError(`"${found[0]}" is not supported`);
    if (least > REPEAT_LIMIT || (most > REPEAT_LIMIT && most !== Number.POSITIVE_INFINITY))
      throw new PatternError(`"${found[0]}" repeats more than ${REPEAT_LIMIT} times`);
    return { least, most, isInterval: true };
  }
}

interface Quantifier {
  readonly least: number;
  readonly most: number;
  readonly isInterval: boolean;
}

const looks = [
  ["=", false, false],
  ["!", false, true],
  ["<=", true, false],
  ["<!", true, true],
] as const;

function changedFlags(flags: Flags, on: string, off: string): Flags {
  const flag = (letter: string, before: boolean) => (before || on.includes(letter)) && !off.includes(letter);
  return {
    ignoreCase: flag("i", flags.ignoreCase),
    dotAll: flag("m", flags.dotAll),
    extended: flag("x", flags.extended),
  };
}
