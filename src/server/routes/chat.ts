/** /v1/chat/completions: answers to messages, with tools and thinking. */
import type { ChatEvent, ChatResult } from "../../language/chat-options.ts";
import { withOwnStops } from "../../language/chat-options.ts";
import { chatMessages, chatOptions } from "../chat-input.ts";
import { chatConstraint, constrained } from "../constraint.ts";
import { newId, unixTime } from "../ids.ts";
import { type ChatRequest, chatRequest, chatSchema } from "../schemas/chat.ts";
import type { Job, Serving } from "../serving.ts";
import type { StreamEvent } from "../sse.ts";
import { TokenLogprobs } from "../token-logprobs.ts";
import { chatCounts, openaiUsage } from "../usage.ts";
import { type App, addPost } from "./route.ts";

export function addChat(app: App, serving: Serving): void {
  const route = {
    path: "/v1/chat/completions",
    summary: "Answer messages.",
    request: chatRequest(serving.limits),
    response: chatSchema,
    streams: true,
  };
  addPost(app, route, async (c, body) => {
    const chat = new ChatCompletion(body);
    const demand = { model: body.model, choices: body.n ?? 1 };
    if (!body.stream) return serving.answer(c, demand, (job) => chat.whole(job));
    return serving.stream(c, demand, (job) => chat.events(job), { failed: (data) => [{ data }] });
  });
}

const finishReasons = { stop: "stop", length: "length", toolCalls: "tool_calls" } as const;

class ChatCompletion {
  readonly #body: ChatRequest;
  readonly #n: number;
  readonly #id = newId("chatcmpl");
  readonly #created = unixTime();

  constructor(body: ChatRequest) {
    this.#body = body;
    this.#n = body.n ?? 1;
  }

  #begin({ model, signal }: Job, onEnd?: (choice: number, result: ChatResult) => void) {
    const constraint = constrained(chatConstraint(this.#body));
    const options = { ...withOwnStops(model, chatOptions(this.#body)), ...constraint, n: this.#n, onEnd, signal };
    return model.chatChoices(chatMessages(this.#body.messages), options);
  }

  async whole(job: Job): Promise<object> {
    const stream = this.#begin(job);
    const logprobs = Array.from({ length: this.#n }, () => new TokenLogprobs(job.model.tokenizer));
    const lists = logprobs.map((): object[] => []);
    for await (const event of stream) {
      job.wrote();
      if (event.type === "text" && event.logprobs)
        lists[event.choice]!.push(...logprobs[event.choice]!.list(event.logprobs));
    }
    const results = await stream.result;
    const choices = results.map((result, index) => ({
      index,
      message: this.#message(result),
      logprobs: this.#body.logprobs ? { content: lists[index], refusal: null } : null,
      finish_reason: finishReasons[result.finishReason],
    }));
    const head = { id: this.#id, object: "chat.completion", created: this.#created, model: this.#body.model };
    return { ...head, choices, usage: this.#usage(job, results) };
  }

  #message({ message: { content, reasoning, toolCalls } }: ChatResult): object {
    const calls = toolCalls?.filter((_, index) => this.#hasCall(index));
    return {
      role: "assistant",
      content,
      refusal: null,
      ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
      ...(calls === undefined
        ? {}
        : {
            tool_calls: calls.map(({ id, name, arguments: text }) => ({
              id,
              type: "function",
              function: { name, arguments: text },
            })),
          }),
    };
  }

  /** Whether the client takes a call of that index: one that wants no others beside it gets the first. */
  #hasCall(index: number): boolean {
    return index === 0 || this.#body.parallel_tool_calls !== false;
  }

  async *events(job: Job): AsyncGenerator<StreamEvent> {
    const { model, stream_options } = this.#body;
    const head = { id: this.#id, object: "chat.completion.chunk", created: this.#created, model };
    const wantsUsage = stream_options?.include_usage === true;
    const chunk = (choices: readonly object[], usage: object | null = null): StreamEvent => ({
      data: { ...head, choices, ...(wantsUsage ? { usage } : {}) },
    });
    const deltaOf = (index: number, delta: object, logprobs: object | null = null): StreamEvent =>
      chunk([{ index, delta, logprobs, finish_reason: null }]);
    const ended: StreamEvent[] = [];
    const stream = this.#begin(job, (index, { finishReason }) => {
      ended.push(chunk([{ index, delta: {}, logprobs: null, finish_reason: finishReasons[finishReason] }]));
    });
    const logprobs = Array.from({ length: this.#n }, () => new TokenLogprobs(job.model.tokenizer));
    let isBegun = false;
    const begin = () => logprobs.map((_, index) => deltaOf(index, { role: "assistant", content: "", refusal: null }));
    for await (const { choice, ...event } of stream) {
      job.wrote();
      if (!isBegun) yield* begin();
      isBegun = true;
      yield* ended.splice(0);
      const delta = this.#delta(event);
      const found = event.type === "text" && event.logprobs ? logprobs[choice]!.list(event.logprobs) : null;
      if (delta) yield deltaOf(choice, delta, found && { content: found, refusal: null });
    }
    const results = await stream.result;
    if (!isBegun) yield* begin();
    yield* ended;
    const usage = this.#usage(job, results);
    if (wantsUsage) yield chunk([], usage);
    yield { data: "[DONE]" };
  }

  #delta(event: ChatEvent): object | null {
    if (event.type === "text") return { content: event.text };
    if (event.type === "reasoning") return { reasoning_content: event.text };
    const { index } = event;
    if (!this.#hasCall(index)) return null;
    if (event.type === "toolArguments") return { tool_calls: [{ index, function: { arguments: event.text } }] };
    const { id, name } = event;
    return { tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] };
  }

  #usage(job: Job, results: readonly ChatResult[]): object {
    const counts = chatCounts(results);
    job.took(counts);
    return openaiUsage(counts, counts.reasoningTokens);
  }
}
