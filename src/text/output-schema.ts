/** Schemas that constrain answers and give their values a type. */

/** A schema of zod, valibot or another library that follows Standard Schema (standardschema.dev). */
export interface StandardSchema<T = unknown> {
  /** Properties that the standard defines. */
  readonly "~standard": {
    /** Version of the standard. */
    readonly version: 1;
    /** Name of the library. */
    readonly vendor: string;
    /** Checks a value, and returns the schema's output value. */
    validate(value: unknown): StandardResult<T> | Promise<StandardResult<T>>;
    /** The schema as JSON, where the library follows Standard JSON Schema. */
    readonly jsonSchema?: { input(options: { readonly target: string }): Record<string, unknown> } | undefined;
    /** Types of input and output values, which exist only for compilers. */
    readonly types?: { readonly input: unknown; readonly output: T } | undefined;
  };
}

type StandardResult<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

/** A Standard Schema, whose type the value gets, or a JSON schema. */
export type OutputSchema<T = unknown> = StandardSchema<T> | Readonly<Record<string, unknown>>;
