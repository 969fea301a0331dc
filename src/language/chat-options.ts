/** How a model answers messages, and what an answer is given as. */
import { checkOptions, checkWhole, shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { AssistantMessage, Tool, ToolChoice } from "../text/chat-messages.ts";
import type { GenerateOptions, GenerationResult } from "../text/generate.ts";
import type { LogProbabilities } from "../text/log-probabilities.ts";
import type { OutputSchema } from "../text/output-schema.ts";
import { ResultStream } from "./result-stream.ts";

/** How messages become a prompt. */
export interface EncodeChatOptions {
  /** Tools that the model may call. Default none. */
  readonly tools?: readonly Tool[] | undefined;
  /**
   * Whether the model thinks before it answers, for models that do both; with a budget, thinking ends after so many tokens.
   * Default: as the chat template has it.
   */
  readonly thinking?: boolean | { readonly budget: number } | undefined;
  /** Further variables of the chat template, such as `reasoning_effort`. */
  readonly templateOptions?: Readonly<Record<string, unknown>> | undefined;
}

/** How an answer is generated. `stop` ends the answer's text alone, not what the model thinks. */
export interface ChatOptions extends GenerateOptions, EncodeChatOptions {
  /**
   * JSON schema of the answer's text, or a Standard Schema such as one of zod or valibot; `result.value` is its value. It
   * does not hold the model's thinking, nor calls of tools that begin with a token of their own.
   */
  readonly schema?: OutputSchema | undefined;
  /** Whether tools are called. Default "auto". */
  readonly toolChoice?: ToolChoice | undefined;
}

/** A piece of an answer as it comes. */
export type ChatEvent =
  | { readonly type: "reasoning"; readonly text: string }
  | {
      readonly type: "text";
      readonly text: string;
      /** Log probabilities of the tokens that the text was made of; absent unless the options ask for them. */
      readonly logprobs?: readonly LogProbabilities[];
    }
  /** A call of a tool begins: `index` counts the calls of an answer from 0. */
  | { readonly type: "toolCall"; readonly index: number; readonly id: string; readonly name: string }
  /** More of the JSON text of a call's arguments. */
  | { readonly type: "toolArguments"; readonly index: number; readonly text: string };

/** Tokens of an answer. */
interface ChatUsage {
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens of the prompt that were computed before. */
  readonly cachedTokens: number;
  /** Tokens generated, those of thinking and of an end token included. */
  readonly completionTokens: number;
  /** Generated tokens in which the model thought. */
  readonly reasoningTokens: number;
}

/** What an answer came to. */
export interface ChatResult {
  /** The answer as a message of the conversation. */
  readonly message: AssistantMessage;
  /**
   * Why the answer ended: "stop" for an end token or stop string, "length" when `maxTokens` or the context is used up,
   * "toolCalls" when the model waits for results of its calls.
   */
  readonly finishReason: "stop" | "length" | "toolCalls";
  /** The stop string that was found; null when none was. */
  readonly stopString: string | null;
  /** What an answer to a schema says; undefined without one, and where the model called tools or the answer was cut. */
  readonly value?: unknown;
  /** Tokens read and written. */
  readonly usage: ChatUsage;
  /** How the generation went: times, and the sentence for users when the context is full. */
  readonly generation: GenerationResult;
}

/** An answer as it comes. */
export class ChatStream extends ResultStream<ChatEvent, ChatResult> {
  readonly #known: { promptTokens: number | null };

  /** `begin` is given what takes the number of tokens of the prompt. */
  constructor(begin: (known: { promptTokens: number | null }) => AsyncGenerator<ChatEvent, ChatResult, void>) {
    const known = { promptTokens: null };
    super(begin(known));
    this.#known = known;
  }

  /** Tokens of the prompt, from the first event on; null before that. */
  get promptTokens(): number | null {
    return this.#known.promptTokens;
  }
}

/** How several answers are generated: as one is, so many times. */
export interface ChatChoicesOptions extends ChatOptions {
  /** How many answers, from 1 on. */
  readonly n: number;
  /** Called as each answer ends, after its last event and while others may go on. What it throws ends all. */
  readonly onEnd?: ((choice: number, result: ChatResult) => void) | undefined;
}

/** Several answers as they come: events say to which they belong, counted from 0. */
export type ChatChoices = ResultStream<ChatEvent & { readonly choice: number }, readonly ChatResult[]>;

/** Budget of thinking; null for any. InvalidArgumentError for what is none. */
export function thinkingBudget(thinking: EncodeChatOptions["thinking"]): number | null {
  if (thinking === undefined || typeof thinking === "boolean") return null;
  if (typeof thinking !== "object" || thinking === null)
    throw new InvalidArgumentError(`thinking: expected true, false or { budget } but found ${shown(thinking)}`);
  return checkWhole("thinking.budget", thinking.budget, 0);
}

/** Whether the template is asked to let the model think; undefined where it decides. */
export function wantsThinking(thinking: EncodeChatOptions["thinking"]): boolean | undefined {
  const budget = thinkingBudget(thinking);
  return budget === null ? (thinking as boolean | undefined) : budget > 0;
}

/** The options without those that only prompts and parsers have. */
export function generateOptionsOf(options: ChatOptions): GenerateOptions {
  checkOptions(options);
  const { tools, thinking, templateOptions, toolChoice, schema, ...rest } = options;
  return rest;
}

/** Options whose stop strings count beside the model's own. */
export function withOwnStops(model: { readonly stopStrings: readonly string[] }, options: ChatOptions): ChatOptions {
  return options.stop ? { ...options, stop: [...options.stop, ...model.stopStrings] } : options;
}
