/** Generates JSON that follows a schema, and parses it. */
import type { GenerateOptions, GenerationResult, generate } from "../text/generate.ts";
import type { OutputSchema } from "../text/output-schema.ts";
import type { LateModules } from "./late-modules.ts";
import { mapEvents, ResultStream } from "./result-stream.ts";

/** How a text that follows a schema is generated. */
export interface StructuredOptions<T> extends Omit<GenerateOptions, "constraint"> {
  /** JSON schema of the text, or a Standard Schema such as one of zod or valibot. */
  readonly schema: OutputSchema<T>;
}

/** JSON text as it is generated, and its value. */
export class StructuredGeneration<T> extends ResultStream<string, GenerationResult> {
  readonly #parse: () => Promise<T>;
  #value: Promise<T> | null = null;

  /** `begin` generates under the schema's constraint. */
  constructor(
    schema: OutputSchema<T>,
    modules: LateModules,
    begin: (constraint: GenerateOptions["constraint"]) => ReturnType<typeof generate>,
  ) {
    let whole = "";
    let parse: (text: string) => Promise<T> | T;
    async function* texts() {
      const output = await (await modules.constraints()).readSchema(schema);
      parse = (text) => output.parse(text);
      return yield* mapEvents(begin(output.constraint), ({ text }) => {
        whole += text;
        return text === "" ? [] : [text];
      });
    }
    super(texts());
    this.#parse = async () => {
      await this.result;
      return parse(whole);
    };
  }

  /**
   * The value of the complete text, as the schema parses it. Without an iteration, awaiting it generates the text to its
   * end.
   *
   * @throws ContextLengthError where the text was cut before its JSON was complete.
   * @throws InvalidArgumentError where checks of the schema that JSON schema cannot express refuse the value.
   */
  get value(): Promise<T> {
    this.#value ??= this.#parse();
    return this.#value;
  }
}
