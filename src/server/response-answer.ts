/** Answers in the form of OpenAI's Responses API: items, and the events that stream them. */
import type { ChatResult, ChatStream } from "../language/chat-options.ts";
import { withOwnStops } from "../language/chat-options.ts";
import { type Block, type BlockEvent, blockEvents, isJsonObject } from "./blocks.ts";
import { constrained, formatConstraint } from "./constraint.ts";
import { withinContext } from "./context-length.ts";
import { newId, unixTime } from "./ids.ts";
import { thinkingOptions } from "./model-options.ts";
import { customInput, type OfferedTools } from "./offered-tools.ts";
import { conversationOf, responseOptions, responseTools } from "./responses-input.ts";
import type { InputItem, ResponseRequest } from "./schemas/responses.ts";
import type { Job, Serving } from "./serving.ts";
import type { StreamEvent } from "./sse.ts";
import { chatCounts } from "./usage.ts";
import type { Warn } from "./warnings.ts";

/** Input items of a response. */
export interface ResponseInput {
  /** Input items of this request. */
  readonly own: readonly InputItem[];
  /** Input items of this request and all items of the conversation before them. */
  readonly all: readonly InputItem[];
}

/** One answer, as a whole response or as events. */
export class ResponseAnswer {
  readonly #body: ResponseRequest;
  readonly #id = newId("resp", "_");
  readonly #created = unixTime();
  readonly #output: object[] = [];
  readonly #input: ResponseInput;
  readonly #serving: Serving;
  readonly #owner: string;
  readonly #warn: Warn;
  readonly #tools: OfferedTools;
  readonly #messages;
  readonly #options;
  #number = 0;
  #isStarted = false;

  constructor(
    body: ResponseRequest,
    input: ResponseInput,
    { serving, warn, owner }: { readonly serving: Serving; readonly warn: Warn; readonly owner: string },
  ) {
    this.#body = body;
    this.#input = input;
    this.#serving = serving;
    this.#owner = owner;
    this.#warn = warn;
    this.#tools = responseTools(body, serving.limits.tools, warn);
    this.#messages = conversationOf(body.instructions ?? null, input.all, { policy: serving.unseen, warn });
    this.#options = { ...responseOptions(body, this.#tools), ...constrained(formatConstraint(body.text?.format)) };
  }

