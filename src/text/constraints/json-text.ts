/** Grammars of JSON: strings, numbers and any value, with the white space that is usual. */
import { complement, type Range } from "./code-points.ts";
import {
  anyOf,
  choice,
  followed,
  type Node,
  oneOf,
  optional,
  relaxed,
  repeat,
  rule,
  sequence,
  text,
} from "./grammar.ts";
import { numberState } from "./number-states.ts";

/** Code points that need no escape in strings: all but quotes, backslashes and control characters. */
export const RAW: readonly Range[] = complement([
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
]);

const hex = anyOf("0123456789abcdefABCDEF");
const hexes = (count: number) => repeat(hex, count, count);
/** Hex digits after `\u`: one UTF-16 unit, or a surrogate pair. */
const unicode = choice([
  sequence(anyOf("0123456789abcefABCEF"), hexes(3)),
  sequence(anyOf("dD"), anyOf("01234567"), hexes(2)),
  sequence(anyOf("dD"), anyOf("89abAB"), hexes(2), text("\\u"), anyOf("dD"), anyOf("cdefCDEF"), hexes(2)),
]);

/** White space between tokens of JSON: none, a space, or a new line with indentation. */
const SPACE = choice([text(""), text(" "), sequence(text("\n"), repeat(anyOf(" \t"), 0, 16))]);

/** Separator of list items and members. */
export const SEPARATOR: Node = sequence(text(","), rule("ws"));

const digits = (min: number, max?: number) => repeat(anyOf("0123456789"), min, max);
const whole = sequence(optional(text("-")), choice([text("0"), sequence(anyOf("123456789"), digits(0))]));

/** Any number, in the looser form that the engine gets. */
const NUMBERS: Node = sequence(
  whole,
  optional(sequence(text("."), digits(1))),
  optional(sequence(anyOf("eE"), optional(anyOf("+-")), digits(1, 3))),
);

/** Numbers within the range of a double, or integers written in digits alone. */
function numbers(isInteger: boolean): Node {
  const state = numberState({ low: null, high: null, step: null, isInteger })!;
  return relaxed(followed(state), isInteger ? whole : NUMBERS);
}

/** Rules of JSON that schemas refer to; unused ones are left out of a grammar. */
export function jsonRules(): ReadonlyMap<string, Node> {
  return new Map([
    ["ws", SPACE],
    ["string", sequence(text('"'), rule("stringRest"))],
    [
      // One rule, so that the engine can decide most tokens without context.
      "stringRest",
      choice([
        text('"'),
        sequence(oneOf(RAW), rule("stringRest")),
        sequence(text("\\"), rule("escape"), rule("stringRest")),
      ]),
    ],
    ["character", choice([oneOf(RAW), rule("escaped")])],
    ["escaped", sequence(text("\\"), rule("escape"))],
    ["escape", choice([anyOf('"\\/bfnrt'), sequence(text("u"), unicode)])],
    ["integer", numbers(true)],
    ["number", numbers(false)],
    ["boolean", choice([text("true"), text("false")])],
    ["null", text("null")],
    ["array", list("[", rule("value"), "]")],
    ["object", list("{", member(rule("string"), rule("value")), "}")],
    ["value", choice(["string", "number", "boolean", "null", "array", "object"].map(rule))],
  ]);
}

/** A member of an object: key, colon and value. */
export function member(key: Node, value: Node): Node {
  return sequence(key, text(":"), rule("ws"), value);
}

/** A fixed value, with any usual white space, and with characters beyond ASCII perhaps escaped. */
export function literal(value: unknown): Node {
  if (typeof value === "string") return sequence(text('"'), ...[...value].map(literalCharacter), text('"'));
  if (typeof value !== "object" || value === null) return text(JSON.stringify(value));
  const items = Array.isArray(value)
    ? value.map(literal)
    : Object.entries(value).map(([key, own]) => member(literal(key), literal(own)));
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const following = items.map((item, index) => (index === 0 ? item : sequence(SEPARATOR, item)));
  const end = items.length > 0 ? [rule("ws")] : [];
  return sequence(text(open), rule("ws"), ...following, ...end, text(close));
}

function literalCharacter(character: string): Node {
  const raw = JSON.stringify(character).slice(1, -1);
  if (character <= "~") return text(raw);
  const units = Array.from({ length: character.length }, (_, i) =>
    character.charCodeAt(i).toString(16).padStart(4, "0"),
  );
  const escapes = [units, units.map((unit) => unit.toUpperCase())].map((all) =>
    all.map((unit) => `\\u${unit}`).join(""),
  );
  return choice([...new Set([raw, ...escapes])].map(text));
}

/** A bracketed list of any number of items. */
function list(open: string, item: Node, close: string): Node {
  const items = sequence(item, repeat(sequence(SEPARATOR, item), 0));
  return sequence(text(open), rule("ws"), optional(sequence(items, rule("ws"))), text(close));
}
