/** A program that scores how well documents answer a query, with its tokenizer: what `LanguageModel.rank` calls. */
import { checkOptions, checkString } from "../arguments.ts";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { TextSettings } from "../text/text-settings.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { TextBatches } from "./text-batches.ts";
import type { TokenText } from "./text-inputs.ts";

/** How documents are scored. */
export interface RankOptions {
  /** Whether pairs that are longer than the model takes lose the end of the longer text. Default: false, they are a ContextLengthError. */
  readonly truncate?: boolean | undefined;
  /** Ends the work; its reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** A program that scores pairs of a query and a document (a cross-encoder). `LanguageModel.reranker` has one. */
export class Reranker {
  /** Most tokens of a query and a document together, with those that the tokenizer puts around them. */
  readonly maxTokens: number;
  readonly #settings: TextSettings;
  readonly #tokenizer: () => Tokenizer;
  readonly #batches: TextBatches;

  constructor(program: LoadedProgram, tokenizer: () => Tokenizer, settings: TextSettings) {
    this.#batches = new TextBatches(program, "rank");
    this.#settings = settings;
    this.#tokenizer = tokenizer;
    this.maxTokens = this.#batches.maxTokens;
  }

  /** Ids of a pair as the model reads it. ContextLengthError for too long a pair. */
  encode(query: string, document: string, { truncate = false }: RankOptions = {}): TokenText {
    checkString("query", query);
    checkString("document", document);
    const tokenizer = this.#tokenizer();
    const length = truncate ? { maxTokens: this.maxTokens } : { truncation: false };
    const { ids, secondFrom } = tokenizer.encodePair(query.trim(), document.trim(), { ...length, padding: false });
    if (ids.length > this.maxTokens)
      throw new ContextLengthError(
        `document: expected at most ${this.maxTokens} tokens with the query but found ${ids.length}; truncate: true leaves out an end`,
      );
    return { ids, secondFrom };
  }

  /** Scores of pairs, in order: from 0 to 1 where the model's authors say no other way. */
  async score(pairs: readonly TokenText[], signal?: AbortSignal): Promise<number[]> {
    const values = await this.#batches.run(pairs, signal);
    const { isScoreRaw = false } = this.#settings;
    return values.map(([value]) => (isScoreRaw ? value! : 1 / (1 + Math.exp(-value!))));
  }

  /** Scores of documents, in their order. Errors are those of `encode`. */
  rank(query: string, documents: readonly string[], options: RankOptions = {}): Promise<number[]> {
    checkOptions(options);
    if (!Array.isArray(documents)) throw new InvalidArgumentError("documents: expected a list of texts");
    return this.score(
      documents.map((document) => this.encode(query, document, options)),
      options.signal,
    );
  }

  /** Ends what waits; the model must not be used any more. */
  dispose(): Promise<void> {
    return this.#batches.dispose();
  }
}
