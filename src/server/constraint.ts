/** Converts the APIs' fields of structured output to the library's constraints. */
import type { Constraint } from "../text/constraint.ts";
import type { GenerateOptions } from "../text/generate.ts";
import { ApiError } from "./errors.ts";
import type { ChatRequest, StructuredOutputs } from "./schemas/chat.ts";

/** OpenAI's `response_format`. */
interface Format {
  readonly type: "text" | "json_object" | "json_schema";
  readonly schema?: object | null | undefined;
}

export function formatConstraint(format: Format | null | undefined): Constraint | null {
  if (!format || format.type === "text") return null;
  if (format.type === "json_schema" && format.schema) return { kind: "jsonSchema", schema: format.schema };
  return { kind: "json" };
}

/** The constraint of a request; null for none. ApiError 400 for more than one. */
export function chatConstraint({ response_format, structured_outputs }: ChatRequest): Constraint | null {
  const type = response_format?.type ?? "text";
  const schema = response_format?.type === "json_schema" ? response_format.json_schema.schema : null;
  const format = formatConstraint({ type, schema });
  const structured = structuredConstraint(structured_outputs);
  if (format && structured)
    throw new ApiError(400, "structured_outputs: expected response_format or this but found both", {
      param: "structured_outputs",
    });
  return format ?? structured;
}

export function structuredConstraint(outputs: StructuredOutputs | null | undefined): Constraint | null {
  const { json, regex, choice, grammar } = outputs ?? {};
  const found: Constraint[] = [];
  if (json) found.push({ kind: "jsonSchema", schema: typeof json === "string" ? parseSchema(json) : json });
  if (regex) found.push({ kind: "regex", pattern: regex });
  if (choice) found.push({ kind: "choice", options: choice });
  if (grammar) found.push({ kind: "grammar", ebnf: grammar });
  if (found.length > 1)
    throw new ApiError(400, "structured_outputs: expected one of json, regex, choice and grammar but found several", {
      param: "structured_outputs",
    });
  return found[0] ?? null;
}

function parseSchema(text: string): object {
  try {
    const schema: unknown = JSON.parse(text);
    if (typeof schema === "object" && schema !== null && !Array.isArray(schema)) return schema;
  } catch {
    // Not JSON: refused below.
  }
  throw new ApiError(400, "structured_outputs.json: expected a JSON schema", { param: "structured_outputs.json" });
}

/** The constraint as an option; no option for null. */
export function constrained(constraint: Constraint | null): Pick<GenerateOptions, "constraint"> {
  return constraint === null ? {} : { constraint };
}
