/** Texts that follow a schema, and their values. */
import type { GenerateOptions, GenerationResult, generate } from "../text/generate.ts";
import type { OutputSchema } from "../text/output-schema.ts";
import { AnswerStream } from "./answer-stream.ts";
import { loadConstraints } from "./lazy-modules.ts";
import type { Generation } from "./token-stream.ts";

/** How a text that follows a schema is generated. */
export interface StructuredOptions<T> extends Omit<GenerateOptions, "constraint"> {
  /** JSON schema of the text, or a Standard Schema such as one of zod or valibot. */
  readonly schema: OutputSchema<T>;
}

/** JSON text as it is generated, and its value. */
export interface StructuredGeneration<T> extends Generation {
  /**
   * The value of the whole text, as the schema makes it. Who does not iterate over the text gets it here.
   *
   * @throws ContextLengthError where the text was cut before its JSON was whole.
   * @throws InvalidArgumentError where checks of the schema that JSON schema has no word for refuse the value.
   */
  readonly value: Promise<T>;
}

export class StructuredStream<T> implements StructuredGeneration<T> {
  result: GenerationResult | null = null;
  readonly #stream: AnswerStream<string, string>;
  readonly #schema: OutputSchema<T>;
  #value: Promise<T> | null = null;

  /** `begin` generates under a constraint. */
  constructor(
    schema: OutputSchema<T>,
    begin: (constraint: GenerateOptions["constraint"]) => ReturnType<typeof generate>,
  ) {
    this.#schema = schema;
    this.#stream = new AnswerStream(this.#texts(begin));
  }

  [Symbol.asyncIterator](): AsyncGenerator<string> {
    return this.#stream[Symbol.asyncIterator]();
  }

  get value(): Promise<T> {
    this.#value ??= this.#parse();
    return this.#value;
  }

  async *#texts(
    begin: (constraint: GenerateOptions["constraint"]) => ReturnType<typeof generate>,
  ): AsyncGenerator<string, string, void> {
    const { constraint } = await (await loadConstraints()).readSchema(this.#schema);
    const tokens = begin(constraint);
    let text = "";
    try {
      for (let next = await tokens.next(); ; next = await tokens.next()) {
        if (next.done) {
          this.result = next.value;
          return text;
        }
        text += next.value.text;
        if (next.value.text !== "") yield next.value.text;
      }
    } finally {
      await tokens.return(undefined as never);
    }
  }

  async #parse(): Promise<T> {
    const text = await this.#stream.result;
    const output = await (await loadConstraints()).readSchema(this.#schema);
    return output.parse(text);
  }
}
