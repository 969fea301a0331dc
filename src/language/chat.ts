/** Generates answers to messages: events as they come, and a result. */
import { checkOptions } from "../arguments.ts";
import type { AnswerFormat } from "../text/answer/index.ts";
import { goesOnThinking } from "../text/answer-prefix.ts";
import { type AssistantMessage, checkToolChoice, type Message, type Tool } from "../text/chat-messages.ts";
import type { Decoder } from "../text/decoder.ts";
import { type GeneratedToken, type GenerateOptions, type GenerationResult, generate } from "../text/generate.ts";
import type { LogProbabilities } from "../text/log-probabilities.ts";
import { hasChannels, thinkingTags } from "../text/thinking.ts";
import { AnswerGuide } from "./answer-guide.ts";
import { CallWatch, callParts } from "./call-watch.ts";
import {
  type ChatEvent,
  type ChatOptions,
  type ChatResult,
  generateOptionsOf,
  thinkingBudget,
} from "./chat-options.ts";
import type { ChatModel } from "./chat-prompt.ts";
import { type ConstrainedParts, constrainText } from "./constrained-text.ts";
import { withDefaults } from "./generation-settings.ts";
import { mapEvents } from "./result-stream.ts";

/**
 * Checks options before the prompt is made, and leaves tools out where none may be called. InvalidArgumentError for an
 * unknown `toolChoice`.
 */
export function checkChatOptions(options: ChatOptions): ChatOptions {
  checkOptions(options);
  const { tools = [], toolChoice = "auto" } = options;
  checkToolChoice(toolChoice, tools);
  // Without tools in its prompt, a model calls none.
  return toolChoice === "none" ? { ...options, tools: [] } : options;
}

/** A prompt whose first `kept` ids are already in the decoder's context. */
export interface EncodedPrompt {
  readonly ids: readonly number[];
  readonly kept: number;
  /** The beginning of the answer that the prompt ends with; null where the model begins the answer. */
  readonly prefix: AssistantMessage | null;
}

/** Generates the answer to a prompt. `onToken` is called with each token before its events. */
export async function* answer(
  model: ChatModel,
  decoder: Decoder,
  { ids, kept, prefix }: EncodedPrompt,
  options: ChatOptions,
  onToken: (id: number) => void = () => {},
): AsyncGenerator<ChatEvent, ChatResult, void> {
  const { tokenizer, samplingDefaults, draft, eosIds, stopStrings } = model;
  const settings = withDefaults<GenerateOptions>(
    { ...samplingDefaults, draft, eosIds, stop: stopStrings },
    generateOptionsOf(options),
  );
  const { stop = [], ...rest } = settings;
  const output =
    options.schema === undefined ? null : await (await model.modules.constraints()).readSchema(options.schema);
  const constraint = output?.constraint ?? rest.constraint;
  const reading = await readingOf(model, ids, prefix, options);
  const parts = partsOf(reading.format, options);
  const vocabularySize = decoder.vocabularySize ?? tokenizer.vocabSize;
  const constrained = await constrainText(model, vocabularySize, { constraint, eosIds: rest.eosIds }, parts);
  const mayCall = parts === undefined;
  const tools = callable(options);
  const hasStrictCalls = tools.length < (options.tools ?? []).length || tools.some(({ strict }) => strict);
  const call = mayCall && hasStrictCalls && reading.format ? callParts(reading.format, tools) : null;
  const callText = call && (await constrainText(model, vocabularySize, { eosIds: rest.eosIds }, call));
  const watch = callText && new CallWatch(reading.format!.callToken, callText);
  const prefixText = prefix?.content ?? "";
  const guide = new AnswerGuide({ tokenizer, stop, onToken, constrained, watch, ...reading, mayCall, prefixText });
  const given = { ...rest, contextIds: ids.slice(0, kept) };
  const tokens = generate(decoder, tokenizer, ids.slice(kept), given, guide);
  const logprobs = new TextLogprobs();
  const take = ({ logprobs: found }: GeneratedToken) => {
    const events = guide.takeEvents();
    return found ? logprobs.attach(events, found, guide.isThinking) : events;
  };
  const end = async (generation: GenerationResult) => {
    const result = resultOf(guide, generation, { ids, kept });
    const isWhole = output !== null && result.finishReason === "stop" && result.stopString === null;
    return isWhole ? { ...result, value: await output.parse(prefixText + guide.text) } : result;
  };
  try {
    return yield* mapEvents(tokens, take, end);
  } finally {
    constrained?.dispose();
    watch?.dispose();
  }
}

