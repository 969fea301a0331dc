/** Streams of generated text and answers in a page, from requests to its worker. */
import type { ChatResult } from "../language/chat-options.ts";
import { type ExecutableTool, type OnToolCall, textOf } from "../language/conversation-tools.ts";
import { Reply } from "../language/reply.ts";
import { mapEvents, ResultStream } from "../language/result-stream.ts";
import type { GenerationResult } from "../text/generate.ts";
import type { Channel } from "./channel.ts";
import { type Answer, type Reply as Posted, postedError, type RequestBody } from "./protocol.ts";

/** Replies to a request, up to the last. Leaving the iteration early aborts the request and waits for its end. */
async function* repliesTo(
  channel: Channel,
  body: RequestBody,
  signal: AbortSignal,
  stop: AbortController,
): AsyncGenerator<Posted, Answer, void> {
  const replies: Posted[] = [];
  let wake = () => {};
  let isEnded = false;
  const take = (reply: Posted) => {
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
    // After an abort, replies that have already arrived are not yielded.
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

/** The text of a generation. It begins when the stream is iterated, and is aborted when the iteration is left early. */
export function generationIn(
  channel: Channel,
  body: RequestBody,
  signal: AbortSignal | undefined,
): ResultStream<string, GenerationResult> {
  const stop = new AbortController();
  const replies = repliesTo(channel, body, withStop(signal, stop), stop);
  const textsOf = (reply: Posted) => (reply.kind === "text" ? [reply.text] : []);
  return new ResultStream(mapEvents(replies, textsOf, (answer) => answer as GenerationResult));
}

/** Options of an answer that stay in the page. */
interface ReplyOptions {
  /** Aborts the answer, which throws the signal's reason. */
  readonly signal: AbortSignal | undefined;
  /** Tools with their functions. */
  readonly tools: readonly ExecutableTool[] | undefined;
  /** Runs calls of tools without a function. */
  readonly onToolCall: OnToolCall | undefined;
}

/** The answer to a message: the worker generates it, and functions of tools run in the page. */
export function replyIn(channel: Channel, body: RequestBody, options: ReplyOptions): Reply {
  const stop = new AbortController();
  const signal = withStop(options.signal, stop);
  const eventsOf = (reply: Posted) => {
    if (reply.kind === "call") void runCall(channel, reply, options, signal);
    return reply.kind === "event" ? [reply.event] : [];
  };
  return new Reply(mapEvents(repliesTo(channel, body, signal, stop), eventsOf, (answer) => answer as ChatResult));
}

/** Runs the function of a call, and sends the worker its result or error. */
async function runCall(
  channel: Channel,
  { id, call, args }: Posted & { kind: "call" },
  { tools = [], onToolCall }: ReplyOptions,
  signal: AbortSignal,
): Promise<void> {
  const context = { call, signal };
  try {
    const tool = tools.find(({ name }) => name === call.name);
    const value = await (tool?.execute ? tool.execute(args, context) : onToolCall?.(call, context));
    channel.tell({ kind: "called", id, text: textOf(value) });
  } catch (error) {
    channel.tell({ kind: "failed", id, error: postedError(error) });
  }
}

function withStop(signal: AbortSignal | undefined, stop: AbortController): AbortSignal {
  return signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
}
