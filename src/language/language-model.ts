/** A loaded program with its tokenizer: text in, text out. Each `generate` has a sequence of its own. */
import { checkInstance, checkOptions, checkString } from "../arguments.ts";
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { checkMemory } from "../kernels/memory.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import type { Program } from "../program/program.ts";
import { bytesNeeded, checkProgram, LoadedProgram, type LoadOptions } from "../runtime/program.ts";
import { answerPrefix } from "../text/answer-prefix.ts";
import type { Message } from "../text/chat-messages.ts";
import type { ChatTemplate } from "../text/chat-template.ts";
import type { Decoder } from "../text/decoder.ts";
import { checkDraft, type Draft } from "../text/draft-source.ts";
import type { GenerateOptions, GenerationResult, generate } from "../text/generate.ts";
import { type ModelAssets, parse, readAssets } from "../text/model-assets.ts";
import { plainSettings, readTextSettings } from "../text/text-settings.ts";
import { type Tokenizer, WHOLE_TEXT } from "../text/tokenizer.ts";
import { programAssets } from "./assets.ts";
import { answer, checkChatOptions, messagesNow } from "./chat.ts";
import {
  type ChatChoices,
  type ChatChoicesOptions,
  type ChatOptions,
  ChatStream,
  type EncodeChatOptions,
} from "./chat-options.ts";
import { encodePrompt } from "./chat-prompt.ts";
import { type ChoicePart, type ChoicesOptions, checkChoices, runChoices, seedOf } from "./choices.ts";
import { generateConstrained } from "./constraint-guide.ts";
import { Conversation, type ConversationOptions } from "./conversation.ts";
import { createDecoder, type SchedulingOptions, scheduleWith } from "./decoders.ts";
import { EmbeddingModel, type EmbedOptions } from "./embedding-model.ts";
import {
  type GenerationDefaults,
  ignoredSettings,
  samplingDefaults,
  stopStrings,
  withDefaults,
} from "./generation-settings.ts";
import type { LateModules } from "./late-modules.ts";
import { DRAFT_METHOD, type ProgramDecoder } from "./program-decoder.ts";
import { type RankOptions, Reranker } from "./reranker.ts";
import { mapEvents, ResultStream } from "./result-stream.ts";
import { StructuredGeneration, type StructuredOptions } from "./structured.ts";
import { warmDecoder } from "./warm-up.ts";

/**
 * A loaded program as a language model, made by `loadProgram` or `loadCompiled`. It generates text, holds conversations and
 * counts tokens; `dispose()` frees its threads and memory.
 * @example
 * const llm = await loadProgram("llama.pte");
 * for await (const piece of llm.generate("Once upon a time", { maxTokens: 64 })) process.stdout.write(piece);
 * await llm.dispose();
 */
export class LanguageModel {
  /** Name of the file or folder, for messages. */
  readonly name: string;
  /** The loaded program. */
  readonly program: LoadedProgram;
  /** Loads the modules that parse and constrain answers when they are first needed. */
  readonly modules: LateModules;
  /** The chat template that came with the model; null without one. */
  readonly template: ChatTemplate | null;
  /**
   * Sampling and most tokens that the model's authors recommend; without a recommendation greedy, with no limit of tokens.
   */
  readonly samplingDefaults: GenerationDefaults;
  /** Stop strings that end an answer in chat. */
  readonly stopStrings: readonly string[];
  /** Names of settings of generation_config.json that transformers obeys and that are ignored here. */
  readonly ignoredSettings: readonly string[];
  /** The embedding model of a program that makes embeddings; null for others. */
  readonly embedding: EmbeddingModel | null;
  /** The reranker of a program that scores documents; null for others. */
  readonly reranker: Reranker | null;
  readonly #tokenizer: Tokenizer | null;
  #draft: Draft = "lookup";
  /** The decoder that warming up used, given to the first that asks for a decoder. */
  #warm: ProgramDecoder | null = null;

