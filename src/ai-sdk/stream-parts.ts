/** Converts an answer to parts of the AI SDK's streams: blocks of text, thinking and tool calls, one after the other. */
import type { LanguageModelV3StreamPart, LanguageModelV3Usage } from "@ai-sdk/provider";
import type { ChatEvent, ChatResult, ChatStream } from "../language/chat-options.ts";

type Part = LanguageModelV3StreamPart;

/** The part that ends a stream. */
export type Finish = Part & { readonly type: "finish" };

/**
 * The parts of an answer; the last one is returned. With `isRaw`, each library event is also a part, before those made of
 * it.
 */
export async function* answerParts(answer: ChatStream, isRaw: boolean): AsyncGenerator<Part, Finish, void> {
  const blocks = new Blocks();
  for await (const event of answer) {
    if (isRaw) yield { type: "raw", rawValue: event };
    yield* blocks.take(event);
  }
  yield* blocks.end();
  return finishOf(await answer.result);
}

/** Tracks the open block of a stream. */
class Blocks {
  #kind: "text" | "reasoning" | "call" | null = null;
  #id = "";
  /** Name of the open tool call; `#input`: its arguments. */
  #name = "";
  #input = "";
  #count = 0;

  *take(event: ChatEvent): Generator<Part> {
    if (event.type === "toolCall") {
      yield* this.end();
      this.#kind = "call";
      this.#id = event.id;
      this.#name = event.name;
      yield { type: "tool-input-start", id: event.id, toolName: event.name };
      return;
    }
    if (event.type === "toolArguments") {
      this.#input += event.text;
      yield { type: "tool-input-delta", id: this.#id, delta: event.text };
      return;
    }
    const { type, text } = event;
    if (this.#kind !== type) {
      yield* this.end();
      this.#kind = type;
      this.#id = `${type}-${this.#count++}`;
      yield { type: `${type}-start`, id: this.#id };
    }
    yield { type: `${type}-delta`, id: this.#id, delta: text };
  }

  *end(): Generator<Part> {
    const [kind, id] = [this.#kind, this.#id];
    this.#kind = null;
    if (kind === "text" || kind === "reasoning") yield { type: `${kind}-end`, id };
    if (kind !== "call") return;
    yield { type: "tool-input-end", id };
    yield { type: "tool-call", toolCallId: id, toolName: this.#name, input: this.#input };
    this.#input = "";
  }
}

function finishOf({ finishReason, stopString, usage, generation }: ChatResult): Finish {
  const { prefillSeconds, decodeSeconds } = generation;
  return {
    type: "finish",
    finishReason: { unified: finishReason === "toolCalls" ? "tool-calls" : finishReason, raw: finishReason },
    usage: {
      inputTokens: {
        total: usage.promptTokens,
        noCache: usage.promptTokens - usage.cachedTokens,
        cacheRead: usage.cachedTokens,
        cacheWrite: undefined,
      },
      outputTokens: {
        total: usage.completionTokens,
        text: usage.completionTokens - usage.reasoningTokens,
        reasoning: usage.reasoningTokens,
      },
      raw: { ...usage },
    },
    providerMetadata: { lowbit: { stopString, prefillSeconds, decodeSeconds } },
  };
}

const unknownUsage: LanguageModelV3Usage = {
  inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: undefined, text: undefined, reasoning: undefined },
};

/** The last part of an answer that failed. */
export const failedFinish: Finish = {
  type: "finish",
  finishReason: { unified: "error", raw: "error" },
  usage: unknownUsage,
};
