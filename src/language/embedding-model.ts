/** A program that makes embeddings, with its tokenizer, as `LanguageModel.embed` runs it. */
import { checkIds, checkOptions, checkString, checkWhole } from "../arguments.ts";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import { namedPrompt, type TextSettings } from "../text/text-settings.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { EncoderBatches } from "./encoder-batches.ts";

/** How texts become token ids of an embedding model. */
export interface EncodeEmbeddingOptions {
  /**
   * Name of one of the model's prompts, which is put in front of each text, such as "query" or "document"; null for none.
   * Default: the one that the model's authors chose, if any.
   */
  readonly prompt?: string | null | undefined;
  /** Whether texts longer than the model takes are cut at their ends. Default: false, they are a ContextLengthError. */
  readonly truncate?: boolean | undefined;
}

/** How texts become embeddings. */
export interface EmbedOptions extends EncodeEmbeddingOptions {
  /**
   * Number of dimensions of each embedding: the first of those that the model computes, for models trained for it
   * (Matryoshka). Shortened embeddings of a model with normalized ones are normalized again. Default: all.
   */
  readonly dimensions?: number | undefined;
  /** Ends the work; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** A program that makes embeddings of texts. `LanguageModel.embedding` has one. */
export class EmbeddingModel {
  /** Number of dimensions of an embedding. */
  readonly dimensions: number;
  /** Most tokens of a text, with the special tokens that the tokenizer adds. */
  readonly maxTokens: number;
  /** Prompts that can be put in front of texts, by name. */
  readonly prompts: Readonly<Record<string, string>>;
  /** Name of the prompt that is used where a call names none; null for none. */
  readonly defaultPrompt: string | null;
  /** Whether embeddings have length 1, so that their dot products are cosines. */
  readonly isNormalized: boolean;
  readonly #settings: TextSettings;
  readonly #tokenizer: () => Tokenizer;
  readonly #batches: EncoderBatches;

  constructor(program: LoadedProgram, tokenizer: () => Tokenizer, settings: TextSettings) {
    this.#batches = new EncoderBatches(program, "embed");
    this.#settings = settings;
    this.#tokenizer = tokenizer;
    this.dimensions = this.#batches.size;
    this.maxTokens = this.#batches.maxTokens;
    this.prompts = settings.prompts;
    this.defaultPrompt = settings.defaultPrompt;
    this.isNormalized = settings.isNormalized;
  }

  /**
   * Encodes a text as the model reads it. ContextLengthError for too long a text, InvalidArgumentError for an unknown
   * prompt.
   */
  encode(text: string, options: EncodeEmbeddingOptions = {}): number[] {
    checkString("text", text);
    checkOptions(options);
    const { truncate = false } = options;
    const whole = `${namedPrompt(this.#settings, options.prompt) ?? ""}${text}`;
    const read = this.#settings.isLowerCase ? whole.toLowerCase() : whole;
    const length = truncate ? { maxTokens: this.maxTokens } : { contextLength: this.maxTokens, truncation: false };
    const ids = this.#tokenizer().encode(read, { ...length, padding: false });
    if (ids.length > this.maxTokens)
      throw new ContextLengthError(
        `text: expected at most ${this.maxTokens} tokens but found ${ids.length}; truncate: true leaves out its end`,
      );
    return ids;
  }

  /** Computes embeddings of texts, or of token ids, in order. Throws as `encode`. */
  async embed(texts: readonly (string | readonly number[])[], options: EmbedOptions = {}): Promise<Float32Array[]> {
    checkOptions(options);
    if (!Array.isArray(texts)) throw new InvalidArgumentError("texts: expected a list of texts; give [text]");
    const dimensions = checkWhole("dimensions", options.dimensions ?? this.dimensions, 1, this.dimensions);
    const all = texts.map((text: string | readonly number[], i) => {
      if (typeof text === "string") return this.encode(text, options);
      checkIds(`text ${i}`, text, "a text or a list of token ids");
      if (text.length > this.maxTokens)
        throw new ContextLengthError(`text ${i}: expected at most ${this.maxTokens} tokens but found ${text.length}`);
      return text;
    });
    const vectors = await this.#batches.run(
      all.map((ids) => ({ ids, secondFrom: ids.length })),
      options.signal,
    );
    if (dimensions === this.dimensions) return vectors;
    return vectors.map((vector) => {
      const cut = vector.slice(0, dimensions);
      return this.isNormalized ? normalized(cut) : cut;
    });
  }

  /** Ends waiting calls with an error; the model must not be used any more. */
  dispose(): Promise<void> {
    return this.#batches.dispose();
  }
}

/** The vector divided by its length; a zero vector stays zero. */
function normalized(vector: Float32Array): Float32Array {
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return length > 0 ? vector.map((value) => value / length) : vector;
}
