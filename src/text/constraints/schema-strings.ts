/** Strings of JSON schemas as grammars. */
import { InvalidArgumentError } from "../../errors.ts";
import { choice, intersection, type Node, oneOf, relaxed, repeat, rule, sequence, text } from "./grammar.ts";
import { RAW } from "./json-text.ts";
import { parseRegex } from "./regex.ts";
import { refused, type Schema } from "./schema-keywords.ts";
import type { SchemaScope } from "./schema-scope.ts";

/** Lengths beyond this are no limits. */
const LENGTH_MAX = 1_000_000;

const digits = "[0-9]";
const date = `${digits}{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])`;
const time = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
const byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const label = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,20}[a-zA-Z0-9])?";
const host = `${label}(\\.${label}){0,5}`;

/** Expressions of formats: all that they match is of the format. Days beyond the 28th are left out. */
const FORMATS: Readonly<Record<string, string>> = {
  date: `^${date}$`,
  time: `^${time}$`,
  "date-time": `^${date}T${time}$`,
  uuid: "^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
  email: `^[a-zA-Z0-9_+-]+(\\.[a-zA-Z0-9_+-]+){0,3}@([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?\\.)+[a-zA-Z]{2,12}$`,
  ipv4: `^(${byte}\\.){3}${byte}$`,
  hostname: `^${host}$`,
  uri: `^https?://${host}(:[1-9][0-9]{0,3})?(/[a-zA-Z0-9_.~-]*)*([?][a-zA-Z0-9_.~=&-]*)?$`,
  "json-pointer": "^(/[a-zA-Z0-9_.-]*)*$",
};

/** Patterns of formats with look-around, as zod writes them: what the format's own expression matches, they match. */
const EXPLAINED: readonly (readonly [format: string, start: string])[] = [["email", "^(?!\\.)(?!.*\\.\\.)"]];

/** A string with its quotes; null where there is none. */
export function stringOf(keywords: Schema, at: string, scope: SchemaScope): Node | null {
  const { pattern, format } = keywords;
  const [min, max] = [
    length(keywords, "minLength", at) ?? 0,
    length(keywords, "maxLength", at) ?? Number.POSITIVE_INFINITY,
  ];
  if (min > max) return null;
  const hasLength = min > 0 || max !== Number.POSITIVE_INFINITY;
  const expression = expressionOf(pattern, format, at);
  if (expression !== null) {
    const node = patternOf(expression, `${at}/${pattern === undefined ? "format" : "pattern"}`, scope);
    const [least, most] = lengthsOf(node);
    if (hasLength && (least < min || most > max))
      throw refused(at, "a length beside a pattern or format that does not have it by itself");
    return sequence(text('"'), node, text('"'));
  }
  if (!hasLength) return rule("string");
  for (const [name, value] of Object.entries({ minLength: min, maxLength: max }))
    if (value > LENGTH_MAX && value !== Number.POSITIVE_INFINITY)
      throw refused(`${at}/${name}`, `a length of more than ${LENGTH_MAX} characters`);
  const end = max === Number.POSITIVE_INFINITY ? rule("stringRest") : text('"');
  const count = max === Number.POSITIVE_INFINITY ? min : max;
  return relaxed(sequence(text('"'), repeat(rule("character"), min, count), end), rule("string"));
}

function length(keywords: Schema, name: string, at: string): number | null {
  const value = keywords[name];
  if (value === undefined) return null;
  if (Number.isInteger(value) && (value as number) >= 0) return value as number;
  throw new InvalidArgumentError(
    `schema ${at}/${name}: expected a whole number from 0 but found ${JSON.stringify(value)}`,
  );
}

/** The expression of a pattern, which also says what a format beside it means, or of a format; null without both. */
function expressionOf(pattern: unknown, format: unknown, at: string): string | null {
  if (pattern !== undefined && typeof pattern !== "string")
    throw new InvalidArgumentError(`schema ${at}/pattern: expected an expression but found ${JSON.stringify(pattern)}`);
  const isExplained = EXPLAINED.some(([name, start]) => name === format && pattern?.startsWith(start));
  if (pattern !== undefined && !isExplained) return pattern;
  if (format === undefined) return null;
  if (typeof format === "string" && Object.hasOwn(FORMATS, format)) return FORMATS[format]!;
  throw refused(`${at}/format`, `the format ${JSON.stringify(format)}, other than ${Object.keys(FORMATS).join(", ")},`);
}

/** What an expression matches within a string, as it stands in JSON. */
function patternOf(expression: string, at: string, scope: SchemaScope): Node {
  const { node, fromStart, toEnd } = parseRegex(expression, `schema ${at}`);
  const any = repeat(oneOf(RAW), 0);
  const inner = inJson(node, at);
  return scope.define(sequence(...(fromStart ? [] : [any]), inner, ...(toEnd ? [] : [any])));
}

const CONTROLS: Readonly<Record<number, string>> = { 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r" };

/** A grammar of characters as JSON writes them: of classes, the characters that need no escape, where there are any. */
function inJson(node: Node, at: string): Node {
  switch (node.kind) {
    case "text":
      return text(JSON.stringify(node.text).slice(1, -1));
    case "class": {
      const raw = intersection(node.ranges, RAW);
      if (raw.length > 0) return oneOf(raw);
      const points = node.ranges.flatMap(([first, last]) =>
        Array.from({ length: last - first + 1 }, (_, i) => first + i),
      );
      if (points.length === 0) throw refused(at, "a class without characters");
      return choice(points.map((point) => text(escaped(point))));
    }
    case "sequence":
      return { ...node, parts: node.parts.map((part) => inJson(part, at)) };
    case "choice":
      return { ...node, options: node.options.map((option) => inJson(option, at)) };
    case "repeat":
      return { ...node, part: inJson(node.part, at) };
    case "rule":
    case "relaxed":
      return node;
  }
}

function escaped(point: number): string {
  if (point === 0x22) return '\\"';
  if (point === 0x5c) return "\\\\";
  return CONTROLS[point] ?? `\\u${point.toString(16).padStart(4, "0")}`;
}

/** Fewest and most characters of a grammar without rules, escapes counted as what they stand for or more. */
function lengthsOf(node: Node): [least: number, most: number] {
  switch (node.kind) {
    case "text": {
      const count = [...(JSON.parse(`"${node.text}"`) as string)].length;
      return [count, count];
    }
    case "class":
      return [1, 1];
    case "sequence":
      return node.parts.map(lengthsOf).reduce((a, b) => [a[0] + b[0], a[1] + b[1]], [0, 0] as [number, number]);
    case "choice": {
      const all = node.options.map(lengthsOf);
      return [Math.min(...all.map(([least]) => least)), Math.max(...all.map(([, most]) => most))];
    }
    case "repeat": {
      const [least, most] = lengthsOf(node.part);
      return [least * node.min, most === 0 ? 0 : most * node.max];
    }
    case "rule":
    case "relaxed":
      return [0, Number.POSITIVE_INFINITY];
  }
}
