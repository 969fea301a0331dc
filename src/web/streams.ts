/** What comes of generations in the worker, each to be iterated over once. */
import type { ChatResult } from "../language/chat-options.ts";
import type { ConversationEvent } from "../language/conversation.ts";
import { type ExecutableTool, type OnToolCall, textOf } from "../language/conversation-tools.ts";
import { secondIteration } from "../language/token-stream.ts";
import type { GenerationResult } from "../text/generate.ts";
import type { Channel } from "./channel.ts";
import { type Answer, postedError, type Reply, type RequestBody } from "./protocol.ts";

/** Text as it is generated, to be iterated over once; `result` is there when the generation has ended by itself. */
export interface WebGeneration extends AsyncIterable<string> {
  /** Why the generation ended and what it took; null until it has ended by itself. */
  readonly result: GenerationResult | null;
}

/** What comes before an answer; leaving it early ends the work, and waits until it has ended. */
async function* repliesTo(
  channel: Channel,
  body: RequestBody,
  signal: AbortSignal,
  stop: AbortController,
): AsyncGenerator<Reply, Answer, void> {
  const replies: Reply[] = [];
  let wake = () => {};
  let isEnded = false;
  const take = (reply: Reply) => {
    replies.push(reply);
    wake();
  };
  const answer = channel.ask(body, { take, signal });
  const ended = answer.then(
    () => {},
    () => {},
  );
  void ended.then(() => {
    isEnded = true;
    wake();
  });
  try {
    // What has come already is not given after an abort.
    while (!signal.aborted && (!isEnded || replies.length > 0)) {
      if (replies.length > 0) yield replies.shift()!;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
    const value = await answer;
    signal.throwIfAborted();
    return value;
  } finally {
    stop.abort();
    await ended;
  }
}

/** A generation in the worker, which begins with its iteration and ends when that ends early. */
export class TextStream implements WebGeneration {
  result: GenerationResult | null = null;
  readonly #channel: Channel;
  readonly #body: RequestBody;
  readonly #signal: AbortSignal | undefined;
  #isBegun = false;

  constructor(channel: Channel, body: RequestBody, signal: AbortSignal | undefined) {
    this.#channel = channel;
    this.#body = body;
    this.#signal = signal;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    if (this.#isBegun) throw secondIteration();
    this.#isBegun = true;
    const stop = new AbortController();
    const replies = repliesTo(this.#channel, this.#body, withStop(this.#signal, stop), stop);
    try {
      for (let next = await replies.next(); ; next = await replies.next()) {
        if (next.done) {
          this.result = next.value as GenerationResult;
          return;
        }
        if (next.value.kind === "text") yield next.value.text;
      }
    } finally {
      await replies.return(null);
    }
  }
}

/** What an answer in the page takes: its signal, and what runs calls of tools. */
interface ReplyOptions {
  /** Ends the answer; the signal's reason is thrown. */
  readonly signal: AbortSignal | undefined;
  /** Tools with the functions that the page runs. */
  readonly tools: readonly ExecutableTool[] | undefined;
  /** Runs calls of tools without a function. */
  readonly onToolCall: OnToolCall | undefined;
}

/** What follows a message, to be iterated over once: as text, or by `events` with thinking, calls and their results. */
export class WebReply implements WebGeneration {
  /** How the last generation went; null until the reply has ended by itself. */
  result: GenerationResult | null = null;
  /** What the last answer came to; null until the reply has ended by itself. */
  answer: ChatResult | null = null;
  readonly #channel: Channel;
  readonly #body: RequestBody;
  readonly #options: ReplyOptions;
  #isBegun = false;

  constructor(channel: Channel, body: RequestBody, options: ReplyOptions) {
    this.#channel = channel;
    this.#body = body;
    this.#options = options;
  }

  /** The text of all answers, piece by piece. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    for await (const event of this.events()) if (event.type === "text") yield event.text;
  }

  /** All that comes. */
  async *events(): AsyncGenerator<ConversationEvent> {
    if (this.#isBegun) throw secondIteration();
    this.#isBegun = true;
    const stop = new AbortController();
    const signal = withStop(this.#options.signal, stop);
    const replies = repliesTo(this.#channel, this.#body, signal, stop);
    try {
      for (let next = await replies.next(); ; next = await replies.next()) {
        if (next.done) {
          this.answer = next.value as ChatResult;
          this.result = this.answer.generation;
          return;
        }
        if (next.value.kind === "event") yield next.value.event;
        if (next.value.kind === "call") void this.#run(next.value, signal);
      }
    } finally {
      await replies.return(null);
    }
  }

  /** Runs the function of a call, and tells the worker what it gave or threw. */
  async #run({ id, call, args }: Reply & { kind: "call" }, signal: AbortSignal): Promise<void> {
    const { tools = [], onToolCall } = this.#options;
    const context = { call, signal };
    try {
      const tool = tools.find(({ name }) => name === call.name);
      const value = await (tool?.execute ? tool.execute(args, context) : onToolCall?.(call, context));
      this.#channel.tell({ kind: "called", id, text: textOf(value) });
    } catch (error) {
      this.#channel.tell({ kind: "failed", id, error: postedError(error) });
    }
  }
}

function withStop(signal: AbortSignal | undefined, stop: AbortController): AbortSignal {
  return signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
}
