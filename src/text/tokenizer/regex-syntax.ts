/** Parses patterns in Oniguruma's Ruby syntax, that of tokenizer.json, to syntax trees. Unsupported syntax is refused. */

import { CharacterSet, classOf, type Predicate } from "./character-set.ts";
import { BracketParser } from "./regex-brackets.ts";
import { foldNodes } from "./regex-case.ts";
import { shorthand } from "./regex-classes.ts";
import type { Node, Place } from "./regex-node.ts";
import { PatternError, PatternReader } from "./regex-reader.ts";

export interface Flags {
  readonly ignoreCase: boolean;
  readonly dotAll: boolean;
  readonly extended: boolean;
}

/** Deepest nesting of groups, which bounds the stack. */
const DEPTH_LIMIT = 200;
/** Largest repeat count, that of Oniguruma. */
const REPEAT_LIMIT = 100_000;

const places: Record<string, Place> = {
  A: "textStart",
  z: "textEnd",
  Z: "finalEnd",
  b: "wordEdge",
  B: "noWordEdge",
  G: "searchStart",
};

export class PatternParser extends PatternReader {
  #depth = 0;
  #groups = 0;
  readonly #names = new Map<string, number>();
  readonly #hasNames: boolean;
  readonly #sets = new Map<string, CharacterSet>();

  constructor(source: string) {
    super(source);
    this.#hasNames = /\(\?<[^=!]/.test(source);
  }

  parse(): Node {
    const node = this.#choice({ ignoreCase: false, dotAll: false, extended: false });
    if (this.position < this.source.length) throw new PatternError('")" closes no group');
    return node;
  }

  /** A set, which is shared by all occurrences of the same source. */
  set(key: string, make: () => Predicate): Node {
    let set = this.#sets.get(key);
    if (!set) {
      set = new CharacterSet(make());
      this.#sets.set(key, set);
    }
    return { kind: "set", set };
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
        // The flags apply to the end of the group, so its further alternatives are alternatives of this node.
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
      const predicate = this.property(letter);
      return this.set(`\\${letter}${this.source.slice(start, this.position)}`, () => predicate);
    }
    const short = shorthand(letter, false);
    if (short) return this.set(`\\${letter}`, () => short);
    if (letter === "R") return this.#newline();
    if (letter === "k") return this.#backReference(this.#groupName());
    if (/[1-9]/.test(letter)) return this.#backReference(letter + this.digits(/[0-9]?/y));
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
