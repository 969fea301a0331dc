/** Answers to a message of a conversation, with the tool results between them. */
import type { ToolMessage } from "../text/chat-messages.ts";
import type { GenerationResult } from "../text/generate.ts";
import type { ChatEvent, ChatResult } from "./chat-options.ts";
import { ResultStream } from "./result-stream.ts";

/** A piece of a reply: of an answer, or the result of a tool that the answer called. */
export type ConversationEvent = ChatEvent | { readonly type: "toolResult"; readonly message: ToolMessage };

/**
 * The reply to a message, to be iterated over once: as text, or by `events` with thinking, tool calls and their results.
 */
export class Reply implements AsyncIterable<string> {
  readonly #stream: ResultStream<ConversationEvent, ChatResult>;

  constructor(events: AsyncGenerator<ConversationEvent, ChatResult, void>) {
    this.#stream = new ResultStream(events);
  }

  /**
   * The result of the last answer, when the reply has ended. Without an iteration, awaiting it runs the reply to its end.
   */
  get answer(): Promise<ChatResult> {
    return this.#stream.result;
  }

  /** Statistics of the last answer's generation, when the reply has ended. */
  get result(): Promise<GenerationResult> {
    return this.answer.then(({ generation }) => generation);
  }

  /** The text of all answers, piece by piece. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    for await (const event of this.#stream) if (event.type === "text") yield event.text;
  }

  /** Iterates over all events: text, thinking, tool calls and their results. */
  events(): AsyncGenerator<ConversationEvent> {
    return this.#stream[Symbol.asyncIterator]();
  }
}