/** The tools that this answer may call. */
function callable({ tools = [], toolChoice = "auto" }: ChatOptions): readonly Tool[] {
  if (typeof toolChoice === "string") return tools;
  const names = "names" in toolChoice ? toolChoice.names : [toolChoice.name];
  return tools.filter(({ name }) => names.includes(name));
}

/** Constraint of an answer that must call a tool; undefined where it need not. */
function partsOf(format: AnswerFormat | null, options: ChatOptions): ConstrainedParts | undefined {
  const { toolChoice = "auto" } = options;
  const mode = typeof toolChoice === "string" ? toolChoice : "names" in toolChoice ? toolChoice.mode : "required";
  return mode === "required" && format ? { steps: format.callSteps, tools: callable(options) } : undefined;
}

/** Parser of the answer, thinking and tool calls; null where the model gives only text. */
async function readingOf(
  { tokenizer, template, modules }: ChatModel,
  ids: readonly number[],
  prefix: AssistantMessage | null,
  options: ChatOptions,
) {
  const { tools = [], thinking } = options;
  const source = template?.source ?? "";
  const tags = thinkingTags(source);
  const budget = thinking === false ? 0 : thinkingBudget(thinking);
  if (tools.length === 0 && !tags && !hasChannels(source))
    return { parser: null, format: null, budget: null, mayThink: false };
  const { AnswerParser, answerFormat } = await modules.answers();
  const format = answerFormat(source, tools.length > 0);
  const tail = tokenizer.decode(ids.slice(-TAIL)).trimEnd();
  const isThinking = prefix ? goesOnThinking(prefix) : tags !== null && tail.endsWith(tags.begin);
  // A template that turns thinking off ends the prompt with closed thinking tags.
  const mayThink = !prefix && thinking !== false && tags !== null && !tail.endsWith(tags.end);
  return { parser: new AnswerParser(format, { tools, isThinking, makeId }), format, budget, mayThink };
}

/** Tokens at the end of a prompt that may hold the template's thinking tags. */
const TAIL = 16;

function makeId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `call_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function resultOf(
  guide: AnswerGuide,
  generation: GenerationResult,
  { ids, kept }: Omit<EncodedPrompt, "prefix">,
): ChatResult {
  const { text, reasoning, toolCalls, stopString } = guide;
  const { finishReason, cachedTokens, generatedTokens } = generation;
  return {
    message: {
      role: "assistant",
      content: text === "" && toolCalls.length > 0 ? null : text,
      ...(reasoning !== "" && { reasoning }),
      ...(toolCalls.length > 0 && { toolCalls }),
    },
    finishReason: finishReason === "stop" && stopString === null && toolCalls.length > 0 ? "toolCalls" : finishReason,
    stopString,
    usage: {
      promptTokens: ids.length,
      cachedTokens: kept + cachedTokens,
      completionTokens: generatedTokens,
      reasoningTokens: guide.reasoningTokens,
    },
    generation: { ...generation, stopString },
  };
}

/** Joins log probabilities of tokens to the text events that the tokens became. */
class TextLogprobs {
  #pending: LogProbabilities[] = [];

  *attach(events: readonly ChatEvent[], logprobs: LogProbabilities, isThinking: boolean): Generator<ChatEvent> {
    this.#pending.push(logprobs);
    const first = events.findIndex(({ type }) => type === "text");
    for (const [index, event] of events.entries())
      yield event.type === "text" && index === first ? { ...event, logprobs: this.#pending } : event;
    if (events.length > 0 || isThinking) this.#pending = [];
  }
}

/** A copy of the messages: the caller may add to the list before the answer begins. */
export function messagesNow(messages: readonly Message[]): readonly Message[] {
  return Array.isArray(messages) ? messages.slice() : messages;
}
