/** Answers in Ollama's form: parts as lines of JSON, or one object; counts and times in the last part. */
import type { ChatEvent } from "../language/chat-options.ts";
import type { GenerationResult } from "../text/generate.ts";
import type { LogProbabilities } from "../text/log-probabilities.ts";
import type { Job, TokenCounts } from "./serving.ts";
import type { StreamEvent } from "./sse.ts";
import { TokenLogprobs } from "./token-logprobs.ts";

/** Content of a part of an answer. */
interface Delta {
  readonly content: string;
  readonly thinking?: string;
  readonly toolCalls?: readonly object[];
  readonly logprobs?: readonly object[];
}

/** An answer under way. */
export interface Begun {
  readonly events: AsyncIterable<ChatEvent>;
  /** Gives the result and counts, once the events are over. */
  readonly end: () => Promise<{ readonly generation: GenerationResult; readonly counts: TokenCounts }>;
}

/** A tool call whose arguments are still coming. */
interface OpenCall {
  readonly index: number;
  readonly id: string;
  readonly name: string;
  text: string;
}

const NANOSECONDS = 1e9;

export class OllamaAnswer {
  readonly #model: string;
  readonly #startedAt: number;
  readonly #shape: (delta: Delta) => object;
  readonly #begin: (job: Job) => Begun;

  /** `startedAt`: by `performance.now()`; `shape`: makes the fields of a part, for chat or generation. */
  constructor(
    { model, startedAt, shape }: { model: string; startedAt: number; shape: (delta: Delta) => object },
    begin: (job: Job) => Begun,
  ) {
    this.#model = model;
    this.#startedAt = startedAt;
    this.#shape = shape;
    this.#begin = begin;
  }

  async whole(job: Job): Promise<object> {
    const begun = this.#begin(job);
    const parts: Delta[] = [];
    for await (const delta of this.#deltas(job, begun)) parts.push(delta);
    const joined = (texts: readonly (string | undefined)[]) => texts.join("");
    const thinking = joined(parts.map((part) => part.thinking));
    const toolCalls = parts.flatMap((part) => part.toolCalls ?? []);
    const logprobs = parts.flatMap((part) => part.logprobs ?? []);
    const content = joined(parts.map((part) => part.content));
    const said = this.#part({
      content,
      ...(thinking !== "" && { thinking }),
      ...(toolCalls.length > 0 && { toolCalls }),
      ...(logprobs.length > 0 && { logprobs }),
    });
    return { ...said, ...(await this.#figures(job, begun)) };
  }

  async *events(job: Job): AsyncGenerator<StreamEvent> {
    const begun = this.#begin(job);
    for await (const delta of this.#deltas(job, begun)) yield { data: { ...this.#part(delta), done: false } };
    yield { data: { ...this.#part({ content: "" }), ...(await this.#figures(job, begun)) } };
  }

  #part({ logprobs, ...delta }: Delta): object {
    const head = { model: this.#model, created_at: new Date().toISOString() };
    return { ...head, ...this.#shape(delta), ...(logprobs && { logprobs }) };
  }

  async *#deltas(job: Job, { events }: Begun): AsyncGenerator<Delta> {
    const written = new TokenLogprobs(job.model.tokenizer);
    const logprobsOf = (found: readonly LogProbabilities[] | undefined) => found && { logprobs: written.list(found) };
    let call: OpenCall | null = null;
    for await (const event of events) {
      job.wrote();
      if (event.type === "toolArguments") {
        if (call) call.text += event.text;
        continue;
      }
      if (call) yield callDelta(call);
      call = null;
      if (event.type === "toolCall") call = { index: event.index, id: event.id, name: event.name, text: "" };
      else if (event.type === "reasoning") yield { content: "", thinking: event.text };
      else yield { content: event.text, ...logprobsOf(event.logprobs) };
    }
    if (call) yield callDelta(call);
  }

  async #figures({ loadMs, took }: Job, { end }: Begun): Promise<object> {
    const { generation, counts } = await end();
    took(counts);
    const total = (performance.now() - this.#startedAt) / 1000;
    return {
      done: true,
      done_reason: generation.finishReason === "length" ? "length" : "stop",
      total_duration: nanoseconds(total),
      load_duration: nanoseconds(loadMs / 1000),
      prompt_eval_count: counts.promptTokens,
      prompt_eval_duration: nanoseconds(generation.prefillSeconds),
      eval_count: counts.generatedTokens,
      eval_duration: nanoseconds(generation.decodeSeconds),
    };
  }
}

/** Seconds as whole nanoseconds, at least 1, since clients divide by them. */
export function nanoseconds(seconds: number): number {
  return Math.max(1, Math.round(seconds * NANOSECONDS));
}

/** A complete tool call. Where its arguments are cut or no JSON, the text that the model wrote. */
function callDelta({ index, id, name, text }: OpenCall): Delta {
  const args = objectOf(text);
  if (args === null) return { content: `{"name": ${JSON.stringify(name)}, "arguments": ${text}` };
  return { content: "", toolCalls: [{ id, function: { index, name, arguments: args } }] };
}

function objectOf(text: string): object | null {
  try {
    const value: unknown = JSON.parse(text === "" ? "{}" : text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** Fields of a part of /api/chat. */
export function chatPart({ content, thinking, toolCalls }: Delta): object {
  const more = { ...(thinking !== undefined && { thinking }), ...(toolCalls && { tool_calls: toolCalls }) };
  return { message: { role: "assistant", content, ...more } };
}

/** Fields of a part of /api/generate. */
export function generationPart({ content, thinking }: Delta): object {
  return { response: content, ...(thinking !== undefined && { thinking }) };
}
