/** A conversation: messages, the chat template that renders them, and the sequence that keeps their keys and values. */
import { checkOptions, checkWhole, shown } from "../arguments.ts";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";
import { logInfo } from "../log.ts";
import { checkMessages, type Message, type TextPart } from "../text/chat-messages.ts";
import { answer, checkChatOptions } from "./chat.ts";
import type { ChatEvent, ChatOptions, ChatResult } from "./chat-options.ts";
import { type ChatModel, encodePrompt } from "./chat-prompt.ts";
import { canRun, type ExecutableTool, type OnToolCall, runCall } from "./conversation-tools.ts";
import { withDefaults } from "./generation-settings.ts";
import type { ProgramDecoder } from "./program-decoder.ts";
import { type ConversationEvent, Reply } from "./reply.ts";
import { mapEvents } from "./result-stream.ts";

/** A model that holds conversations. */
export interface ConversingModel extends ChatModel {
  /** Makes a decoder with a sequence of its own. */
  createDecoder(): ProgramDecoder;
}

/** Options of a conversation: its tools, and what happens when its context is full. */
export interface ConversationOptions {
  /**
   * Tools that the model may call in every answer. Those with `execute` are run, and their results go back to the model.
   */
  readonly tools?: readonly ExecutableTool[] | undefined;
  /** Runs calls of tools without `execute`. Without this function, an answer ends where the model calls such a tool. */
  readonly onToolCall?: OnToolCall | undefined;
  /**
   * What happens when the context is full. `error` (default): an answer that does not fit ends with finishReason "length",
   * and a message that does not fit is a ContextLengthError. `leaveOutOldest`: as many of the oldest turns as necessary are
   * left out of the prompt; the system message stays, and so do `messages`.
   */
  readonly whenFull?: "error" | "leaveOutOldest" | undefined;
  /** Called when turns are left out, with the number of messages that the prompt has lost so far. */
  onLeaveOut?(messages: number): void;
}

/** How an answer of a conversation is generated. `tools` replace the conversation's for this answer. */
export interface SendOptions extends ChatOptions {
  readonly tools?: readonly ExecutableTool[] | undefined;
  /** Most rounds of tool calls before an answer ends with its calls unanswered. Default 16. */
  readonly maxToolRounds?: number | undefined;
}

const TOOL_ROUNDS = 16;

/** Tokens of the context that are kept for an answer without `maxTokens`, at most a quarter of the context. */
const ANSWER_TOKENS = 512;

function checkConversationOptions(options: ConversationOptions): ConversationOptions {
  checkOptions(options);
  const { whenFull } = options;
  if (whenFull !== undefined && whenFull !== "error" && whenFull !== "leaveOutOldest")
    throw new InvalidArgumentError(`whenFull: expected error or leaveOutOldest but found ${shown(whenFull)}`);
  return options;
}

/**
 * A conversation in the model's own chat template. It keeps its messages, and the keys and values of what was computed
 * already.
 * @example
 * const chat = llm.createConversation();
 * for await (const piece of chat.send("Hello!")) process.stdout.write(piece);
 */
export class Conversation {
  /** Messages so far, the answers included. */
  readonly messages: Message[] = [];
  /** Number of the oldest messages, without the system message, that are left out of the prompt. */
  #leftOut = 0;
  readonly #options: ConversationOptions;
  readonly #model: ConversingModel;
  readonly #decoder: ProgramDecoder;
  /** Ids whose keys and values the decoder holds. */
  #ids: number[] = [];
  #isAnswering = false;

  constructor(model: ConversingModel, options: ConversationOptions = {}) {
    this.#options = checkConversationOptions(options);
    this.#model = model;
    this.#decoder = model.createDecoder();
  }

