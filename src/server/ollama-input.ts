/** Converts Ollama's messages, options and model names to the library's. */
import type { ChatOptions } from "../language/chat-options.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { Message, Tool, ToolCall } from "../text/chat-messages.ts";
import type { Constraint } from "../text/constraint.ts";
import type { GenerateOptions } from "../text/generate.ts";
import { takesTools } from "../text/template-input.ts";
import { canThink } from "../text/thinking.ts";
import { contentText, type Part, type UnseenPolicy } from "./contents.ts";
import { ApiError } from "./errors.ts";
import { type Thinking, thinkingOptions } from "./model-options.ts";
import type { ModelPool } from "./models.ts";
import { samplingOptions } from "./sampling.ts";
import { given } from "./schemas/fields.ts";
import type { OllamaMessage, OllamaOptions } from "./schemas/ollama.ts";
import type { Warn } from "./warnings.ts";

const LATEST = /:latest$/;
const SHOWN_MAX = 100;

/** The name with a tag, as Ollama lists it: clients compare it with the name that they ask for. */
export function taggedName(name: string): string {
  return name.includes(":") ? name : `${name}:latest`;
}

export function untaggedName(name: string): string {
  return name.replace(LATEST, "");
}

/** The served name of a model that an Ollama client names. ApiError 404, in Ollama's words, for an unknown one. */
export function servedName(pool: ModelPool, name: string): string {
  const found = [name, untaggedName(name)].find((one) => pool.has(one));
  if (found !== undefined) return found;
  const shown = name.length > SHOWN_MAX ? `${name.slice(0, SHOWN_MAX)}…` : name;
  throw new ApiError(404, `model '${shown}' not found`, { code: "model_not_found", param: "model" });
}

interface RequestedModel {
  readonly model?: string | null | undefined;
  readonly name?: string | null | undefined;
}

/** The model of a request; older clients send it as `name`. */
export function requestedName({ model, name }: RequestedModel): string {
  const found = model ?? name;
  if (found == null) throw new ApiError(400, "model is required", { param: "model" });
  return found;
}

const UNITS: Readonly<Record<string, number>> = { ns: 1e-9, us: 1e-6, µs: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600 };

/** Seconds of a duration in Go's notation, or of a number; Infinity for negative ones. */
export function keepSeconds(duration: string | number): number {
  const plain = Number(duration);
  if (!Number.isNaN(plain)) return plain < 0 ? Number.POSITIVE_INFINITY : plain;
  const text = String(duration);
  if (text.startsWith("-")) return Number.POSITIVE_INFINITY;
  const parts = text.matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g);
  return [...parts].reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit!]!, 0);
}

/** Sampling fields that only Ollama's own engine has, with their values that change nothing. */
const OTHER_SAMPLERS = { typical_p: 1, mirostat: 0 } as const;

export function ollamaSampling(options: OllamaOptions | null | undefined, warn: Warn): GenerateOptions {
  const { num_predict, repeat_last_n, repeat_penalty, top_k, seed, stop, ...rest } = options ?? {};
  for (const [name, usual] of Object.entries(OTHER_SAMPLERS))
    if ((rest[name] ?? usual) !== usual) warn(`${name} is left out: this server does not sample so`);
  const stops = (typeof stop === "string" ? [stop] : (stop ?? [])).filter((text) => text !== "");
  const { temperature, top_p, min_p, presence_penalty, frequency_penalty } = rest;
  return {
    ...samplingOptions({
      ...{ temperature, top_p, min_p, presence_penalty, frequency_penalty },
      top_k: typeof top_k === "number" ? Math.max(0, top_k) : top_k,
      repetition_penalty: repeat_penalty || undefined,
      seed: seed === -1 ? undefined : seed,
      stop: stops.length > 0 ? stops : undefined,
    }),
    ...given({
      maxTokens: (num_predict ?? 0) > 0 ? num_predict : undefined,
      penaltyWindow: windowOf(repeat_last_n),
    }),
  };
}