  #begin({ model, contextLength, prefixScope, signal }: Job) {
    const thinking = thinkingOptions({ effort: this.#body.reasoning?.effort }, model.template, this.#warn);
    const given = { ...this.#options, ...thinking };
    const stream = model.chat(this.#messages, { ...withOwnStops(model, given), prefixScope, signal });
    const count = () => model.encodeChat(this.#messages, given).length;
    const events = withinContext(stream, "responses", contextLength, count);
    return { stream, blocks: blockEvents(events, { onlyOneCall: this.#body.parallel_tool_calls === false }) };
  }

  async whole(job: Job): Promise<object> {
    const { stream, blocks } = this.#begin(job);
    for await (const event of blocks) {
      if (event.type === "delta") job.wrote();
      if (event.type !== "end") continue;
      const status = await statusOf(event, stream);
      this.#output.push(this.#item(event.block, this.#newItemId(event.block), status));
    }
    return this.#ended(job, await stream.result);
  }

  /** The response object in its current state, with the fields of the request. */
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
      previous_response_id: this.#body.previous_response_id ?? null,
      reasoning: { effort: this.#body.reasoning?.effort ?? null, summary: null },
      store: this.#isStored,
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
    const response = this.#response(isCut ? "incomplete" : "completed", { usage, incomplete_details });
    if (this.#isStored) this.#keep(response);
    return response;
  }

  get #isStored(): boolean {
    return this.#body.store !== false;
  }

  #keep(body: object): void {
    this.#serving.responses.keep({
      ...{ id: this.#id, owner: this.#owner, previousId: this.#body.previous_response_id ?? null },
      ...{ input: this.#input.own, output: this.#output as InputItem[], body },
    });
  }

  #event(type: string, fields: object): StreamEvent {
    return { event: type, data: { type, sequence_number: this.#number++, ...fields } };
  }

  async *events(job: Job): AsyncGenerator<StreamEvent> {
    const { stream, blocks } = this.#begin(job);
    let id = "";
    for await (const event of blocks) {
      yield* this.#first();
      if (event.type === "delta") job.wrote();
      if (event.type === "begin") id = this.#newItemId({ ...event.block, text: "" });
      yield* this.#blockEvents(event, id, event.type === "end" ? await statusOf(event, stream) : "in_progress");
    }
    const result = await stream.result;
    yield* this.#first();
    const response = this.#ended(job, result);
    const type = result.finishReason === "length" ? "response.incomplete" : "response.completed";
    yield this.#event(type, { response });
  }

  /** The events that begin a stream; none after the first call. */
  #first(): StreamEvent[] {
    if (this.#isStarted) return [];
    this.#isStarted = true;
    return [
      this.#event("response.created", { response: this.#response("in_progress") }),
      this.#event("response.in_progress", { response: this.#response("in_progress") }),
    ];
  }

  /** A ping as an event: clients of this API count events, not comments. */
  ping(): StreamEvent[] {
    const first = this.#first();
    return first.length > 0
      ? first
      : [this.#event("response.in_progress", { response: this.#response("in_progress") })];
  }

  *#blockEvents(event: BlockEvent, item_id: string, status: string): Generator<StreamEvent> {
    const place = { item_id, output_index: event.index };
    const inPart = { ...place, content_index: 0 };
    const { kind } = event.block;
    const custom = this.#isCustom(event.block);
    const callName = custom ? "custom_tool_call_input" : "function_call_arguments";
    const name = { text: "output_text", reasoning: "reasoning_text", toolCall: callName }[kind];
    const where = kind === "toolCall" ? place : inPart;
    if (event.type === "begin") {
      const item = this.#item({ ...event.block, text: "" }, item_id, status);
      yield this.#event("response.output_item.added", {
        output_index: event.index,
        item: { ...item, ...noParts(kind) },
      });
      if (kind !== "toolCall") yield this.#event("response.content_part.added", { ...inPart, part: partOf(kind, "") });
    } else if (event.type === "delta") {
      const logprobs = kind === "text" ? { logprobs: [] } : {};
      // Text input of custom tools is parsed from JSON arguments, so it is sent as a whole.
      if (!custom) yield this.#event(`response.${name}.delta`, { ...where, delta: event.text, ...logprobs });
    } else {
      const text = custom ? customInput(event.block.text) : event.block.text;
      const item = this.#item(event.block, item_id, status);
      const whole = kind !== "toolCall" ? { text } : custom ? { input: text } : { arguments: text };
      const more =
        event.block.kind === "toolCall"
          ? { name: this.#tools.originOf(event.block.name).name }
          : kind === "text"
            ? { logprobs: [] }
            : {};
      if (custom && text !== "") yield this.#event(`response.${name}.delta`, { ...where, delta: text });
      const isUnfinished = kind === "toolCall" && status === "incomplete";
      if (!isUnfinished) yield this.#event(`response.${name}.done`, { ...where, ...whole, ...(custom ? {} : more) });
      if (kind !== "toolCall") yield this.#event("response.content_part.done", { ...inPart, part: partOf(kind, text) });
      yield this.#event("response.output_item.done", { output_index: event.index, item });
      this.#output.push(item);
    }
  }

  #isCustom(block: BlockEvent["block"]): boolean {
    return block.kind === "toolCall" && this.#tools.originOf(block.name).kind === "custom";
  }

  #newItemId(block: Block): string {
    return newId({ text: "msg", reasoning: "rs", toolCall: this.#isCustom(block) ? "ctc" : "fc" }[block.kind], "_");
  }

  #item(block: Block, id: string, status: string): object {
    if (block.kind === "toolCall") {
      const { id: call_id, text } = block;
      const { kind, name, namespace } = this.#tools.originOf(block.name);
      const own = { call_id, name, ...(namespace === null ? {} : { namespace }) };
      if (kind === "custom") return { id, type: "custom_tool_call", status, ...own, input: text && customInput(text) };
      return { id, type: "function_call", status, ...own, arguments: text };
    }
    const content = [partOf(block.kind, block.text)];
    if (block.kind === "reasoning") return { id, type: "reasoning", status, summary: [], content };
    return { id, type: "message", status, role: "assistant", content };
  }

  failed(body: object): StreamEvent[] {
    const { message, code, type } = (body as { error: { message: string; code: string | null; type: string } }).error;
    const error = { code: code ?? type, message };
    return [...this.#first(), this.#event("response.failed", { response: this.#response("failed", { error }) })];
  }
}

/**
 * Status of a block. The last block of an answer that a token limit has cut is incomplete, unless it is a complete tool
 * call.
 */
async function statusOf({ block, isLast }: BlockEvent & { type: "end" }, stream: ChatStream): Promise<string> {
  if (!isLast || (await stream.result).finishReason !== "length") return "completed";
  return block.kind === "toolCall" && isJsonObject(block.text) ? "completed" : "incomplete";
}

function partOf(kind: "text" | "reasoning", text: string): object {
  if (kind === "reasoning") return { type: "reasoning_text", text };
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

/** Fields of an item that has just begun. */
function noParts(kind: Block["kind"]): object {
  return kind === "toolCall" ? {} : { content: [] };
}
