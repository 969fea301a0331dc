/** OpenAI's /v1/responses, of which nothing is kept. */
import type { ChatResult, ChatStream } from "../../language/chat-options.ts";
import { type Block, type BlockEvent, blockEvents, isJsonObject } from "../blocks.ts";
import { constrained, formatConstraint } from "../constraint.ts";
import { newId, unixTime } from "../ids.ts";
import { conversationOf, responseOptions } from "../responses-input.ts";
import { type ResponseRequest, responseRequest, responseSchema } from "../schemas/responses.ts";
import type { Job, Serving } from "../serving.ts";
import type { StreamEvent } from "../sse.ts";
import { chatCounts } from "../usage.ts";
import { type App, addPost } from "./route.ts";

export function addResponses(app: App, serving: Serving): void {
  const route = {
    path: "/v1/responses",
    summary: "Answer input. Nothing is kept.",
    request: responseRequest(serving.limits),
    response: responseSchema,
    streams: true,
  };
  addPost(app, route, async (c, body) => {
    const answer = new ResponseAnswer(body);
    const demand = { model: body.model, choices: 1 };
    if (!body.stream) return serving.answer(c, demand, (job) => answer.whole(job));
    const failed = (data: object) => answer.failed(data);
    return serving.stream(c, demand, (job) => answer.events(job), { failed });
  });
}

class ResponseAnswer {
  readonly #body: ResponseRequest;
  readonly #id = newId("resp", "_");
  readonly #created = unixTime();
  readonly #output: object[] = [];
  #number = 0;

  constructor(body: ResponseRequest) {
    this.#body = body;
  }