function windowOf(tokens: number | null | undefined): number | undefined {
  if (tokens == null) return undefined;
  return tokens < 0 ? Number.POSITIVE_INFINITY : tokens;
}

export function ollamaConstraint(format: string | object | null | undefined): Constraint | null {
  if (!format) return null;
  return typeof format === "string" ? { kind: "json" } : { kind: "jsonSchema", schema: format };
}

/** Thinking option of a request. ApiError 400, in Ollama's words, for a model that cannot think. */
export function ollamaThinking(
  name: string,
  think: boolean | string | null | undefined,
  { template }: LanguageModel,
  warn: Warn,
): Pick<ChatOptions, "thinking" | "templateOptions"> {
  if (think == null) return {};
  const wants = think !== false && think !== "none";
  if (!wants && !canThink(template?.source ?? "")) return {};
  if (wants && !canThink(template?.source ?? "")) throw unable(name, "thinking");
  const effort = typeof think === "string" ? think : null;
  const asked: Thinking = { effort, thinking: wants };
  return thinkingOptions(asked, template, warn);
}

export function checkTools(name: string, tools: readonly Tool[], { template }: LanguageModel): void {
  if (tools.length > 0 && !takesTools(template?.source ?? "")) throw unable(name, "tools");
}

/** An error that tells what a model cannot do, in the words that Ollama's clients match. */
export function unable(name: string, what: string): ApiError {
  return new ApiError(400, `"${name}" does not support ${what}`, { code: "unsupported_model", param: "model" });
}

/** A text followed by its images, which are named or refused. */
export function withImages(
  text: string,
  images: readonly string[] | null | undefined,
  place: { readonly path: string; readonly isNew: boolean },
  policy: UnseenPolicy,
): string {
  if (!images || images.length === 0) return text;
  const parts: (Part | null)[] = images.map(() => ({ what: "image", label: "" }));
  return contentText([text === "" ? null : text, ...parts], place, policy);
}

/**
 * Converts messages. Consecutive user messages become one, as in Ollama; tool results without an id are matched to the
 * calls before them by name, or else in order.
 */
export function ollamaMessages(given: readonly OllamaMessage[], policy: UnseenPolicy): Message[] {
  const messages: Message[] = [];
  const lastAnswer = given.findLastIndex(({ role }) => role !== "user");
  let calls: ToolCall[] = [];
  let count = 0;
  for (const [index, message] of given.entries()) {
    const { role, images } = message;
    const place = { path: `messages.${index}.images`, isNew: index > lastAnswer };
    const content = withImages(message.content ?? "", images, place, policy);
    const before = messages.at(-1);
    if (role === "assistant") {
      const made = (message.tool_calls ?? []).map((call): ToolCall => {
        const { name, arguments: args } = call.function;
        return { id: call.id || `call_${count++}`, name, arguments: JSON.stringify(args ?? {}) };
      });
      calls = [...made];
      const reasoning = message.thinking ? { reasoning: message.thinking } : {};
      messages.push({ role, content, ...reasoning, ...(made.length > 0 && { toolCalls: made }) });
    } else if (role === "tool") messages.push(toolMessage(message, content, calls, () => `call_${count++}`));
    else if (role === "user" && before?.role === "user")
      messages[messages.length - 1] = { role, content: [before.content, content].filter(Boolean).join("\n\n") };
    else messages.push({ role, content });
  }
  return messages;
}

/** `calls`: tool calls without a result so far. */
function toolMessage(message: OllamaMessage, content: string, calls: ToolCall[], newId: () => string): Message {
  const name = message.tool_name ?? message.name ?? undefined;
  const wanted = calls.findIndex((call) =>
    message.tool_call_id ? call.id === message.tool_call_id : name === undefined || call.name === name,
  );
  const [call] = wanted < 0 ? [] : calls.splice(wanted, 1);
  const toolCallId = message.tool_call_id ?? call?.id ?? newId();
  const named = name ?? call?.name;
  return { role: "tool", content, toolCallId, ...(named !== undefined && { name: named }) };
}
