/** Values of parameters that models write as plain text, as JSON by the schema of the tool. */
import type { KnownTool } from "./events.ts";
import { parsed } from "./json.ts";

type Schema = Readonly<Record<string, unknown>>;

function schemaOf(tool: KnownTool | undefined, parameter: string): Schema {
  const { properties } = (tool?.parameters ?? {}) as { properties?: Readonly<Record<string, unknown>> };
  const schema = properties && Object.hasOwn(properties, parameter) ? properties[parameter] : null;
  return typeof schema === "object" && schema !== null ? (schema as Schema) : {};
}

/** Whether a parameter can only be text. */
export function isTextParameter(tool: KnownTool | undefined, parameter: string): boolean {
  const { type, enum: values } = schemaOf(tool, parameter);
  if (type !== undefined) return type === "string";
  return Array.isArray(values) && values.length > 0 && values.every((value) => typeof value === "string");
}

/** JSON of a parameter that was written as text: text where it is text or may be and is no other value. */
export function parameterValue(tool: KnownTool | undefined, parameter: string, text: string): string {
  if (isTextParameter(tool, parameter)) return JSON.stringify(text);
  const trimmed = text.trim();
  const word = { None: "null", True: "true", False: "false" }[trimmed] ?? trimmed;
  const value = parsed(word);
  if (value === undefined) return JSON.stringify(text);
  const types = [schemaOf(tool, parameter).type ?? []].flat();
  const isAllowed = types.length === 0 || types.includes(typeOf(value)) || !types.includes("string");
  return isAllowed ? word : JSON.stringify(text);
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value;
}

/** Text as it stands within a string of JSON. */
export function escaped(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