  /**
   * Adds a user message and streams the answer; when the iteration ends, the text that was read becomes a message. Tool
   * calls with functions are run, and the model goes on with their results. When an error comes before any of the answer
   * was read, the user message is removed again. InvalidArgumentError while another answer is read.
   */
  send(content: string | readonly TextPart[], options: SendOptions = {}): Reply {
    const message: Message = { role: "user", content };
    this.messages.push(message);
    return new Reply(this.#answers(options, message));
  }

  /** Streams an answer to the messages as they are, such as after tool results were added to them. */
  reply(options: SendOptions = {}): Reply {
    return new Reply(this.#answers(options, null));
  }

  /**
   * Starts over. `start` is a system message, or all messages of a stored conversation; keys and values of an equal
   * beginning are used again. InvalidArgumentError while an answer is read.
   */
  reset(start: string | readonly Message[] = ""): void {
    this.#checkIdle();
    const given = typeof start === "string" ? systemMessages(start) : start;
    checkMessages(given);
    const messages = given.slice();
    this.messages.length = 0;
    for (const message of messages) this.messages.push(message);
    this.#leftOut = 0;
    if (typeof start !== "string") return;
    this.#ids = [];
    this.#decoder.rewind(0);
  }

  /**
   * Answers until the model calls no more tools. `question` is removed from the messages when an error comes before any
   * text.
   */
  async *#answers(options: SendOptions, question: Message | null): AsyncGenerator<ConversationEvent, ChatResult, void> {
    let isUnread = true;
    try {
      this.#checkIdle();
      this.#isAnswering = true;
      try {
        const { maxToolRounds = TOOL_ROUNDS, ...rest } = withDefaults<SendOptions>(
          { tools: this.#options.tools },
          options,
        );
        checkWhole("maxToolRounds", maxToolRounds, 0);
        const { tools = [] } = rest;
        const runner = { tools, onToolCall: this.#options.onToolCall };
        for (let round = 0; ; round++) {
          const result = yield* this.#recorded(this.#answer({ ...rest, ...(round > 0 && afterCalls(rest)) }), () => {
            isUnread = false;
          });
          const { toolCalls = [] } = result.message;
          if (result.finishReason !== "toolCalls" || round >= maxToolRounds || !canRun(toolCalls, runner))
            return result;
          for (const call of toolCalls) {
            const message = await runCall(call, runner, rest.signal);
            this.messages.push(message);
            yield { type: "toolResult", message };
          }
        }
      } finally {
        this.#isAnswering = false;
      }
    } catch (error) {
      const place = question && isUnread ? this.messages.indexOf(question) : -1;
      if (place >= 0) this.messages.splice(place, 1);
      throw error;
    }
  }

  /** Passes on the events of an answer, and adds what was read of it to the messages. */
  async *#recorded(events: ReturnType<typeof answer>, onText: () => void): ReturnType<typeof answer> {
    let text = "";
    let result = null as ChatResult | null;
    let isFailed = false;
    const take = (event: ChatEvent) => {
      if (event.type === "text") text += event.text;
      if (text !== "") onText();
      return [event];
    };
    const end = (ended: ChatResult) => {
      result = ended;
      onText();
      return ended;
    };
    try {
      return yield* mapEvents(events, take, end);
    } catch (error) {
      isFailed = true;
      throw error;
    } finally {
      if (result) this.messages.push(result.message);
      else if (!isFailed || text !== "") this.messages.push({ role: "assistant", content: text });
    }
  }

  /** One answer. The prefix that the decoder's context already holds is not computed again. */
  async *#answer(options: ChatOptions): ReturnType<typeof answer> {
    const given = checkChatOptions(options);
    const ids = this.#encode(given);
    const kept = Math.min(commonLength(this.#ids, ids), this.#decoder.position, ids.length - 1);
    this.#decoder.rewind(kept);
    const held = [...ids];
    this.#ids = held;
    return yield* answer(this.#model, this.#decoder, { ids, kept, prefix: null }, given, (id) => held.push(id));
  }

  /** Ids of the conversation; the oldest turns are left out where it is too long and the options allow it. */
  #encode({ maxTokens = ANSWER_TOKENS, ...options }: ChatOptions): number[] {
    const { contextLength } = this.#decoder;
    const room = Math.min(maxTokens, Math.floor(contextLength / 4));
    const before = this.#leftOut;
    for (;;) {
      const next = this.#options.whenFull === "leaveOutOldest" ? nextTurn(this.messages, this.#leftOut) : null;
      try {
        const left = withoutOldest(this.messages, this.#leftOut);
        const ids = encodePrompt(this.#model, left, options, contextLength);
        if (next === null || ids.length + room <= contextLength) {
          if (this.#leftOut > before) this.#tell(this.#leftOut);
          return ids;
        }
      } catch (error) {
        if (next === null || !(error instanceof ContextLengthError)) throw error;
      }
      this.#leftOut = next;
    }
  }

  #tell(count: number): void {
    logInfo(
      () => `the context of ${this.#decoder.contextLength} tokens is full: the oldest ${count} messages are left out`,
    );
    this.#options.onLeaveOut?.(count);
  }

  /** Two answers at once would overwrite each other's keys and values. */
  #checkIdle(): void {
    if (this.#isAnswering)
      throw new InvalidArgumentError(
        "conversation: expected the answer under way to be read to its end, or left, first",
      );
  }
}

function systemMessages(content: string): Message[] {
  return content === "" ? [] : [{ role: "system", content }];
}

/** Options of the answer after tool calls: a tool must be called once only, so that a text can follow. */
function afterCalls({ toolChoice }: ChatOptions): ChatOptions {
  if (toolChoice === undefined || toolChoice === "none") return {};
  const isSeveral = typeof toolChoice === "object" && "names" in toolChoice;
  return { toolChoice: isSeveral ? { ...toolChoice, mode: "auto" } : "auto" };
}

/** Index of the first message after a system message at the start. */
function firstTurn(messages: readonly Message[]): number {
  return messages[0]?.role === "system" ? 1 : 0;
}

/** The messages without the oldest `count` after the system message. */
function withoutOldest(messages: readonly Message[], count: number): Message[] {
  const first = firstTurn(messages);
  return [...messages.slice(0, first), ...messages.slice(first + count)];
}

/** Number of oldest messages to leave out for one turn fewer than now; null where only the last turn is left. */
function nextTurn(messages: readonly Message[], leftOut: number): number | null {
  const first = firstTurn(messages);
  const next = messages.findIndex(({ role }, i) => i > first + leftOut && role === "user");
  return next < 0 ? null : next - first;
}

function commonLength(a: readonly number[], b: readonly number[]): number {
  let i = 0;
  while (i < a.length && i < b.length && a[i] === b[i]) i++;
  return i;
}
