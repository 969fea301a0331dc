/** A model whose answers are written down, for the forms in which servers pass them on. */
import type { ChatChoicesOptions, ChatEvent, ChatOptions, ChatResult } from "../../src/language/chat-options.ts";
import type { LanguageModel } from "../../src/language/language-model.ts";
import type { Message } from "../../src/text/chat-messages.ts";

export interface Script {
  readonly events: readonly ChatEvent[];
  readonly finishReason?: ChatResult["finishReason"];
  readonly stopString?: string;
  /** Thrown after the events. */
  readonly error?: unknown;
}

export interface Asked {
  readonly messages: readonly Message[];
  readonly options: ChatOptions;
}

/** A stand-in that answers as the script says, whatever it is asked, and notes what that was. */
export function scriptedModel(script: Script): { model: LanguageModel; asked: Asked[] } {
  const asked: Asked[] = [];
  const result = resultOf(script);
  async function* answer(choices: number) {
    for (const event of script.events) for (let choice = 0; choice < choices; choice++) yield { ...event, choice };
    if (script.error) throw script.error;
  }
  const model = {
    program: { memoryUse: { constants: 0, scratch: 0, state: 0 }, sequenceStatistics: null },
    createDecoder: () => ({ contextLength: 64, dispose: async () => {} }),
    tokenizer: { vocabSize: 10, isSpecial: () => true, decode: (ids: number[]) => `<${ids}>` },
    stopStrings: ["OWN"],
    encodeChat: () => [1, 2, 3, 4, 5, 6, 7],
    chat(messages: readonly Message[], options: ChatOptions) {
      asked.push({ messages, options });
      return Object.assign(answer(1), { promptTokens: 7, result: Promise.resolve(result) });
    },
    chatChoices(messages: readonly Message[], options: ChatChoicesOptions) {
      asked.push({ messages, options });
      async function* answers() {
        yield* answer(options.n);
        for (let choice = 0; choice < options.n; choice++) options.onEnd?.(choice, result);
      }
      return Object.assign(answers(), { result: Promise.resolve(new Array(options.n).fill(result)) });
    },
    dispose: async () => {},
  };
  return { model: model as unknown as LanguageModel, asked };
}

function resultOf({ events, finishReason = "stop", stopString }: Script): ChatResult {
  const joined = (type: "text" | "reasoning") =>
    events.map((event) => (event.type === type ? event.text : "")).join("");
  const toolCalls = events.flatMap((event) => {
    if (event.type !== "toolCall") return [];
    const texts = events.map((other) =>
      other.type === "toolArguments" && other.index === event.index ? other.text : "",
    );
    return [{ id: event.id, name: event.name, arguments: texts.join("") }];
  });
  const [text, reasoning] = [joined("text"), joined("reasoning")];
  return {
    message: {
      role: "assistant",
      content: text === "" && toolCalls.length > 0 ? null : text,
      ...(reasoning === "" ? {} : { reasoning }),
      ...(toolCalls.length === 0 ? {} : { toolCalls }),
    },
    finishReason,
    stopString: stopString ?? null,
    usage: { promptTokens: 7, cachedTokens: 3, completionTokens: 9, reasoningTokens: 2 },
    generation: {
      finishReason: "stop",
      draftedTokens: 0,
      acceptedTokens: 0,
      prefillSeconds: 0.5,
      decodeSeconds: 0.25,
    } as ChatResult["generation"],
  };
}

/** Thinking, text, and two calls. */
export const toolScript: Script = {
  events: [
    { type: "reasoning", text: "It " },
    { type: "reasoning", text: "asks." },
    { type: "text", text: "Let me " },
    { type: "text", text: "look." },
    { type: "toolCall", index: 0, id: "call_a", name: "weather" },
    { type: "toolArguments", index: 0, text: '{"city":' },
    { type: "toolArguments", index: 0, text: '"Rome"}' },
    { type: "toolCall", index: 1, id: "call_b", name: "now" },
    { type: "toolArguments", index: 1, text: "{}" },
  ],
  finishReason: "toolCalls",
};
