/** What follows a message of a conversation. */
import type { ToolMessage } from "../text/chat-messages.ts";
import type { GenerationResult } from "../text/generate.ts";
import type { ChatEvent, ChatResult } from "./chat-options.ts";
import { ResultStream } from "./result-stream.ts";

/** A piece of what follows a message: of an answer, or the result of a tool that it called. */
export type ConversationEvent = ChatEvent | { readonly type: "toolResult"; readonly message: ToolMessage };

/** What follows a message, to be iterated over once: as text, or by `events` with thinking, calls and their results. */
export class Reply implements AsyncIterable<string> {
  readonly #stream: ResultStream<ConversationEvent, ChatResult>;

  constructor(events: AsyncGenerator<ConversationEvent, ChatResult, void>) {
    this.#stream = new ResultStream(events);
  }

  /** What the last answer came to, when the reply has ended; as the result of any stream. */
  get answer(): Promise<ChatResult> {
    return this.#stream.result;
  }

  /** How the last generation went, when the reply has ended; as `answer`. */
  get result(): Promise<GenerationResult> {
    return this.answer.then(({ generation }) => generation);
  }

  /** The text of all answers, piece by piece. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    for await (const event of this.#stream) if (event.type === "text") yield event.text;
  }

  /** All that comes. */
  events(): AsyncGenerator<ConversationEvent> {
    return this.#stream[Symbol.asyncIterator]();
  }
}
