/** A program that scores how well documents answer a query, with its tokenizer, as `LanguageModel.rank` runs it. */
import { checkOptions, checkString } from "../arguments.ts";
import { ContextLengthError, InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { LoadedProgram } from "../runtime/program.ts";
import type { ChatTemplate } from "../text/chat-template.ts";
import { encodeChat } from "../text/encode-chat.ts";
import { namedPrompt, type TextSettings } from "../text/text-settings.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { EncoderBatches } from "./encoder-batches.ts";
import type { TokenSequence } from "./encoder-inputs.ts";

/** How documents are scored. */
export interface RankOptions {
  /**
   * Name of one of the model's prompts, which is put in front of each query, or is the instruction of a model whose
   * template renders pairs as conversations; null for none. Default: the one that the model's authors chose, if any.
   */
  readonly prompt?: string | null | undefined;
  /**
   * Whether pairs longer than the model takes are cut at the end of the longer text. Default: false, they are a
   * ContextLengthError.
   */
  readonly truncate?: boolean | undefined;
  /** Ends the work; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** A program that scores pairs of a query and a document (a cross-encoder). `LanguageModel.reranker` has one. */
export class Reranker {
  /** Most tokens of a query and a document together, with the special tokens that the tokenizer adds. */
  readonly maxTokens: number;
  readonly #settings: TextSettings;
  readonly #tokenizer: () => Tokenizer;
  readonly #template: ChatTemplate | null;
  readonly #batches: EncoderBatches;

  constructor(
    program: LoadedProgram,
    tokenizer: () => Tokenizer,
    settings: TextSettings,
    template: ChatTemplate | null,
  ) {
    this.#batches = new EncoderBatches(program, "rank");
    this.#settings = settings;
    this.#tokenizer = tokenizer;
    this.#template = template;
    this.maxTokens = this.#batches.maxTokens;
  }

  /**
   * Encodes a pair as the model reads it. ContextLengthError for too long a pair, InvalidArgumentError for an unknown
   * prompt.
   */
  encode(query: string, document: string, options: RankOptions = {}): TokenSequence {
    checkString("query", query);
    checkString("document", document);
    const { truncate = false } = options;
    const instruction = namedPrompt(this.#settings, options.prompt);
    const { pairVariables: variables } = this.#settings;
    const { ids, secondFrom } = variables
      ? this.#encodeConversation(variables, { instruction, query, document }, truncate)
      : this.#tokenizer().encodePair(`${instruction ?? ""}${query}`, document, {
          ...(truncate ? { maxTokens: this.maxTokens } : { truncation: false }),
          padding: false,
        });
    if (ids.length > this.maxTokens)
      throw new ContextLengthError(
        `document: expected at most ${this.maxTokens} tokens with the query but found ${ids.length}; truncate: true leaves out an end`,
      );
    return { ids, secondFrom };
  }

  /** Ids of a pair that the chat template renders. Where the document is cut, what the template writes after it stays. */
  #encodeConversation(
    { add_generation_prompt: opens, ...variables }: Readonly<Record<string, unknown>>,
    { instruction, query, document }: { instruction: string | null; query: string; document: string },
    truncate: boolean,
  ): TokenSequence {
    const template = this.#template;
    if (!template) throw new UnsupportedError("rank: the model reads pairs by a chat template but has none");
    const system = instruction === null ? [] : [{ role: "system", content: instruction }];
    const idsOf = (asked: string, found: string) => {
      const pair = [
        { role: "query", content: asked },
        { role: "document", content: found },
      ];
      const options = { ...variables, addGenerationPrompt: opens === true };
      return encodeChat(this.#tokenizer(), template, [...system, ...pair], options);
    };
    const ids = idsOf(query, document);
    if (!truncate || ids.length <= this.maxTokens) return { ids, secondFrom: ids.length };
    const [one, other] = [idsOf("a", "a"), idsOf("b", "b")];
    let kept = 0;
    while (kept < Math.min(one.length, this.maxTokens) && one.at(-1 - kept) === other.at(-1 - kept)) kept++;
    const cut = [...ids.slice(0, this.maxTokens - kept), ...ids.slice(ids.length - kept)];
    return { ids: cut, secondFrom: cut.length };
  }

  /** Scores of pairs, in order: the logistic function of the logits, 0 to 1, unless the model's authors say raw logits. */
  async score(pairs: readonly TokenSequence[], signal?: AbortSignal): Promise<number[]> {
    const values = await this.#batches.run(pairs, signal);
    const { isScoreRaw = false } = this.#settings;
    return values.map(([value]) => (isScoreRaw ? value! : 1 / (1 + Math.exp(-value!))));
  }

  /** Scores documents by how well they answer a query, in the order of the documents. Throws as `encode`. */
  rank(query: string, documents: readonly string[], options: RankOptions = {}): Promise<number[]> {
    checkOptions(options);
    if (!Array.isArray(documents)) throw new InvalidArgumentError("documents: expected a list of texts");
    return this.score(
      documents.map((document) => this.encode(query, document, options)),
      options.signal,
    );
  }

  /** Ends waiting calls with an error; the model must not be used any more. */
  dispose(): Promise<void> {
    return this.#batches.dispose();
  }
}
