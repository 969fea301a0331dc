/** Schemas of answers: plain JSON schemas, or those of zod, valibot and others that implement Standard Schema. */
import { shown } from "../../arguments.ts";
import { ContextLengthError, InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import type { Constraint } from "../constraint.ts";
import type { OutputSchema, StandardSchema } from "../output-schema.ts";

/** A constraint on an answer, and the parser of its text. */
export interface Output<T> {
  readonly constraint: Constraint;
  /**
   * Parses the text of an answer to a value.
   *
   * @throws ContextLengthError for a text that was cut.
   * @throws InvalidArgumentError for a value that the schema's own checks refuse.
   */
  parse(text: string): Promise<T>;
}

/** Reads a schema. InvalidArgumentError for an invalid one, UnsupportedError for one without a way to get its JSON schema. */
export async function readSchema<T>(schema: OutputSchema<T>): Promise<Output<T>> {
  if ((typeof schema !== "object" && typeof schema !== "function") || schema === null || Array.isArray(schema))
    throw new InvalidArgumentError(`schema: expected a JSON schema or a Standard Schema but found ${shown(schema)}`);
  if (!isStandard(schema))
    return { constraint: { kind: "jsonSchema", schema }, parse: async (text) => parsedJson(text) as T };
  return {
    constraint: { kind: "jsonSchema", schema: await jsonSchemaOf(schema) },
    async parse(text) {
      const result = await schema["~standard"].validate(parsedJson(text));
      if (!result.issues) return result.value;
      const issues = result.issues.map(({ message, path = [] }) => `${pathText(path)}${message}`);
      throw new InvalidArgumentError(`schema: the value is refused: ${issues.join("; ")}`);
    },
  };
}

function isStandard<T>(schema: OutputSchema<T>): schema is StandardSchema<T> {
  return typeof (schema as Partial<StandardSchema<T>>)["~standard"]?.validate === "function";
}

function pathText(path: readonly unknown[]): string {
  if (path.length === 0) return "";
  const keys = path.map((part) => String((part as { key?: unknown } | null)?.key ?? part));
  return `${keys.join(".")}: `;
}

/** JSON schema of the input values (before transformations), by the schema's own method or its vendor's converter. */
async function jsonSchemaOf(schema: StandardSchema<unknown>): Promise<object> {
  const { vendor, jsonSchema } = schema["~standard"];
  if (jsonSchema) return jsonSchema.input({ target: "draft-2020-12" });
  const own = schema as { toJSONSchema?(options: object): object };
  if (typeof own.toJSONSchema === "function") return own.toJSONSchema({ io: "input" });
  if (vendor === "valibot") return (await valibotConverter())(schema, { typeMode: "input" });
  throw new UnsupportedError(
    `schema: ${vendor} does not tell JSON schemas in the way of Standard JSON Schema; give the JSON schema that its converter makes`,
  );
}

async function valibotConverter(): Promise<(schema: unknown, options: object) => object> {
  // The name is a variable so that bundlers do not look for a package that few have.
  const name = "@valibot/to-json-schema";
  try {
    return ((await import(/* @vite-ignore */ name)) as { toJsonSchema: never }).toJsonSchema;
  } catch (cause) {
    throw new UnsupportedError(
      "schema: valibot tells JSON schemas by @valibot/to-json-schema: install it, or give toStandardJsonSchema(schema)",
      { cause },
    );
  }
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ContextLengthError(
      "value: the answer was cut before its JSON was whole; allow more tokens (maxTokens) or load a longer context",
      { cause },
    );
  }
}
