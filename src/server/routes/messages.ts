/** Anthropic's /v1/messages and /v1/messages/count_tokens. */

import { JsonSource } from "../../json-text.ts";
import type { ChatResult } from "../../language/chat-options.ts";
import { withOwnStops } from "../../language/chat-options.ts";
import { type Block, blockEvents, isJsonObject } from "../blocks.ts";
import { constrained } from "../constraint.ts";
import { newId } from "../ids.ts";
import { answerOptions, conversationOf, promptOptions, takesOneCall } from "../messages-input.ts";
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
import { type App, addPost } from "./route.ts";

export function addMessages(app: App, serving: Serving): void {
  const route = {
    path: "/v1/messages",
    summary: "Answer messages, in the form of Anthropic's API.",
    request: messagesRequest(serving.limits),
    response: messageAnswerSchema,
    streams: true,
  };
  const ping = { event: "ping", data: { type: "ping" } };
  const failed = (data: object) => [{ event: "error", data }];
  addPost(app, route, async (c, body) => {
    const answer = new MessageAnswer(body, await c.req.text());
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
    const text = await c.req.text();
    return serving.answer(c, { model: body.model, choices: 1 }, async ({ model }) => {
      const ids = model.encodeChat(conversationOf(body, text), promptOptions(body));
      return { input_tokens: ids.length };
    });
  });
}

class MessageAnswer {
  readonly #body: MessagesRequest;
  /** The request as it came. */
  readonly #text: string;
  readonly #id = newId("msg", "_");

  constructor(body: MessagesRequest, text: string) {
    this.#body = body;
    this.#text = text;
  }

  get #constraint() {
    const format = this.#body.output_config?.format;
    return format ? ({ kind: "jsonSchema", schema: format.schema } as const) : null;
  }

  #begin({ model, signal }: Job) {
    const stream = model.chat(conversationOf(this.#body, this.#text), {
      ...withOwnStops(model, answerOptions(this.#body)),
      ...constrained(this.#constraint),
      signal,
    });
    return { stream, blocks: blockEvents(stream, { onlyOneCall: takesOneCall(this.#body) }) };
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
    // What was computed before is known at the end only; until then, the whole prompt counts as new.
    const begin = (input_tokens: number): StreamEvent => {
      const usage = { input_tokens, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 0 };
      const message = { ...this.#head(), content: [], stop_reason: null, stop_sequence: null, usage };
      return named("message_start", { message });
    };
    const { stream, blocks } = this.#begin(job);
    let isBegun = false;
    for await (const event of blocks) {
      if (!isBegun) yield begin(stream.promptTokens!);
      isBegun = true;
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
    if (!isBegun) yield begin(result.usage.promptTokens);
    yield named("message_delta", { delta: stopOf(result, this.#body), usage: usageOf(job, result) });
    yield named("message_stop", {});
  }
}

function contentBlock(block: Block): object {
  if (block.kind === "toolCall")
    return { type: "tool_use", id: block.id, name: block.name, input: inputOf(block.text) };
  if (block.kind === "text") return { type: "text", text: block.text, citations: null };
  return { type: "thinking", thinking: block.text, signature: "" };
}

/** Arguments as the object that they are; what is none, because the answer was cut or the model erred, is shown as it is. */
function inputOf(text: string): object {
  return isJsonObject(text) ? new JsonSource(text) : { invalid_json: text };
}

function deltaOf(kind: Block["kind"], text: string): object {
  if (kind === "text") return { type: "text_delta", text };
  if (kind === "reasoning") return { type: "thinking_delta", thinking: text };
  return { type: "input_json_delta", partial_json: text };
}

/** Stop strings of the model itself are the end of its turn. */
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
