/** Strings of JSON schemas as grammars. */
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import { type Automaton, AutomatonSizeError, automatonOf } from "./automaton.ts";
import { automatonState } from "./automaton-states.ts";
import { intersection } from "./code-points.ts";
import { choice, EMPTY, followed, type Node, oneOf, relaxed, repeat, rule, sequence, text } from "./grammar.ts";
import { ESCAPABLE, inJson } from "./json-escapes.ts";
import { RAW } from "./json-text.ts";
import { type Expression, parseRegex } from "./regex.ts";
import { allOf, FORMATS, formatOf } from "./schema-formats.ts";
import { Joined, refused, type Schema } from "./schema-keywords.ts";
import type { SchemaScope } from "./schema-scope.ts";

/** What strings are held to beside their length: automata of their characters, and the first one's expression. */
interface Forms {
  readonly automata: readonly Automaton[];
  readonly told: Expression;
  readonly maxLength: number;
}

/** A string with its quotes; null where there is none. */
export function stringOf(keywords: Schema, at: string, scope: SchemaScope): Node | null {
  const min = length(keywords, "minLength", at) ?? 0;
  const most = length(keywords, "maxLength", at) ?? Number.POSITIVE_INFINITY;
  const forms = formsOf(keywords, at);
  const max = Math.min(most, forms?.maxLength ?? most);
  if (min > max) return null;
  if (forms) return heldTo(forms, { min, max }, at, scope);
  if (min === 0 && max === Number.POSITIVE_INFINITY) return rule("string");
  const end = max === Number.POSITIVE_INFINITY ? rule("stringRest") : text('"');
  const count = max === Number.POSITIVE_INFINITY ? min : max;
  return relaxed(sequence(text('"'), repeat(rule("character"), min, count), end), rule("string"));
}

function heldTo(
  { automata, told }: Forms,
  bounds: { min: number; max: number },
  at: string,
  scope: SchemaScope,
): Node | null {
  try {
    const state = automatonState(allOf(automata), bounds);
    if (!state) return null;
    const any = told.fromStart && told.toEnd ? EMPTY : repeat(toldInJson(oneOf(RAW), at), 0);
    const inner = [told.fromStart ? EMPTY : any, toldInJson(told.node, at), told.toEnd ? EMPTY : any];
    return scope.define(sequence(text('"'), relaxed(followed(inJson(state)), sequence(...inner)), text('"')));
  } catch (cause) {
    if (!(cause instanceof AutomatonSizeError)) throw cause;
    throw new UnsupportedError(
      `schema ${at}: patterns, formats and lengths of so many cases together cannot be held to token by token; take some out, and check the value`,
      { cause },
    );
  }
}

function length(keywords: Schema, name: string, at: string): number | null {
  const value = keywords[name];
  if (value === undefined) return null;
  if (Number.isInteger(value) && (value as number) >= 0) return value as number;
  throw new InvalidArgumentError(
    `schema ${at}/${name}: expected a whole number from 0 but found ${JSON.stringify(value)}`,
  );
}

/** What patterns and formats say; null without both. */
function formsOf({ pattern, format }: Schema, at: string): Forms | null {
  const patterns = pattern === undefined ? [] : Joined.values(pattern);
  const expressions = patterns.map((one) => {
    if (typeof one === "string") return parseRegex(one, `schema ${at}/pattern`);
    throw new InvalidArgumentError(`schema ${at}/pattern: expected an expression but found ${JSON.stringify(one)}`);
  });
  const names = format === undefined ? [] : Joined.values(format);
  const formats = names.flatMap((name) => {
    const found = typeof name === "string" ? formatOf(name) : null;
    if (found) return [found];
    // A format that no list has is a note beside a pattern.
    if (patterns.length > 0) return [];
    throw refused(`${at}/format`, `the format ${JSON.stringify(name)}, other than ${FORMATS.join(", ")},`);
  });
  const [told] = [...expressions, ...formats.map((one) => parseRegex(one.told, `schema ${at}/format`))];
  if (!told) return null;
  return {
    automata: [...expressions.map(({ tree }) => automatonOf(tree)), ...formats.map(({ automaton }) => automaton)],
    told,
    maxLength: Math.min(...formats.map(({ maxLength }) => maxLength)),
  };
}

/** What the engine is told of characters within a string: where they may be escapes, of all escapes. */
function toldInJson(node: Node, at: string): Node {
  switch (node.kind) {
    case "text":
      if (/^[ !#-[\]-~]*$/.test(node.text)) return node;
      return sequence(...[...node.text].map((character) => toldInJson(oneOf([pointOf(character)]), at)));
    case "class": {
      if (node.ranges.length === 0) throw refused(at, "a class without characters");
      const raw = intersection(node.ranges, RAW);
      if (intersection(node.ranges, ESCAPABLE).length === 0) return oneOf(raw);
      return raw.length === 0 ? rule("escaped") : choice([oneOf(raw), rule("escaped")]);
    }
    case "sequence":
      return { ...node, parts: node.parts.map((part) => toldInJson(part, at)) };
    case "choice":
      return { ...node, options: node.options.map((option) => toldInJson(option, at)) };
    case "repeat":
      return { ...node, part: toldInJson(node.part, at) };
    case "rule":
    case "relaxed":
      return node;
  }
}

function pointOf(character: string): [number, number] {
  return [character.codePointAt(0)!, character.codePointAt(0)!];
}
