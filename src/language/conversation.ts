/** A conversation: messages, the template that renders them, and the sequence that keeps what was computed. */
import { checkOptions } from "../arguments.ts";
import { ContextLengthError, InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { logInfo } from "../log.ts";
import type { ChatTemplate, Message } from "../text/chat-template.ts";
import { encodeChat } from "../text/encode-chat.ts";
import { type GenerateOptions, generate } from "../text/generate.ts";
import type { SamplerOptions } from "../text/sampler.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { withDefaults } from "./generation-settings.ts";
import type { ProgramDecoder } from "./program-decoder.ts";
import { type Generation, TokenStream } from "./token-stream.ts";

/** What a conversation needs of the model that answers. */
export interface ConversingModel {
  /** Name of the model, for messages. */
  readonly name: string;
  /** Tokenizer of the model. */
  readonly tokenizer: Tokenizer;
  /** Chat template of the model; null where it has none and cannot converse. */
  readonly template: ChatTemplate | null;
  /** How the model samples where options do not say. */
  readonly samplingDefaults: SamplerOptions;
  /** Ids of the tokens that end an answer. */
  readonly eosIds: readonly number[];
  /** Texts that end an answer. */
  readonly stopStrings: readonly string[];
  /** Makes a decoder with a sequence of its own. */
  createDecoder(): ProgramDecoder;
}

/** What a conversation does when its context is full. */
export interface ConversationOptions {
  /**
   * `error` (default): an answer that does not fit ends with finishReason "length", and a message that does not fit is a
   * ContextLengthError. `leaveOutOldest`: the model reads the conversation without its oldest turns, as few as will do; the
   * system message stays, and so do `messages`.
   */
  readonly whenFull?: "error" | "leaveOutOldest" | undefined;
  /** Called when turns are left out, with the number of messages that the model does not read any more. */
  onLeaveOut?(messages: number): void;
}

/** Room that is kept for an answer of unknown length, as far as it is no more than a quarter of the context. */
const ANSWER_TOKENS = 512;

function checkConversationOptions(options: ConversationOptions): ConversationOptions {
  checkOptions(options);
  const { whenFull } = options;
  if (whenFull !== undefined && whenFull !== "error" && whenFull !== "leaveOutOldest")
    throw new InvalidArgumentError(`whenFull: expected error or leaveOutOldest but found ${String(whenFull)}`);
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
  /** Of `messages`, the first that are left out of what the model reads, the system message not counted. */
  #leftOut = 0;
  readonly #options: ConversationOptions;
  readonly #model: ConversingModel;
  readonly #decoder: ProgramDecoder;
  /** Ids whose keys and values the session holds. */
  #ids: number[] = [];
  #isAnswering = false;

  constructor(model: ConversingModel, options: ConversationOptions = {}) {
    this.#options = checkConversationOptions(options);
    this.#model = model;
    this.#decoder = model.createDecoder();
  }

  /**
   * Adds a user message and streams the answer, of which what was read becomes a message when the iteration has ended.
   * An error before any of it was read takes the user message back. InvalidArgumentError while another answer is read.
   */
  send(content: string, options: GenerateOptions = {}): Generation {
    const message: Message = { role: "user", content };
    this.messages.push(message);
    return new TokenStream(this.#generate(options), ({ text, failed }) => {
      if (!failed || text !== "") this.messages.push({ role: "assistant", content: text });
      else if (this.messages.includes(message)) this.messages.splice(this.messages.indexOf(message), 1);
    });
  }

  /** Starts over; `system` is a first message of that role. InvalidArgumentError while an answer is read. */
  reset(system?: string): void {
    this.#checkIdle();
    this.messages.length = 0;
    this.#leftOut = 0;
    this.#ids = [];
    this.#decoder.rewind(0);
    if (system) this.messages.push({ role: "system", content: system });
  }

  /** Runs the rendered conversation, of which the part that the session holds already is not computed again. */
  async *#generate(options: GenerateOptions): ReturnType<typeof generate> {
    const { tokenizer, samplingDefaults, eosIds, stopStrings } = this.#model;
    this.#checkIdle();
    const ids = this.#encode(options.maxTokens);
    const kept = Math.min(commonLength(this.#ids, ids), this.#decoder.position, ids.length - 1);
    this.#decoder.rewind(kept);
    this.#ids = ids;
    const settings = withDefaults<GenerateOptions>({ ...samplingDefaults, eosIds, stop: stopStrings }, options);
    const tokens = generate(this.#decoder, tokenizer, ids.slice(kept), { ...settings, contextIds: ids.slice(0, kept) });
    this.#isAnswering = true;
    try {
      for (let next = await tokens.next(); ; next = await tokens.next()) {
        if (next.done) return next.value;
        this.#ids.push(next.value.id);
        yield next.value;
      }
    } finally {
      await tokens.return(undefined as never);
      this.#isAnswering = false;
    }
  }

  /** Ids of the conversation, of which oldest turns are left out where it is too long and the options say so. */
  #encode(maxTokens: number = ANSWER_TOKENS): number[] {
    const { tokenizer, template, name } = this.#model;
    if (!template) throw new UnsupportedError(`${name}: has no chat template; use generate with a plain prompt`);
    const { contextLength } = this.#decoder;
    const room = Math.min(maxTokens, Math.floor(contextLength / 4));
    const before = this.#leftOut;
    for (;;) {
      const next = this.#options.whenFull === "leaveOutOldest" ? nextTurn(this.messages, this.#leftOut) : null;
      try {
        const left = withoutOldest(this.messages, this.#leftOut);
        const ids = encodeChat(tokenizer, template, left, { addGenerationPrompt: true, contextLength });
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

  /** Two answers at once would write over each other's keys and values. */
  #checkIdle(): void {
    if (this.#isAnswering)
      throw new InvalidArgumentError(
        "conversation: expected the answer under way to be read to its end, or left, first",
      );
  }
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

/** How many of the oldest messages to leave out for one turn fewer; null where only the last turn is left. */
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
