/** Anthropic's /v1/messages and /v1/messages/count_tokens. */

import { JsonSource } from "../../json-text.ts";
import type { ChatResult } from "../../language/chat-options.ts";
import { withOwnStops } from "../../language/chat-options.ts";
import { type Block, blockEvents, isJsonObject } from "../blocks.ts";
import { constrained } from "../constraint.ts";
import { withinContext } from "../context-length.ts";
import { newId } from "../ids.ts";
import {
  answerOptions,
  conversationOf,
  messageTools,
  promptOptions,
  takesOneCall,
  thinkingOf,
} from "../messages-input.ts";
import { thinkingOptions } from "../model-options.ts";
import {
  countTokensRequest,
  countTokensSchema,
  type MessagesRequest,
  messageAnswerSchema,
  messagesRequest,
} from "../schemas/messages.ts";
import type { Job, Serving } from "../serving.ts";
import type { StreamEvent } from "../sse.ts";
import { chatCounts } from "../usage.ts";
import { type Warn, warnerOf } from "../warnings.ts";
import { type App, addPost } from "./route.ts";

export function addMessages(app: App, serving: Serving): void {
  const route = {
    path: "/v1/messages",
    summary: "Answer messages, in the form of Anthropic's API.",
    request: messagesRequest(serving.limits),
    response: messageAnswerSchema,
    streams: true,
  };
  const ping = () => [{ event: "ping", data: { type: "ping" } }];
  const failed = (data: object) => [{ event: "error", data }];
  addPost(app, route, async (c, body) => {
    const answer = new MessageAnswer(body, await c.req.text(), serving, warnerOf(c.get("record")));
    const demand = { model: body.model, choices: 1 };
    if (!body.stream) return serving.answer(c, demand, (job) => answer.whole(job));
    return serving.stream(c, demand, (job) => answer.events(job), { ping, failed });
  });
  const count = {
    path: "/v1/messages/count_tokens",
    summary: "The tokens that messages are.",
    request: countTokensRequest(serving.limits),
    response: countTokensSchema,
  };
  addPost(app, count, async (c, body) => {
    const warn = warnerOf(c.get("record"));
    const conversation = conversationOf(body, { text: await c.req.text(), policy: serving.unseen, warn });
    const options = promptOptions(body, messageTools(body, serving.limits.tools, warn));
    return serving.answer(c, { model: body.model, choices: 1 }, async ({ model }) => {
      const thinking = thinkingOptions(thinkingOf(body), model.template, warn);
      return { input_tokens: model.encodeChat(conversation, { ...options, ...thinking }).length };
    });
  });
}

class MessageAnswer {
  readonly #body: MessagesRequest;
  readonly #id = newId("msg", "_");
  readonly #messages;
  readonly #options;
  readonly #warn: Warn;

  /** `text`: the request's JSON. */
  constructor(body: MessagesRequest, text: string, { limits, unseen }: Serving, warn: Warn) {
    this.#body = body;
    this.#warn = warn;
    const tools = messageTools(body, limits.tools, warn);
    this.#messages = conversationOf(body, { text, policy: unseen, warn });
    this.#options = { ...answerOptions(body, tools), ...constrained(this.#constraint) };
  }

  get #constraint() {
    const format = this.#body.output_config?.format;
    return format ? ({ kind: "jsonSchema", schema: format.schema } as const) : null;
  }

  #begin({ model, contextLength, prefixScope, signal }: Job) {
    const thinking = thinkingOptions(thinkingOf(this.#body), model.template, this.#warn);
    const given = { ...this.#options, ...thinking };
    const stream = model.chat(this.#messages, { ...withOwnStops(model, given), prefixScope, signal });
    const count = () => model.encodeChat(this.#messages, given).length;
    const events = withinContext(stream, "messages", contextLength, count);
    return { stream, blocks: blockEvents(events, { onlyOneCall: takesOneCall(this.#body) }) };
  }

  async whole(job: Job): Promise<object> {
    const { stream, blocks } = this.#begin(job);
    const content: object[] = [];
    for await (const event of blocks) {
      if (event.type === "delta") job.wrote();
      if (event.type === "end") content.push(contentBlock(event.block));
    }
    const result = await stream.result;
    return { ...this.#head(), content, ...stopOf(result, this.#body), usage: usageOf(job, result) };
  }

  #head(): object {
    return { id: this.#id, type: "message", role: "assistant", model: this.#body.model };
  }

  async *events(job: Job): AsyncGenerator<StreamEvent> {
    const named = (type: string, data: object): StreamEvent => ({ event: type, data: { type, ...data } });
    // The number of cached tokens is known at the end only; until then, the whole prompt counts as new.
    const begin = (input_tokens: number): StreamEvent => {
      const usage = { input_tokens, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 0 };
      const message = { ...this.#head(), content: [], stop_reason: null, stop_sequence: null, usage };
      return named("message_start", { message });
    };
    const { stream, blocks } = this.#begin(job);
    let isStarted = false;
    for await (const event of blocks) {
      if (!isStarted) yield begin(stream.promptTokens!);
      isStarted = true;
      const { index } = event;
      if (event.type === "delta") job.wrote();
      if (event.type === "begin") {
        const content_block = contentBlock({ ...event.block, text: event.block.kind === "toolCall" ? "{}" : "" });
        yield named("content_block_start", { index, content_block });
      } else if (event.type === "delta") {
        const delta = deltaOf(event.block.kind, event.text);
        yield named("content_block_delta", { index, delta });
      } else yield named("content_block_stop", { index });
    }
    const result = await stream.result;
    if (!isStarted) yield begin(result.usage.promptTokens);
    yield named("message_delta", { delta: stopOf(result, this.#body), usage: usageOf(job, result) });
    yield named("message_stop", {});
  }
}

function contentBlock(block: Block): object {
  if (block.kind === "toolCall")
    return { type: "tool_use", id: block.id, name: block.name, input: inputOf(block.text) };
  if (block.kind === "text") return { type: "text", text: block.text };
  return { type: "thinking", thinking: block.text, signature: "" };
}

/** Arguments as a JSON object; where they are none, because the answer was cut or the model erred, their text. */
function inputOf(text: string): object {
  return isJsonObject(text) ? new JsonSource(text) : { invalid_json: text };
}

function deltaOf(kind: Block["kind"], text: string): object {
  if (kind === "text") return { type: "text_delta", text };
  if (kind === "reasoning") return { type: "thinking_delta", thinking: text };
  return { type: "input_json_delta", partial_json: text };
}

/** Reason of the end. Stop strings of the model itself are the end of its turn. */
function stopOf({ finishReason, stopString: found }: ChatResult, { stop_sequences }: MessagesRequest): object {
  const stopString = stop_sequences?.includes(found ?? "") ? found : null;
  const reasons = {
    length: "max_tokens",
    toolCalls: "tool_use",
    stop: stopString === null ? "end_turn" : "stop_sequence",
  };
  return { stop_reason: reasons[finishReason], stop_sequence: stopString };
}

function usageOf(job: Job, result: ChatResult): object {
  const counts = chatCounts([result]);
  job.took(counts);
  const { promptTokens, cachedTokens, generatedTokens } = counts;
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
    output_tokens: generatedTokens,
  };
}