  constructor(name: string, program: LoadedProgram, texts: ModelAssets, modules: LateModules) {
    const { tokenizer, template } = readAssets(texts, name);
    const settingsFile = `${name}, generation_config.json`;
    const settings = texts.generationConfig ? parse(texts.generationConfig, settingsFile) : {};
    const vocabularySize = program.count("get_vocab_size", Number.POSITIVE_INFINITY);
    this.name = name;
    this.program = program;
    this.modules = modules;
    this.template = template;
    this.#tokenizer = tokenizer;
    this.samplingDefaults = samplingDefaults(settings, settingsFile, vocabularySize);
    this.stopStrings = stopStrings(settings);
    this.ignoredSettings = ignoredSettings(settings);
    const textFile = `${name}, text_settings.json`;
    const textSettings = texts.textSettings
      ? readTextSettings(parse(texts.textSettings, textFile), textFile)
      : plainSettings;
    this.embedding = program.has("embed") ? new EmbeddingModel(program, () => this.tokenizer, textSettings) : null;
    this.reranker = program.has("rank") ? new Reranker(program, () => this.tokenizer, textSettings, template) : null;
  }

  /**
   * Runs the program until it is fast, where its code is compiled while it runs (WebAssembly). The first decoder that is
   * asked for afterwards is the one that ran.
   */
  async warmUp(options: { signal?: AbortSignal | undefined; warmUpMs?: number | undefined } = {}): Promise<void> {
    checkOptions(options);
    const earlier = this.#warm;
    this.#warm = null;
    await earlier?.dispose();
    if (this.makes === "text") this.#warm = await warmDecoder(this.program, options);
  }

  /** Whether the model came with a tokenizer; without one, only token ids work. */
  get hasTokenizer(): boolean {
    return this.#tokenizer !== null;
  }

  /** The tokenizer that came with the model. InvalidFileError when there is none. */
  get tokenizer(): Tokenizer {
    if (!this.#tokenizer)
      throw new InvalidFileError(this.name, "expected a tokenizer.json in or beside the program; only token ids work");
    return this.#tokenizer;
  }

  /** Ids of the tokens that end a text. */
  get eosIds(): readonly number[] {
    const ids = this.program.metadata.get("get_eos_ids");
    return Array.isArray(ids) ? ids : [];
  }

  /**
   * Where drafts come from in generations that do not say. "lookup", the default, finds them in the prompt and the answer,
   * "mtp" takes the model's layer of multi-token prediction, a smaller model with the same tokens drafts by itself (the
   * caller disposes of it), and "off" means none. InvalidArgumentError for a model with other tokens, and for "mtp" where
   * the model has no such layer.
   * @example
   * llm.draft = await loadProgram("smaller.pte");
   */
  get draft(): Draft {
    return this.#draft;
  }

  set draft(draft: Draft) {
    const { name, tokenizer } = this;
    checkDraft(draft, { name, tokenizer, hasDraftHead: this.program.has(DRAFT_METHOD) });
    this.#draft = draft;
  }

  /**
   * Computes embeddings of texts, or of token ids, in order: vectors that are near to each other where texts mean the same.
   * UnsupportedError for a program that generates text; ContextLengthError for texts longer than the model takes.
   * @example
   * const [query, answer] = await model.embed(["What is the capital of France?", "Paris"], { dimensions: 256 });
   */
  async embed(texts: readonly (string | readonly number[])[], options: EmbedOptions = {}): Promise<Float32Array[]> {
    return this.#part(this.embedding, "embeddings").embed(texts, options);
  }

  /**
   * Scores documents by how well they answer a query, in the order of the documents; higher is better. UnsupportedError for
   * a program that is no reranker; ContextLengthError for pairs longer than the model takes.
   * @example
   * const scores = await model.rank("What is the capital of France?", ["Paris", "A baguette is a bread."]);
   */
  async rank(query: string, documents: readonly string[], options: RankOptions = {}): Promise<number[]> {
    return this.#part(this.reranker, "scores").rank(query, documents, options);
  }

  /** What the model gives: generated text, or embeddings or scores of texts. */
  get makes(): "text" | "embeddings" | "scores" {
    if (this.embedding) return "embeddings";
    return this.reranker ? "scores" : "text";
  }

  #part<P>(part: P | null, wanted: string): P {
    if (part !== null) return part;
    const does = this.makes === "text" ? "generates text" : `gives ${this.makes}`;
    throw new UnsupportedError(`${this.name}: the program ${does}; it gives no ${wanted}`);
  }

