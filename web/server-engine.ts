/** Models of the `lowbit serve` that this page comes from, by its HTTP API. */
import type { ConversationEvent, ExecutableTool, Message } from "lowbit/web";
import { ask } from "./dialog.ts";
import { type AnswerOptions, type ChatModel, type Ending, type Engine, ROOM } from "./engine.ts";

interface ListedModel {
  readonly id: string;
  readonly max_model_len?: number;
  readonly meta?: { readonly size?: number };
}

export const engine: Engine = {
  async offers() {
    const models = await listed();
    return models.map(({ id, meta }) => ({ name: id, address: id, bytes: meta?.size ?? null, memoryBytes: null }));
  },

  async load(source: string | File, { signal }): Promise<ChatModel> {
    if (typeof source !== "string")
      throw new Error(`${source.name}: a server's page runs the server's models; give the file to lowbit serve`);
    const found = (await listed(signal)).find(({ id }) => id === source);
    if (!found) throw new Error(`${source}: the server has no model of this name`);
    let contextLength = found.max_model_len ?? null;
    return {
      name: source,
      ...{ notice: "", takesTools: null, canThink: null },
      get contextLength() {
        return contextLength;
      },
      async *answer(messages, options) {
        const ending = yield* answer(source, messages, options);
        // The server knows it once the model is loaded.
        contextLength ??= (await listed()).find(({ id }) => id === source)?.max_model_len ?? null;
        return ending;
      },
      report: async () => ({ rows: [["Runs on", location.host]], kernels: [] }),
      dispose() {},
    };
  },
};

async function listed(signal?: AbortSignal): Promise<readonly ListedModel[]> {
  const response = await request("v1/models", signal ? { signal } : {});
  return (await response.json()).data;
}

/** Kept as long as the tab is open. */
const KEY = "lowbit-key";
let key: string | null = null;

/** Asks the server, and the reader for a key where the server wants one. An error says what the server says. */
async function request(path: string, init: RequestInit): Promise<Response> {
  for (;;) {
    key ??= unlessBlocked(() => sessionStorage.getItem(KEY));
    const headers = { ...init.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
    const response = await fetch(path, { ...init, headers });
    if (response.ok) return response;
    const text = await response.text();
    if (response.status !== 401) throw new Error(messageOf(text) ?? `the server answers ${response.status}`);
    const wrong = key ? "The server does not take this key." : "The server asks for one of its keys.";
    const given = await ask({ title: "API key", text: wrong, action: "Use this key", value: "", isSecret: true });
    if (!given) throw new Error("the server asks for a key");
    key = given.trim();
    unlessBlocked(() => sessionStorage.setItem(KEY, key!));
  }
}

function unlessBlocked<R>(work: () => R): R | null {
  try {
    return work();
  } catch {
    return null;
  }
}

function messageOf(text: string): string | null {
  try {
    const { code, message } = JSON.parse(text).error;
    return code === "context_length_exceeded" ? message + ROOM : message;
  } catch {
    return null;
  }
}

interface Chunk {
  readonly choices?: readonly [{ readonly delta: Delta; readonly finish_reason: string | null }] | readonly [];
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number } | null;
  readonly error?: { readonly message: string };
}

interface Delta {
  readonly content?: string | null;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly {
    readonly index: number;
    readonly id?: string;
    readonly function: { readonly name?: string; readonly arguments?: string };
  }[];
}

async function* answer(
  model: string,
  messages: readonly Message[],
  { settings, thinking, tools, signal }: AnswerOptions,
): AsyncGenerator<ConversationEvent, Ending, void> {
  const body = {
    model,
    messages: messages.map(posted),
    stream: true,
    stream_options: { include_usage: true },
    temperature: settings.temperature,
    top_k: settings.topK,
    top_p: settings.topP,
    repetition_penalty: settings.repetitionPenalty,
    seed: settings.seed,
    max_tokens: settings.maxTokens,
    ...(tools.length > 0 ? { tools: tools.map(postedTool) } : {}),
    ...(thinking === false ? { reasoning_effort: "none" } : {}),
  };
  const begin = performance.now();
  const headers = { "content-type": "application/json" };
  const response = await request("v1/chat/completions", {
    ...{ method: "POST", headers, signal, body: JSON.stringify(body) },
  });
  let first = 0;
  let last = 0;
  let reason = "";
  let usage = { prompt_tokens: 0, completion_tokens: 0 };
  for await (const { choices, usage: counts, error } of chunks(response.body!)) {
    if (error) throw new Error(error.message);
    usage = counts ?? usage;
    const choice = choices?.[0];
    reason = choice?.finish_reason ?? reason;
    for (const event of choice ? eventsOf(choice.delta) : []) {
      last = performance.now();
      first ||= last;
      yield event;
    }
  }
  if (reason === "") throw new Error("the server's answer was cut");
  const { prompt_tokens, completion_tokens } = usage;
  const figures = {
    firstTokenSeconds: ((first || performance.now()) - begin) / 1000,
    tokensPerSecond: completion_tokens > 1 && last > first ? (1000 * (completion_tokens - 1)) / (last - first) : null,
    usedTokens: prompt_tokens + completion_tokens,
  };
  const finishReason = reason === "tool_calls" ? "toolCalls" : (reason as "stop" | "length");
  return { finishReason, notice: null, figures };
}

function posted(message: Message): object {
  if (message.role === "tool") return { role: "tool", content: message.content, tool_call_id: message.toolCallId };
  if (message.role !== "assistant") return message;
  const { content, reasoning, toolCalls } = message;
  return {
    role: "assistant",
    content,
    reasoning_content: reasoning,
    tool_calls: toolCalls?.map(({ id, name, arguments: text }) => ({
      ...{ id, type: "function", function: { name, arguments: text } },
    })),
  };
}

function postedTool({ name, description, parameters }: ExecutableTool): object {
  return { type: "function", function: { name, description, parameters } };
}

function* eventsOf({ content, reasoning_content, tool_calls = [] }: Delta): Generator<ConversationEvent> {
  if (reasoning_content) yield { type: "reasoning", text: reasoning_content };
  if (content) yield { type: "text", text: content };
  for (const { index, id, function: call } of tool_calls) {
    if (id) yield { type: "toolCall", index, id, name: call.name ?? "" };
    if (call.arguments) yield { type: "toolArguments", index, text: call.arguments };
  }
}

/** The data of a stream of events. */
async function* chunks(body: ReadableStream<Uint8Array>): AsyncGenerator<Chunk, void, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const lines = text.split("\n");
      text = lines.pop()!;
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
