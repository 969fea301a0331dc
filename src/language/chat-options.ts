/** Options of chat, and the events and results of an answer. */
import { checkOptions, checkWhole, shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { AssistantMessage, ToolChoice } from "../text/chat-messages.ts";
import type { GenerateOptions, GenerationResult } from "../text/generate.ts";
import type { LogProbabilities } from "../text/log-probabilities.ts";
import type { OutputSchema } from "../text/output-schema.ts";
import type { TemplateOptions } from "../text/template-input.ts";
import { ResultStream } from "./result-stream.ts";

/** How messages become a prompt. */
export interface EncodeChatOptions extends TemplateOptions {
  /**
   * Whether the model thinks before it answers, for models that can do both. With `budget`, thinking ends after that many
   * tokens. Default: what the chat template does.
   */
  readonly thinking?: boolean | { readonly budget: number } | undefined;
}

/** How an answer is generated. Strings of `stop` end the answer's text; in the model's thinking they are ignored. */
export interface ChatOptions extends GenerateOptions, EncodeChatOptions {
  /**
   * JSON schema of the answer's text, or a Standard Schema such as one of zod or valibot; `result.value` is its value.
   * Thinking is not constrained by it, nor are tool calls that begin with a special token.
   */
  readonly schema?: OutputSchema | undefined;
  /** Whether the model may or must call tools, and which. Default "auto". */
  readonly toolChoice?: ToolChoice | undefined;
}

/** A piece of an answer as it comes. */
export type ChatEvent =
  | { readonly type: "reasoning"; readonly text: string }
  | {
      readonly type: "text";
      readonly text: string;
      /** Log probabilities of the tokens that the text consists of; absent unless the options ask for them. */
      readonly logprobs?: readonly LogProbabilities[];
    }
  /** A call of a tool begins: `index` counts the calls of an answer from 0. */
  | { readonly type: "toolCall"; readonly index: number; readonly id: string; readonly name: string }
  /** More of the JSON text of a call's arguments. */
  | { readonly type: "toolArguments"; readonly index: number; readonly text: string };

/** Number of tokens of an answer and its prompt. */
interface ChatUsage {
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens of the prompt that the prefix cache held, so that they were not computed. */
  readonly cachedTokens: number;
  /** Tokens generated, including those of thinking and an end token. */
  readonly completionTokens: number;
  /** Generated tokens of the model's thinking. */
  readonly reasoningTokens: number;
}

/** The result of an answer: message, reason of its end, and usage. */
export interface ChatResult {
  /** The answer as a message of the conversation. */
  readonly message: AssistantMessage;
  /**
   * Why the answer ended: "stop" for an end token or stop string, "length" when `maxTokens` or the context is used up,
   * "toolCalls" when the model waits for results of its calls.
   */
  readonly finishReason: "stop" | "length" | "toolCalls";
  /** The stop string that ended the answer; null when none did. */
  readonly stopString: string | null;
  /**
   * The parsed value of an answer with a schema; undefined without a schema, and where the model called tools or the answer
   * was cut.
   */
  readonly value?: unknown;
  /** Number of tokens of prompt and answer. */
  readonly usage: ChatUsage;
  /** Statistics of the generation: times, and a sentence for users when the context is full. */
  readonly generation: GenerationResult;
}

/** Events of an answer as they come, with a result at their end. */
export class ChatStream extends ResultStream<ChatEvent, ChatResult> {
  readonly #known: { promptTokens: number | null };

  /** `begin` starts the answer; it sets `known.promptTokens` before the first event. */
  constructor(begin: (known: { promptTokens: number | null }) => AsyncGenerator<ChatEvent, ChatResult, void>) {
    const known = { promptTokens: null };
    super(begin(known));
    this.#known = known;
  }

  /** Number of tokens of the prompt, from the first event on; null before that. */
  get promptTokens(): number | null {
    return this.#known.promptTokens;
  }
}

/** How several answers (choices) to one prompt are generated. All have the same options, except for the seed. */
export interface ChatChoicesOptions extends ChatOptions {
  /** Number of answers, from 1 on. */
  readonly n: number;
  /**
   * Called as each answer ends, after its last event and while others may go on. An error that it throws ends all answers.
   */
  readonly onEnd?: ((choice: number, result: ChatResult) => void) | undefined;
}

/** Events of several answers as they come, each with the number of its answer, from 0. */
export type ChatChoices = ResultStream<ChatEvent & { readonly choice: number }, readonly ChatResult[]>;

/** Most tokens of thinking; null for no limit. InvalidArgumentError for a value that is no option of thinking. */
export function thinkingBudget(thinking: EncodeChatOptions["thinking"]): number | null {
  if (thinking === undefined || typeof thinking === "boolean") return null;
  if (typeof thinking !== "object" || thinking === null)
    throw new InvalidArgumentError(`thinking: expected true, false or { budget } but found ${shown(thinking)}`);
  return checkWhole("thinking.budget", thinking.budget, 0);
}

/** Whether the template is told to let the model think; undefined where the template decides. */
export function wantsThinking(thinking: EncodeChatOptions["thinking"]): boolean | undefined {
  const budget = thinkingBudget(thinking);
  return budget === null ? (thinking as boolean | undefined) : budget > 0;
}

/** The options of generation: those of prompts and of answer parsers are left out. */
export function generateOptionsOf(options: ChatOptions): GenerateOptions {
  checkOptions(options);
  const { tools, thinking, templateOptions, toolChoice, schema, ...rest } = options;
  return rest;
}

/** Adds the model's own stop strings to those of the options. */
export function withOwnStops(model: { readonly stopStrings: readonly string[] }, options: ChatOptions): ChatOptions {
  return options.stop ? { ...options, stop: [...options.stop, ...model.stopStrings] } : options;
}
