/** /v1/chat/completions: answers to messages, with tools and thinking. */
import type { ChatEvent, ChatResult } from "../../language/chat-options.ts";
import { withOwnStops } from "../../language/chat-options.ts";
import { chatMessages, chatOptions, chatTools } from "../chat-input.ts";
import { chatConstraint, constrained } from "../constraint.ts";
import { withinContext } from "../context-length.ts";
import { newId, unixTime } from "../ids.ts";
import { thinkingOptions } from "../model-options.ts";
import { customInput, type OfferedTools } from "../offered-tools.ts";
import { type ChatRequest, chatRequest, chatSchema } from "../schemas/chat.ts";
import type { Job, Serving } from "../serving.ts";
import type { StreamEvent } from "../sse.ts";
import { TokenLogprobs } from "../token-logprobs.ts";
import { chatCounts, openaiUsage } from "../usage.ts";
import { type Warn, warnerOf } from "../warnings.ts";
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
    const chat = new ChatCompletion(body, serving, warnerOf(c.get("record")));
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
  readonly #tools: OfferedTools;
  readonly #messages;
  readonly #options;
  readonly #warn: Warn;

  constructor(body: ChatRequest, { limits, unseen }: Serving, warn: Warn) {
    this.#body = body;
    this.#n = body.n ?? 1;
    this.#warn = warn;
    this.#tools = chatTools(body, limits.tools, warn);
    this.#messages = chatMessages(body.messages, unseen);
    this.#options = { ...chatOptions(body, this.#tools), ...constrained(chatConstraint(body)) };
  }

  #begin({ model, contextLength, prefixScope, signal }: Job, onEnd?: (choice: number, result: ChatResult) => void) {
    const { reasoning_effort: effort, thinking_budget, chat_template_kwargs } = this.#body;
    const asked = { effort, ...(typeof thinking_budget === "number" && { thinking: { budget: thinking_budget } }) };
    const { templateOptions, ...thinking } = thinkingOptions(asked, model.template, this.#warn);
    const variables = { ...templateOptions, ...chat_template_kwargs };
    const hasVariables = Object.keys(variables).length > 0;
    const given = { ...this.#options, ...thinking, ...(hasVariables && { templateOptions: variables }) };
    const how = { ...withOwnStops(model, given), prefixScope, signal };
    const stream = model.chatChoices(this.#messages, { ...how, n: this.#n, onEnd });
    const count = () => model.encodeChat(this.#messages, given).length;
    return { stream, events: withinContext(stream, "chat", contextLength, count) };
  }

  async whole(job: Job): Promise<object> {
    const { stream, events } = this.#begin(job);
    const logprobs = Array.from({ length: this.#n }, () => new TokenLogprobs(job.model.tokenizer));
    const lists = logprobs.map((): object[] => []);
    for await (const event of events) {
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
      ...(calls === undefined ? {} : { tool_calls: calls.map((call) => this.#call(call)) }),
    };
  }

  #call({ id, name, arguments: text }: { id: string; name: string; arguments: string }): object {
    const { kind, name: own } = this.#tools.originOf(name);
    if (kind === "custom") return { id, type: "custom", custom: { name: own, input: customInput(text) } };
    return { id, type: "function", function: { name: own, arguments: text } };
  }

  /** Whether tool call number `index` is sent: without `parallel_tool_calls`, only the first. */
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
    const deltas = Array.from({ length: this.#n }, () => new Deltas(this.#tools, (index) => this.#hasCall(index)));
    const ended: StreamEvent[] = [];
    const { stream, events } = this.#begin(job, (index, { finishReason }) => {
      ended.push(...deltas[index]!.end().map((delta) => deltaOf(index, delta)));
      ended.push(chunk([{ index, delta: {}, logprobs: null, finish_reason: finishReasons[finishReason] }]));
    });
    const logprobs = Array.from({ length: this.#n }, () => new TokenLogprobs(job.model.tokenizer));
    let isStarted = false;
    const begin = () => logprobs.map((_, index) => deltaOf(index, { role: "assistant", content: "", refusal: null }));
    for await (const { choice, ...event } of events) {
      job.wrote();
      if (!isStarted) yield* begin();
      isStarted = true;
      yield* ended.splice(0);
      const found = event.type === "text" && event.logprobs ? logprobs[choice]!.list(event.logprobs) : null;
      for (const delta of deltas[choice]!.of(event))
        yield deltaOf(choice, delta, found && { content: found, refusal: null });
    }
    const results = await stream.result;
    if (!isStarted) yield* begin();
    yield* ended;
    const usage = this.#usage(job, results);
    if (wantsUsage) yield chunk([], usage);
    yield { data: "[DONE]" };
  }

  #usage(job: Job, results: readonly ChatResult[]): object {
    const counts = chatCounts(results);
    job.took(counts);
    return openaiUsage(counts, counts.reasoningTokens);
  }
}

/**
 * Converts events of one choice to deltas. Text input of custom tools is parsed from JSON arguments, so it is sent as a
 * whole.
 */
class Deltas {
  readonly #tools: OfferedTools;
  readonly #hasCall: (index: number) => boolean;
  #custom: { readonly index: number; text: string } | null = null;

  constructor(tools: OfferedTools, hasCall: (index: number) => boolean) {
    this.#tools = tools;
    this.#hasCall = hasCall;
  }

  of(event: ChatEvent): object[] {
    if (event.type === "text") return [...this.end(), { content: event.text }];
    if (event.type === "reasoning") return [...this.end(), { reasoning_content: event.text }];
    const { index } = event;
    if (!this.#hasCall(index)) return this.end();
    if (event.type === "toolArguments") {
      if (this.#custom === null) return [{ tool_calls: [{ index, function: { arguments: event.text } }] }];
      this.#custom.text += event.text;
      return [];
    }
    const before = this.end();
    const { kind, name } = this.#tools.originOf(event.name);
    if (kind === "custom") this.#custom = { index, text: "" };
    const own = kind === "custom" ? { custom: { name, input: "" } } : { function: { name, arguments: "" } };
    return [...before, { tool_calls: [{ index, id: event.id, type: kind, ...own }] }];
  }

  /** The delta of a custom tool call that has ended; none where there is no such call. */
  end(): object[] {
    if (this.#custom === null) return [];
    const { index, text } = this.#custom;
    this.#custom = null;
    return [{ tool_calls: [{ index, custom: { input: customInput(text) } }] }];
  }
}
