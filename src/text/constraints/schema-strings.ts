/** Compiles strings of JSON schemas to grammars. */
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import { type Automaton, AutomatonSizeError, allBut, automatonOf } from "./automaton.ts";
import { automatonState } from "./automaton-states.ts";
import { intersection } from "./code-points.ts";
import { choice, EMPTY, followed, type Node, oneOf, relaxed, repeat, rule, sequence, text } from "./grammar.ts";
import { ESCAPABLE, inJson } from "./json-escapes.ts";
import { RAW } from "./json-text.ts";
import { type Expression, parseRegex } from "./regex.ts";
import { allOf, FORMATS, formatOf } from "./schema-formats.ts";
import { countOf, Joined, refused, type Schema } from "./schema-keywords.ts";
import type { SchemaScope } from "./schema-scope.ts";

/**
 * Constraints on strings beside `minLength` and `maxLength`: automata of which all must accept, and the expression for the
 * engine.
 */
interface Forms {
  readonly automata: readonly Automaton[];
  readonly superset: Expression | null;
  readonly maxLength: number;
}

/** Grammar of a quoted string other than some texts; null where none is valid. */
export function stringOf(
  keywords: Schema,
  at: string,
  scope: SchemaScope,
  excluded: readonly string[] = [],
): Node | null {
  const min = countOf(keywords, "minLength", at) ?? 0;
  const most = countOf(keywords, "maxLength", at) ?? Number.POSITIVE_INFINITY;
  const forms = formsOf(keywords, excluded, at);
  const max = Math.min(most, forms?.maxLength ?? most);
  if (min > max) return null;
  if (forms) return constrainText(forms, { min, max }, at, scope);
  if (min === 0 && max === Number.POSITIVE_INFINITY) return rule("string");
  const end = max === Number.POSITIVE_INFINITY ? rule("stringRest") : text('"');
  const count = max === Number.POSITIVE_INFINITY ? min : max;
  return relaxed(sequence(text('"'), repeat(rule("character"), min, count), end), rule("string"));
}

function constrainText(
  { automata, superset }: Forms,
  bounds: { min: number; max: number },
  at: string,
  scope: SchemaScope,
): Node | null {
  try {
    const state = automatonState(allOf(automata), bounds);
    return (
      state && scope.define(sequence(text('"'), relaxed(followed(inJson(state)), supersetOf(superset, at)), text('"')))
    );
  } catch (cause) {
    if (!(cause instanceof AutomatonSizeError)) throw cause;
    throw new UnsupportedError(
      `schema ${at}: patterns, formats and lengths of so many cases together cannot be enforced token by token; take some out, and check the value`,
      { cause },
    );
  }
}

/** A looser form of an expression for the engine; any characters without one. */
function supersetOf(expression: Expression | null, at: string): Node {
  const any = repeat(choice([oneOf(RAW), rule("escaped")]), 0);
  if (!expression) return any;
  const { node, fromStart, toEnd } = expression;
  return sequence(fromStart ? EMPTY : any, supersetInJson(node, at), toEnd ? EMPTY : any);
}

/** Constraints of patterns, formats and excluded texts; null without any. */
function formsOf({ pattern, format }: Schema, excluded: readonly string[], at: string): Forms | null {
  const patterns = pattern === undefined ? [] : Joined.values(pattern);
  const expressions = patterns.map((one) => {
    if (typeof one === "string") return parseRegex(one, `schema ${at}/pattern`);
    throw new InvalidArgumentError(`schema ${at}/pattern: expected an expression but found ${JSON.stringify(one)}`);
  });
  const names = format === undefined ? [] : Joined.values(format);
  const formats = names.flatMap((name) => {
    const found = typeof name === "string" ? formatOf(name) : null;
    if (found) return [found];
    // Beside a pattern, an unknown format is only an annotation.
    if (patterns.length > 0) return [];
    throw refused(`${at}/format`, `the format ${JSON.stringify(name)}, other than ${FORMATS.join(", ")},`);
  });
  const [superset = null] = [...expressions, ...formats.map((one) => parseRegex(`^(?:${one.superset})$`, "format"))];
  if (!superset && excluded.length === 0) return null;
  return {
    automata: [
      ...expressions.map(({ tree }) => automatonOf(tree)),
      ...formats.map(({ automaton }) => automaton),
      ...(excluded.length > 0 ? [allBut(excluded)] : []),
    ],
    superset,
    maxLength: Math.min(...formats.map(({ maxLength }) => maxLength)),
  };
}

/** A node for the engine as written within a string: characters that may be escaped become any escape (rule `escaped`). */
export function supersetInJson(node: Node, at: string): Node {
  switch (node.kind) {
    case "text":
      if (/^[ !#-[\]-~]*$/.test(node.text)) return node;
      return sequence(...[...node.text].map((character) => supersetInJson(oneOf([pointOf(character)]), at)));
    case "class": {
      if (node.ranges.length === 0) throw refused(at, "a class without characters");
      const raw = intersection(node.ranges, RAW);
      if (intersection(node.ranges, ESCAPABLE).length === 0) return oneOf(raw);
      return raw.length === 0 ? rule("escaped") : choice([oneOf(raw), rule("escaped")]);
    }
    case "sequence":
      return { ...node, parts: node.parts.map((part) => supersetInJson(part, at)) };
    case "choice":
      return { ...node, options: node.options.map((option) => supersetInJson(option, at)) };
    case "repeat":
      return { ...node, part: supersetInJson(node.part, at) };
    case "rule":
    case "relaxed":
      return node;
  }
}

function pointOf(character: string): [number, number] {
  return [character.codePointAt(0)!, character.codePointAt(0)!];
}
