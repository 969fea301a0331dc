/** The types that a JSON schema allows for a tool's parameters, resolved through references and combinations. */
import type { KnownTool } from "./events.ts";

type Schema = Readonly<Record<string, unknown>>;

/** Types of JSON's values. */
export type JsonType = "string" | "integer" | "number" | "boolean" | "null" | "array" | "object";

/** Whether a value is always a string, may be one among other types, never is, or is of the type that it looks like. */
export type TextRule = "only" | "may" | "never" | "unknown";

/** Types and values that a schema allows. */
export interface ValueTypes {
  /** Types in the order in which the schema names them; null where it names none. */
  readonly types: readonly JsonType[] | null;
  /** Allowed values (`enum` and `const`) in their order; null where any is allowed. */
  readonly values: readonly unknown[] | null;
}

const TYPES: readonly JsonType[] = ["string", "integer", "number", "boolean", "null", "array", "object"];
const ANY: ValueTypes = { types: null, values: null };
const DEPTH_MAX = 32;

/** Types and values that a tool's schema allows for a parameter. */
export function parameterTypes(tool: KnownTool | undefined, parameter: string): ValueTypes {
  const root = tool?.parameters as Schema | undefined;
  if (root === undefined) return ANY;
  const schemas = propertySchemas(root, parameter, root, 0);
  return schemas.reduce((types: ValueTypes, schema) => both(types, typesOf(schema, root, 0)), ANY);
}

/** Names of the parameters of a tool, in their order. */
export function parameterNames(tool: KnownTool | undefined): string[] {
  const root = tool?.parameters as Schema | undefined;
  const names = new Set<string>();
  const collect = (schema: unknown, depth: number): void => {
    if (!isObject(schema) || depth > DEPTH_MAX) return;
    for (const name of Object.keys(isObject(schema.properties) ? schema.properties : {})) names.add(name);
    if (root && typeof schema.$ref === "string") collect(referenced(root, schema.$ref), depth + 1);
    for (const part of [schema.allOf, schema.anyOf, schema.oneOf].filter(Array.isArray).flat())
      collect(part, depth + 1);
  };
  collect(root, 0);
  return [...names];
}

export function textRule(tool: KnownTool | undefined, parameter: string): TextRule {
  const { types } = parameterTypes(tool, parameter);
  if (types === null) return "unknown";
  if (!types.includes("string")) return "never";
  return types.length === 1 ? "only" : "may";
}

/** Schemas of a property, found in all combined schemas and alternatives. */
function propertySchemas(schema: unknown, name: string, root: Schema, depth: number): unknown[] {
  if (!isObject(schema) || depth > DEPTH_MAX) return [];
  const { properties, patternProperties, additionalProperties } = schema;
  const found: unknown[] = [];
  if (isObject(properties) && Object.hasOwn(properties, name)) found.push(properties[name]);
  if (isObject(patternProperties))
    for (const [pattern, value] of Object.entries(patternProperties)) if (matches(pattern, name)) found.push(value);
  if (found.length === 0 && isObject(additionalProperties)) found.push(additionalProperties);
  const inside = (part: unknown) => propertySchemas(part, name, root, depth + 1);
  if (typeof schema.$ref === "string") found.push(...inside(referenced(root, schema.$ref)));
  if (Array.isArray(schema.allOf)) found.push(...schema.allOf.flatMap(inside));
  for (const options of [schema.anyOf, schema.oneOf]) {
    const alternatives = Array.isArray(options) ? options.flatMap(inside) : [];
    if (alternatives.length > 0) found.push({ anyOf: alternatives });
  }
  return found;
}

function matches(pattern: string, name: string): boolean {
  try {
    return new RegExp(pattern, "u").test(name);
  } catch {
    return false;
  }
}

function typesOf(schema: unknown, root: Schema, depth: number): ValueTypes {
  if (!isObject(schema) || depth > DEPTH_MAX) return ANY;
  const inside = (part: unknown) => typesOf(part, root, depth + 1);
  let found = ANY;
  if (typeof schema.$ref === "string") found = both(found, inside(referenced(root, schema.$ref)));
  if (Object.hasOwn(schema, "const")) found = both(found, valuesOnly([schema.const]));
  if (Array.isArray(schema.enum)) found = both(found, valuesOnly(schema.enum));
  const named = [schema.type ?? []].flat().filter((type): type is JsonType => TYPES.includes(type as JsonType));
  if (named.length > 0) found = both(found, { types: withNull(named, schema), values: null });
  if (Array.isArray(schema.allOf)) for (const part of schema.allOf) found = both(found, inside(part));
  for (const options of [schema.anyOf, schema.oneOf]) {
    if (!Array.isArray(options) || options.length === 0) continue;
    found = both(found, withNullable(either(options.map(inside)), schema));
  }
  return found;
}

/** OpenAPI's `nullable` allows null in addition to the named type. */
function withNull(types: readonly JsonType[], { nullable }: Schema): JsonType[] {
  return nullable === true && !types.includes("null") ? [...types, "null"] : [...types];
}

function withNullable({ types, values }: ValueTypes, schema: Schema): ValueTypes {
  return { types: types && withNull(types, schema), values };
}

function valuesOnly(values: readonly unknown[]): ValueTypes {
  return { types: [...new Set(values.map(typeOf))], values };
}

function either(options: readonly ValueTypes[]): ValueTypes {
  const types = options.some((option) => option.types === null)
    ? null
    : [...new Set(options.flatMap((option) => option.types!))];
  const values = options.some((option) => option.values === null) ? null : options.flatMap((option) => option.values!);
  return { types, values };
}

function both(a: ValueTypes, b: ValueTypes): ValueTypes {
  return { types: bothTypes(a.types, b.types), values: a.values ?? b.values };
}

function bothTypes(a: ValueTypes["types"], b: ValueTypes["types"]): ValueTypes["types"] {
  if (a === null || b === null) return a ?? b;
  const isIn = (type: JsonType, others: readonly JsonType[]) =>
    others.includes(type) || (type === "integer" && others.includes("number"));
  const kept = new Set([...a.filter((type) => isIn(type, b)), ...b.filter((type) => isIn(type, a))]);
  return [...kept];
}

/** The schema that a local reference (`#/...`) points to; null where there is none. */
function referenced(root: Schema, reference: string): unknown {
  if (!reference.startsWith("#")) return null;
  const path = decode(reference.slice(1)).split("/").slice(1);
  return path.reduce((value: unknown, step) => {
    const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
    return typeof value === "object" && value !== null && Object.hasOwn(value, key) ? (value as Schema)[key] : null;
  }, root);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function typeOf(value: unknown): JsonType {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value as JsonType;
}

function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
