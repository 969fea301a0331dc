/**
 * Parses bracket classes: ranges, names, nested classes and intersections. Case is ignored for the outermost class as a whole.
 */
import { allOf, anyOf, not, type Predicate } from "./character-set.ts";
import { ignoringCase } from "./regex-case.ts";
import { bracketClass, shorthand } from "./regex-classes.ts";
import { PatternError, type PatternReader } from "./regex-reader.ts";

/** Deepest nesting of classes. */
const DEPTH_LIMIT = 50;

export class BracketParser {
  readonly #parser: PatternReader;
  readonly #ignoreCase: boolean;
  readonly #depth: number;

  constructor(parser: PatternReader, ignoreCase: boolean, depth = 0) {
    if (depth > DEPTH_LIMIT) throw new PatternError(`classes are nested more than ${DEPTH_LIMIT} deep`);
    this.#parser = parser;
    this.#ignoreCase = ignoreCase;
    this.#depth = depth;
  }

  /** Parses a class after its "[", including its "]". */
  parse(): Predicate {
    const parser = this.#parser;
    const inverted = parser.take("^");
    const operands: Predicate[] = [];
    let parts: Predicate[] = [];
    for (let isFirst = true; ; isFirst = false) {
      if (!isFirst && parser.take("]")) break;
      if (parser.take("&&")) {
        operands.push(anyOf(parts));
        parts = [];
      } else parts.push(this.#part());
    }
    operands.push(anyOf(parts));
    const exact = operands.length === 1 ? operands[0]! : allOf(operands);
    const predicate = this.#ignoreCase ? ignoringCase(exact) : exact;
    return inverted ? not(predicate) : predicate;
  }

  #part(): Predicate {
    const parser = this.#parser;
    const posix = this.#posix();
    if (posix) return posix;
    if (parser.take("[")) return new BracketParser(parser, false, this.#depth + 1).parse();
    const from = this.#member();
    if (typeof from !== "number") return from;
    const { source, position } = parser;
    const isRange = source[position] === "-" && source[position + 1] !== "]" && source[position + 1] !== undefined;
    if (!isRange || source.startsWith("-[", position) || source.startsWith("-&&", position)) return range(from, from);
    parser.position++;
    const to = this.#member();
    if (typeof to !== "number") {
      const dash = range(45, 45);
      return anyOf([range(from, from), dash, to]);
    }
    if (to < from) throw new PatternError("a range of a class ends before it begins");
    return range(from, to);
  }

  /** Parses a member: a code point or a class. */
  #member(): number | Predicate {
    const parser = this.#parser;
    const character = parser.next();
    if (character !== "\\") return character.codePointAt(0)!;
    const letter = parser.next();
    if (letter === "p" || letter === "P") return parser.property(letter);
    const short = shorthand(letter, true);
    if (short) return short;
    if (letter === "b") return 8;
    const codePoint = parser.escapedCodePoint(letter);
    if (codePoint === null) throw new PatternError(`"\\${letter}" in a class is not supported`);
    return codePoint;
  }

  #posix(): Predicate | null {
    const parser = this.#parser;
    const found = /^\[:(\^?)(\w+):\]/.exec(parser.source.slice(parser.position, parser.position + 20));
    if (!found) return null;
    parser.position += found[0].length;
    const predicate = bracketClass(found[2]!);
    if (!predicate) throw new PatternError(`"${found[0]}" is not supported`);
    return found[1] ? not(predicate) : predicate;
  }
}

function range(from: number, to: number): Predicate {
  return (codePoint) => codePoint >= from && codePoint <= to;
}
