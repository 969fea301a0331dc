/** Compiles objects of JSON schemas to grammars. */
import { InvalidArgumentError } from "../../errors.ts";
import { choice, type Node, optional, repeat, rule, sequence, text } from "./grammar.ts";
import { literal, member, SEPARATOR } from "./json-text.ts";
import { checkedKeywords, countOf, isSchema, KEYWORDS_OF, refused, type Schema } from "./schema-keywords.ts";
import type { SchemaScope } from "./schema-scope.ts";
import { stringOf } from "./schema-strings.ts";

interface Property {
  readonly node: Node;
  readonly isRequired: boolean;
}

/** Grammar of an object; null where none is valid. */
export function objectOf(given: Schema, at: string, scope: SchemaScope): Node | null {
  const keywords = withListedNames(given, at);
  const named = namedSchemas(keywords, at);
  const required = requiredNames(keywords, at);
  const names = [...new Set([...Object.keys(named), ...required])];
  const properties: Property[] = [];
  for (const name of names) {
    const isRequired = required.has(name);
    const schema = Object.hasOwn(named, name) ? named[name] : (keywords.additionalProperties ?? true);
    const value = isNameAllowed(name, keywords, at, scope) ? scope.node(schema, `${at}/properties/${name}`) : null;
    if (value !== null) properties.push({ node: scope.define(member(literal(name), scope.define(value))), isRequired });
    else if (isRequired) return null;
  }
  const others = otherProperties(keywords, names, at, scope);
  checkCounts(keywords, { least: required.size, most: others ? Number.POSITIVE_INFINITY : properties.length }, at);
  const inner = ordered(properties, others, scope);
  const isEmpty = properties.every(({ isRequired }) => !isRequired);
  const content = inner && sequence(inner, rule("ws"));
  return scope.define(
    sequence(text("{"), rule("ws"), ...(content ? [isEmpty ? optional(content) : content] : []), text("}")),
  );
}

/** Turns an enum in `propertyNames` into properties; no other names are allowed then. */
function withListedNames({ propertyNames, ...keywords }: Schema, at: string): Schema {
  const names = isSchema(propertyNames) ? propertyNames.enum : undefined;
  if (!Array.isArray(names)) return propertyNames === undefined ? keywords : { ...keywords, propertyNames };
  const { type = "string", enum: _, ...rest } = propertyNames as Schema;
  if (type !== "string" || Object.keys(rest).length > 0) throw refused(`${at}/propertyNames`, "keywords beside enum");
  const given = namedSchemas(keywords, at);
  const listed = names.map((name) => [
    name,
    Object.hasOwn(given, name) ? given[name] : (keywords.additionalProperties ?? true),
  ]);
  const unlisted = Object.keys(given)
    .filter((name) => !names.includes(name))
    .map((name) => [name, false]);
  return { ...keywords, properties: Object.fromEntries([...listed, ...unlisted]), additionalProperties: false };
}

function namedSchemas({ properties = {} }: Schema, at: string): Schema {
  if (!isSchema(properties)) throw new InvalidArgumentError(`schema ${at}/properties: expected an object of schemas`);
  return properties;
}

function requiredNames({ required = [] }: Schema, at: string): ReadonlySet<string> {
  if (!Array.isArray(required) || !required.every((name) => typeof name === "string"))
    throw new InvalidArgumentError(`schema ${at}/required: expected a list of names`);
  return new Set(required);
}

/** Whether `propertyNames` allows a name. */
function isNameAllowed(name: string, { propertyNames }: Schema, at: string, scope: SchemaScope): boolean {
  if (propertyNames === undefined) return true;
  return scope.node({ allOf: [{ const: name }, propertyNames] }, `${at}/propertyNames`) !== null;
}

/** Grammar of a member without a named property; null where the schema allows none, or names properties and no others. */
function otherProperties(keywords: Schema, names: readonly string[], at: string, scope: SchemaScope): Node | null {
  const { additionalProperties, propertyNames } = keywords;
  if (additionalProperties === undefined && names.length > 0) return null;
  const value = scope.node(additionalProperties ?? true, `${at}/additionalProperties`);
  const key = value && keyOf(propertyNames, names, at, scope);
  return value && key && scope.define(member(scope.define(key), scope.define(value)));
}

/** Grammar of a key other than these names. */
function keyOf(propertyNames: unknown, names: readonly string[], at: string, scope: SchemaScope): Node | null {
  if (propertyNames === false) return null;
  const schema = isSchema(propertyNames) ? checkedKeywords(propertyNames, `${at}/propertyNames`) : {};
  if (names.length === 0) return scope.node({ type: "string", ...schema }, `${at}/propertyNames`);
  const { type = "string", ...rest } = schema;
  const isSimple = Object.keys(rest).every((keyword) => KEYWORDS_OF.string!.includes(keyword));
  if (type !== "string" || !isSimple)
    throw refused(`${at}/propertyNames`, "keywords other than those of strings beside properties");
  return stringOf(rest, `${at}/propertyNames`, scope, names);
}

/** Checks minProperties and maxProperties, which are supported only where the required and possible properties ensure them. */
function checkCounts(keywords: Schema, { least, most }: { least: number; most: number }, at: string): void {
  for (const name of ["minProperties", "maxProperties"] as const) {
    const count = countOf(keywords, name, at);
    if (count === null) continue;
    const holds = name === "minProperties" ? least >= count : most <= count;
    if (!holds) throw refused(`${at}/${name}`, "this keyword");
  }
}

/** Members in the schema's order, optional ones perhaps left out, and any number of unnamed ones at the end. */
function ordered(properties: readonly Property[], others: Node | null, scope: SchemaScope): Node | null {
  const following = sequence(SEPARATOR, others ?? text(""));
  /** What may follow the members so far, and what may come first. */
  let behind: Node | null = others && scope.define(repeat(following, 0));
  let first: Node | null = others && scope.define(sequence(others, repeat(following, 0)));
  for (const { node, isRequired } of [...properties].reverse()) {
    const own = sequence(node, ...(behind ? [behind] : []));
    const next = sequence(SEPARATOR, own);
    first = scope.define(first && !isRequired ? choice([own, first]) : own);
    behind = scope.define(isRequired ? next : choice([next, behind ?? text("")]));
  }
  return first;
}
