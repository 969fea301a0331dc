/** Grammars of JSON: strings, numbers and any value, with white space as people write it. */
import {
  anyOf,
  choice,
  complement,
  type Node,
  oneOf,
  optional,
  type Range,
  repeat,
  rule,
  sequence,
  text,
} from "./grammar.ts";

/** Code points that stand in strings as they are: all but quotes, backslashes and control characters. */
export const RAW: readonly Range[] = complement([
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
]);

const hex = anyOf("0123456789abcdefABCDEF");
/** Digits of a code point that is no half of another: its first, and one of its second. */
const unicode = choice([
  sequence(anyOf("0123456789abcefABCEF"), repeat(hex, 3, 3)),
  sequence(anyOf("dD"), anyOf("01234567"), repeat(hex, 2, 2)),
]);

/** White space between things: none, a space, or a new line that is indented. */
const SPACE = choice([text(""), text(" "), sequence(text("\n"), repeat(anyOf(" \t"), 0, 16))]);

/** What stands between two items of a list. */
export const SEPARATOR: Node = sequence(text(","), rule("ws"));

/** Rules of JSON that schemas refer to; only those that a grammar needs become part of it. */
export const JSON_RULES: ReadonlyMap<string, Node> = new Map([
  ["ws", SPACE],
  ["string", sequence(text('"'), rule("stringRest"))],
  [
    // In one rule, so that the engine knows what most tokens are without their surroundings.
    "stringRest",
    choice([
      text('"'),
      sequence(oneOf(RAW), rule("stringRest")),
      sequence(text("\\"), rule("escape"), rule("stringRest")),
    ]),
  ],
  ["character", choice([oneOf(RAW), sequence(text("\\"), rule("escape"))])],
  ["escape", choice([anyOf('"\\/bfnrt'), sequence(text("u"), unicode)])],
  [
    "integer",
    choice([text("0"), sequence(optional(text("-")), anyOf("123456789"), repeat(anyOf("0123456789"), 0, 14))]),
  ],
  [
    "number",
    sequence(
      optional(text("-")),
      choice([text("0"), sequence(anyOf("123456789"), repeat(anyOf("0123456789"), 0, 14))]),
      optional(sequence(text("."), repeat(anyOf("0123456789"), 1, 15))),
      optional(sequence(anyOf("eE"), optional(anyOf("+-")), repeat(anyOf("0123456789"), 1, 2))),
    ),
  ],
  ["boolean", choice([text("true"), text("false")])],
  ["null", text("null")],
  ["array", list("[", rule("value"), "]")],
  ["object", list("{", member(rule("string"), rule("value")), "}")],
  ["value", choice([rule("string"), rule("number"), rule("boolean"), rule("null"), rule("array"), rule("object")])],
]);

/** A member of an object. */
export function member(key: Node, value: Node): Node {
  return sequence(key, text(":"), rule("ws"), value);
}

/** Any number of items between brackets. */
function list(open: string, item: Node, close: string): Node {
  const items = sequence(item, repeat(sequence(SEPARATOR, item), 0));
  return sequence(text(open), rule("ws"), optional(sequence(items, rule("ws"))), text(close));
}

/** A key that is none of some names. */
export function otherKeys(names: readonly string[], define: (node: Node) => Node): Node {
  const inner = (rest: readonly string[]): Node => {
    const children = new Map<string, string[]>();
    for (const name of rest) {
      const [first] = name;
      if (first !== undefined) children.set(first, [...(children.get(first) ?? []), name.slice(first.length)]);
    }
    const taken = [...children.keys()].map((character): Range => {
      const point = character.codePointAt(0)!;
      return [point, point];
    });
    const free = oneOf(complement([...complement(RAW), ...taken]));
    const options: Node[] = [sequence(free, rule("stringRest"))];
    if (!rest.includes("")) options.push(text('"'));
    // Names with quotes and the like are only reached by escapes, which keys of this kind do not begin with.
    for (const [character, tails] of children)
      if (character >= " " && character !== '"' && character !== "\\")
        options.push(sequence(text(character), inner(tails)));
    return define(choice(options));
  };
  return sequence(text('"'), inner(names));
}