  /**
   * Makes a decoder with a sequence of its own, for token ids. It shares a prefix cache with the decoders of the same
   * `scope`. UnsupportedError for a program that gives embeddings or scores.
   */
  createDecoder(scope?: PrefixScope): ProgramDecoder {
    if (this.makes !== "text")
      throw new UnsupportedError(`${this.name}: the program gives ${this.makes}; it generates no text`);
    if (scope) return createDecoder(this.program, scope);
    const warm = this.#warm;
    this.#warm = null;
    return warm ?? createDecoder(this.program);
  }

  /**
   * Continues a prompt. Options that are not given are those of `samplingDefaults`. With `schema`, the text is JSON that
   * follows the schema, and `value` is its parsed value. ContextLengthError when the prompt does not fit; an abort throws
   * the signal's reason.
   * @example
   * const { city } = await llm.generate("Where is the Eiffel Tower? ", { schema: z.object({ city: z.string() }) }).value;
   */
  generate<T>(prompt: string | readonly number[], options: StructuredOptions<T>): StructuredGeneration<T>;
  generate(prompt: string | readonly number[], options?: GenerateOptions): ResultStream<string, GenerationResult>;
  generate(
    prompt: string | readonly number[],
    options: GenerateOptions & Partial<StructuredOptions<unknown>> = {},
  ): ResultStream<string, GenerationResult> {
    const { schema, ...given } = withDefaults<typeof options>(
      { ...this.samplingDefaults, eosIds: this.eosIds, draft: this.#draft },
      options,
    );
    const settings: GenerateOptions = given;
    if (schema !== undefined)
      return new StructuredGeneration(schema, this.modules, (constraint) =>
        this.#generate(prompt, { ...settings, constraint }),
      );
    return new ResultStream(mapEvents(this.#generate(prompt, settings), ({ text }) => (text === "" ? [] : [text])));
  }

  /**
   * Continues a prompt in `n` ways (choices): the prompt is computed once, and all texts are generated at the same time.
   * Options that are not given are those of `samplingDefaults`; with temperature 0 all texts are the same. Throws as
   * `generate`; an error ends all texts.
   * @example
   * for await (const { choice, text } of llm.generateChoices("Once upon a time", { n: 3 })) texts[choice] += text;
   */
  generateChoices(
    prompt: string | readonly number[],
    options: ChoicesOptions,
  ): ResultStream<ChoicePart, readonly GenerationResult[]> {
    checkOptions(options);
    checkChoices(options.n);
    const { n, onEnd, ...given } = options;
    const { samplingDefaults, eosIds, draft } = this;
    const settings = withDefaults<GenerateOptions>({ ...samplingDefaults, eosIds, draft }, given);
    return new ResultStream(this.#generateChoices(prompt, { ...settings, n, onEnd }));
  }

  async *#generateChoices(prompt: string | readonly number[], { n, onEnd, ...settings }: ChoicesOptions) {
    const { tokenizer } = this;
    const decoder = this.createDecoder(settings.prefixScope);
    const ids = () => idsOf(prompt, tokenizer, decoder.contextLength);
    const begin = (decoder: Decoder, ids: readonly number[], choice: number) =>
      generateConstrained(this, decoder, ids, { ...settings, seed: seedOf(settings.seed, choice) });
    return yield* mapEvents(runChoices(decoder, n, ids, begin, onEnd), ({ from: choice, value: { text, logprobs } }) =>
      text !== "" || logprobs ? [{ choice, text, logprobs }] : [],
    );
  }

  async *#generate(prompt: string | readonly number[], settings: GenerateOptions): ReturnType<typeof generate> {
    const { tokenizer } = this;
    const decoder = this.createDecoder(settings.prefixScope);
    try {
      const ids = idsOf(prompt, tokenizer, decoder.contextLength);
      return yield* generateConstrained(this, decoder, ids, settings);
    } finally {
      await decoder.dispose();
    }
  }

  /**
   * Encodes a conversation with the model's chat template, up to where an answer begins: the prompt that `chat` computes.
   *
   * @throws UnsupportedError for a model without a chat template, for tools where the template has none, and for thinking
   * where the model does not think.
   */
  encodeChat(messages: readonly Message[], options: EncodeChatOptions = {}): number[] {
    checkOptions(options);
    return encodePrompt(this, messages, options, Number.POSITIVE_INFINITY);
  }

  /**
   * Answers messages in the model's chat template, with thinking and tool calls apart from text. No messages are kept, but
   * keys and values of an equal beginning are used again. Where the last message is the model's and calls no tools, the
   * answer continues it, and has only what is new. Throws as `generate` and `encodeChat`.
   * @example
   * for await (const event of llm.chat([{ role: "user", content: "Hello!" }]))
   *   if (event.type === "text") process.stdout.write(event.text);
   */
  chat(messages: readonly Message[], options: ChatOptions = {}): ChatStream {
    return new ChatStream((known) => this.#chat(messagesNow(messages), options, known));
  }

  async *#chat(
    messages: readonly Message[],
    options: ChatOptions,
    known: { promptTokens: number | null },
  ): ReturnType<typeof answer> {
    const given = checkChatOptions(options);
    const decoder = this.createDecoder(given.prefixScope);
    try {
      const ids = encodePrompt(this, messages, given, decoder.contextLength);
      known.promptTokens = ids.length;
      return yield* answer(this, decoder, { ids, kept: 0, prefix: answerPrefix(messages) }, given);
    } finally {
      await decoder.dispose();
    }
  }

  /** Answers messages in `n` ways (choices), each as `chat` does; with a seed, answer `i` is drawn with seed + i. */
  chatChoices(messages: readonly Message[], options: ChatChoicesOptions): ChatChoices {
    checkOptions(options);
    checkChoices(options.n);
    return new ResultStream(this.#chatChoices(messagesNow(messages), options));
  }

  async *#chatChoices(messages: readonly Message[], { n, onEnd, ...options }: ChatChoicesOptions) {
    const given = checkChatOptions(options);
    const decoder = this.createDecoder(given.prefixScope);
    const ids = () => encodePrompt(this, messages, given, decoder.contextLength);
    const begin = (decoder: Decoder, ids: readonly number[], choice: number) =>
      answer(
        this,
        decoder,
        { ids, kept: 0, prefix: answerPrefix(messages) },
        { ...given, seed: seedOf(given.seed, choice) },
      );
    return yield* mapEvents(runChoices(decoder, n, ids, begin, onEnd), ({ from: choice, value }) => [
      { ...value, choice },
    ]);
  }

  /** Frees memory and threads. Generations under way end with an error, and nothing of the model may be used any more. */
  async dispose(): Promise<void> {
    await this.program.dispose();
  }

  /** Starts a conversation in the model's chat template, which keeps its messages with their keys and values. */
  createConversation(options: ConversationOptions = {}): Conversation {
    return new Conversation(this, options);
  }
}

/** Ids of a prompt. ContextLengthError for a text of more tokens than the context has. */
function idsOf(prompt: string | readonly number[], tokenizer: Tokenizer, contextLength: number): readonly number[] {
  return typeof prompt === "string" ? tokenizer.encode(prompt, { ...WHOLE_TEXT, contextLength }) : prompt;
}

/** InvalidArgumentError for anything but a loaded model. */
export function checkLanguageModel(model: LanguageModel, name = "model"): void {
  checkInstance(name, model, LanguageModel, "one of loadProgram()");
}

/** UnsupportedError, with the bytes needed, when a program is larger than the memory that programs can have here. */
export function checkProgramMemory(program: Program): void {
  checkMemory(hostCpu(), bytesNeeded(program));
}

/** Options of loading a program as a language model. */
export interface LanguageModelOptions extends LoadOptions, SchedulingOptions {
  /** Tokenizer and template files. Default: those of the program. */
  readonly texts?: ModelAssets;
  /** Most milliseconds of warming up. */
  readonly warmUpMs?: number | undefined;
}

/**
 * Loads a program in memory, such as one of `compileModel`. InvalidFileError or UnsupportedError when it cannot run here.
 */
export async function loadLanguageModel(
  program: Program,
  name: string,
  modules: LateModules,
  options: LanguageModelOptions = {},
): Promise<LanguageModel> {
  checkProgram(program);
  checkString("name", name);
  checkOptions(options);
  const loaded = await LoadedProgram.load(program.file === undefined ? { ...program, file: name } : program, options);
  try {
    scheduleWith(loaded, options);
    const model = new LanguageModel(name, loaded, options.texts ?? (await programAssets(program)), modules);
    await model.warmUp(options);
    return model;
  } catch (error) {
    await loaded.dispose();
    throw error;
  }
}