  #begin({ model, signal }: Job) {
    const constraint = constrained(formatConstraint(this.#body.text?.format));
    const stream = model.chat(conversationOf(this.#body), { ...responseOptions(this.#body), ...constraint, signal });
    return { stream, blocks: blockEvents(stream, { onlyOneCall: this.#body.parallel_tool_calls === false }) };
  }

  async whole(job: Job): Promise<object> {
    const { stream, blocks } = this.#begin(job);
    for await (const event of blocks) {
      if (event.type === "delta") job.wrote();
      if (event.type !== "end") continue;
      const status = await statusOf(event, stream);
      this.#output.push(itemOf(event.block, newItemId(event.block), status));
    }
    return this.#ended(job, await stream.result);
  }

  /** The response as it is now, with what was asked for. */
  #response(status: string, fields: object = {}): object {
    const { instructions, temperature, top_p, max_output_tokens, tools, tool_choice, metadata } = this.#body;
    return {
      id: this.#id,
      object: "response",
      created_at: this.#created,
      status,
      background: false,
      error: null,
      incomplete_details: null,
      instructions: instructions ?? null,
      max_output_tokens: max_output_tokens ?? null,
      metadata: metadata ?? {},
      model: this.#body.model,
      output: this.#output,
      parallel_tool_calls: this.#body.parallel_tool_calls ?? true,
      previous_response_id: null,
      reasoning: { effort: this.#body.reasoning?.effort ?? null, summary: null },
      store: false,
      temperature: temperature ?? null,
      text: { format: this.#body.text?.format ?? { type: "text" } },
      tool_choice: tool_choice ?? "auto",
      tools: tools ?? [],
      top_p: top_p ?? null,
      truncation: "disabled",
      usage: null,
      ...fields,
    };
  }

  #ended(job: Job, result: ChatResult): object {
    const counts = chatCounts([result]);
    job.took(counts);
    const { promptTokens, cachedTokens, generatedTokens, reasoningTokens } = counts;
    const usage = {
      input_tokens: promptTokens,
      input_tokens_details: { cached_tokens: cachedTokens },
      output_tokens: generatedTokens,
      output_tokens_details: { reasoning_tokens: reasoningTokens },
      total_tokens: promptTokens + generatedTokens,
    };
    const isCut = result.finishReason === "length";
    const incomplete_details = isCut ? { reason: "max_output_tokens" } : null;
    return this.#response(isCut ? "incomplete" : "completed", { usage, incomplete_details });
  }

  #event(type: string, fields: object): StreamEvent {
    return { event: type, data: { type, sequence_number: this.#number++, ...fields } };
  }

  async *events(job: Job): AsyncGenerator<StreamEvent> {
    const { stream, blocks } = this.#begin(job);
    let isBegun = false;
    const begin = () => [
      this.#event("response.created", { response: this.#response("in_progress") }),
      this.#event("response.in_progress", { response: this.#response("in_progress") }),
    ];
    let id = "";
    for await (const event of blocks) {
      if (!isBegun) yield* begin();
      isBegun = true;
      if (event.type === "delta") job.wrote();
      if (event.type === "begin") id = newItemId({ ...event.block, text: "" });
      yield* this.#blockEvents(event, id, event.type === "end" ? await statusOf(event, stream) : "in_progress");
    }
    const result = await stream.result;
    if (!isBegun) yield* begin();
    const response = this.#ended(job, result);
    const type = result.finishReason === "length" ? "response.incomplete" : "response.completed";
    yield this.#event(type, { response });
  }

  *#blockEvents(event: BlockEvent, item_id: string, status: string): Generator<StreamEvent> {
    const place = { item_id, output_index: event.index };
    const inPart = { ...place, content_index: 0 };
    const { kind } = event.block;
    const name = { text: "output_text", reasoning: "reasoning_text", toolCall: "function_call_arguments" }[kind];
    const where = kind === "toolCall" ? place : inPart;
    if (event.type === "begin") {
      const item = itemOf({ ...event.block, text: "" }, item_id, status);
      yield this.#event("response.output_item.added", {
        output_index: event.index,
        item: { ...item, ...noParts(kind) },
      });
      if (kind !== "toolCall") yield this.#event("response.content_part.added", { ...inPart, part: partOf(kind, "") });
    } else if (event.type === "delta") {
      const logprobs = kind === "text" ? { logprobs: [] } : {};
      yield this.#event(`response.${name}.delta`, { ...where, delta: event.text, ...logprobs });
    } else {
      const { text } = event.block;
      const item = itemOf(event.block, item_id, status);
      const whole = kind === "toolCall" ? { arguments: text } : { text };
      const more =
        event.block.kind === "toolCall" ? { name: event.block.name } : kind === "text" ? { logprobs: [] } : {};
      const isUnfinished = kind === "toolCall" && status === "incomplete";
      if (!isUnfinished) yield this.#event(`response.${name}.done`, { ...where, ...whole, ...more });
      if (kind !== "toolCall") yield this.#event("response.content_part.done", { ...inPart, part: partOf(kind, text) });
      yield this.#event("response.output_item.done", { output_index: event.index, item });
      this.#output.push(item);
    }
  }

  failed(body: object): StreamEvent[] {
    const { message, code, type } = (body as { error: { message: string; code: string | null; type: string } }).error;
    const error = { code: code ?? type, message };
    return [this.#event("response.failed", { response: this.#response("failed", { error }) })];
  }
}

/** What became of a block: the last one of an answer that a limit has cut is not whole, unless it is a whole call. */
async function statusOf({ block, isLast }: BlockEvent & { type: "end" }, stream: ChatStream): Promise<string> {
  if (!isLast || (await stream.result).finishReason !== "length") return "completed";
  return block.kind === "toolCall" && isJsonObject(block.text) ? "completed" : "incomplete";
}

function newItemId({ kind }: Block): string {
  return newId({ text: "msg", reasoning: "rs", toolCall: "fc" }[kind], "_");
}

function partOf(kind: "text" | "reasoning", text: string): object {
  if (kind === "reasoning") return { type: "reasoning_text", text };
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

/** An item begins without parts. */
function noParts(kind: Block["kind"]): object {
  return kind === "toolCall" ? {} : { content: [] };
}

function itemOf(block: Block, id: string, status: string): object {
  if (block.kind === "toolCall") {
    const { id: call_id, name, text } = block;
    return { id, type: "function_call", status, call_id, name, arguments: text };
  }
  const content = [partOf(block.kind, block.text)];
  if (block.kind === "reasoning") return { id, type: "reasoning", status, summary: [], content };
  return { id, type: "message", status, role: "assistant", content };
}
