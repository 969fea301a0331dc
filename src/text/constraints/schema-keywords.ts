/** Keywords of JSON schemas: which are enforced, which do not constrain values, and how schemas are merged (`allOf`). */
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";

/** A JSON schema that is an object. */
export type Schema = Readonly<Record<string, unknown>>;

/** Keywords by the type of value that they constrain. */
export const KEYWORDS_OF: Readonly<Record<string, readonly string[]>> = {
  string: ["minLength", "maxLength", "pattern", "format"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
  array: ["items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"],
  object: ["properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"],
};

/** Keywords that constrain values of any type. */
const GENERAL = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"];

/** Keywords that do not constrain values. */
const SILENT = new Set([
  ...["title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment"],
  ...["$schema", "$id", "id", "$defs", "definitions"],
]);

/** Most alternatives that merging two schemas may make. */
const ALTERNATIVES_MAX = 256;

export const HONOURED: readonly string[] = [...GENERAL, ...Object.values(KEYWORDS_OF).flat()];
const honoured = new Set(HONOURED);

/** Whether a keyword does not constrain values. */
function isSilent(keyword: string): boolean {
  return SILENT.has(keyword) || keyword.startsWith("x-");
}

/** The constraining keywords of a schema. UnsupportedError that names a keyword that cannot be enforced, and its place. */
export function checkedKeywords(schema: Schema, at: string): Schema {
  const said = Object.entries(schema).filter(([keyword, value]) => !isSilent(keyword) && value !== undefined);
  for (const [keyword] of said) if (!honoured.has(keyword)) throw refused(`${at}/${keyword}`, "this keyword");
  return Object.fromEntries(said);
}

export function refused(at: string, what: string): UnsupportedError {
  return new UnsupportedError(
    `schema ${at}: ${what} cannot be enforced token by token; take it out, and check the value`,
  );
}

export function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The whole number at a keyword, such as a length or a count; null where it is absent. */
export function countOf(keywords: Schema, name: string, at: string): number | null {
  const value = keywords[name];
  if (value === undefined) return null;
  if (Number.isInteger(value) && (value as number) >= 0) return value as number;
  throw new InvalidArgumentError(
    `schema ${at}/${name}: expected a whole number from 0 but found ${JSON.stringify(value)}`,
  );
}

/** Values of one keyword in several merged schemas, all of which must hold. */
export class Joined {
  readonly #values: readonly unknown[];

  constructor(a: unknown, b: unknown) {
    this.#values = [...Joined.values(a), ...Joined.values(b)];
  }

  /** All values of a keyword: its one value, or those of several schemas. */
  static values(value: unknown): readonly unknown[] {
    return value instanceof Joined ? value.#values : [value];
  }
}

/** Canonical JSON of a value: keys are sorted. */
export function canonical(value: unknown): string {
  if (value instanceof Joined) return canonical(Joined.values(value));
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (!isSchema(value)) return JSON.stringify(value) ?? "undefined";
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join()}}`;
}

/** Merges two schemas: accepts values that both accept. UnsupportedError where the result cannot be expressed. */
export function joined(a: Schema | boolean, b: Schema | boolean, at: string): Schema | boolean {
  if (a === false || b === false || haveOtherConstants(a, b)) return false;
  if (a === true) return b;
  if (b === true) return a;
  const result: Record<string, unknown> = { ...a };
  for (const [keyword, value] of Object.entries(b)) {
    const own = Object.hasOwn(a, keyword) ? a[keyword] : undefined;
    if (own === undefined) result[keyword] = value;
    else if (canonical(own) !== canonical(value))
      result[keyword] = joinedKeyword(keyword, own, value, `${at}/${keyword}`);
  }
  return withClosedProperties(a, b, result, at);
}

function haveOtherConstants(a: Schema | boolean, b: Schema | boolean): boolean {
  const haveBoth =
    typeof a === "object" && typeof b === "object" && Object.hasOwn(a, "const") && Object.hasOwn(b, "const");
  return haveBoth && canonical(a.const) !== canonical(b.const);
}

function joinedKeyword(keyword: string, a: unknown, b: unknown, at: string): unknown {
  switch (keyword) {
    case "type":
      return joinedTypes([a].flat() as string[], [b].flat() as string[]);
    case "enum":
      return (a as unknown[]).filter((value) =>
        (b as unknown[]).some((other) => canonical(other) === canonical(value)),
      );
    case "minimum":
    case "exclusiveMinimum":
    case "minLength":
    case "minItems":
    case "minProperties":
      return Math.max(a as number, b as number);
    case "maximum":
    case "exclusiveMaximum":
    case "maxLength":
    case "maxItems":
    case "maxProperties":
      return Math.min(a as number, b as number);
    case "required":
      return [...new Set([...(a as string[]), ...(b as string[])])];
    case "properties":
      return joinedProperties(a as Schema, b as Schema);
    case "allOf":
      return [...(a as unknown[]), ...(b as unknown[])];
    case "items":
    case "additionalProperties":
    case "propertyNames":
      return { allOf: [a, b] };
    case "pattern":
    case "format":
    case "multipleOf":
      return new Joined(a, b);
    case "anyOf":
      return joinedAlternatives(a as unknown[], b as unknown[], at);
    case "uniqueItems":
      return true;
  }
  throw refused(at, "this keyword, joined with the same of another schema,");
}

/** Pairs of alternatives: each of one schema with each of the other. */
function joinedAlternatives(a: readonly unknown[], b: readonly unknown[], at: string): unknown[] {
  if (a.length * b.length > ALTERNATIVES_MAX) throw refused(at, `more than ${ALTERNATIVES_MAX} alternatives, joined,`);
  return a.flatMap((one) => b.map((other) => ({ allOf: [one, other] })));
}

function joinedTypes(a: string[], b: string[]): string[] {
  const both = a.filter((type) => b.includes(type));
  if (a.includes("number") && b.includes("integer")) both.push("integer");
  if (b.includes("number") && a.includes("integer")) both.push("integer");
  return [...new Set(both)];
}

function joinedProperties(a: Schema, b: Schema): Schema {
  const result: Record<string, unknown> = { ...a };
  for (const [name, schema] of Object.entries(b))
    result[name] = Object.hasOwn(a, name) ? { allOf: [a[name], schema] } : schema;
  return result;
}

/** Applies one schema's `additionalProperties` to properties that only the other schema names. */
function withClosedProperties(a: Schema, b: Schema, result: Record<string, unknown>, at: string): Schema {
  const close = (one: Schema, other: Schema) => {
    const rest = one.additionalProperties;
    if (rest === undefined || rest === true) return;
    const own = (one.properties ?? {}) as Schema;
    const names = [...Object.keys((other.properties ?? {}) as object), ...((other.required ?? []) as string[])];
    for (const name of names) {
      if (Object.hasOwn(own, name)) continue;
      const properties = (result.properties ?? {}) as Schema;
      const before = Object.hasOwn(properties, name) ? properties[name] : true;
      result.properties = { ...properties, [name]: rest === false ? false : { allOf: [before, rest] } };
    }
  };
  close(a, b);
  close(b, a);
  if (a.items !== undefined && b.prefixItems !== undefined && a.prefixItems === undefined)
    throw refused(at, "items beside prefixItems of another schema");
  if (b.items !== undefined && a.prefixItems !== undefined && b.prefixItems === undefined)
    throw refused(at, "items beside prefixItems of another schema");
  return result;
}
