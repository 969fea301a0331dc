/** Models in a worker of this page. */
import {
  ContextLengthError,
  type ConversationEvent,
  type GenerationResult,
  loadModel,
  type Message,
  type WebModel,
} from "lowbit/web";
import { type AnswerOptions, type ChatModel, type Ending, type Engine, type LoadOptions, ROOM } from "./engine.ts";

export const engine: Engine = {
  async offers() {
    const response = await fetch("models.json");
    if (!response.ok) throw new Error(`models.json: ${response.status}`);
    return response.json();
  },

  async load(source: string | File, options: LoadOptions): Promise<ChatModel> {
    const model = await loadModel(source, options);
    const { name, makes, contextLength, isCached, takesTools, canThink } = model.facts;
    if (makes !== "text") {
      model.dispose();
      throw new Error(`${name} makes ${makes} of texts, and writes none`);
    }
    return {
      name: name.split("/").at(-1)!,
      notice: isCached === false ? "; it could not be kept for the next visit" : "",
      ...{ contextLength, takesTools, canThink },
      answer: (messages, options) => answer(model, messages, options),
      report: () => report(model),
      dispose: () => model.dispose(),
    };
  },
};

/** A model without a chat template continues what was said last. */
async function* answer(
  model: WebModel,
  messages: readonly Message[],
  { settings, thinking, tools, signal }: AnswerOptions,
): AsyncGenerator<ConversationEvent, Ending, void> {
  if (!model.facts.hasChatTemplate) {
    const generation = model.generate(messages.at(-1)!.content as string, { ...settings, signal });
    for await (const text of generation) yield { type: "text", text };
    const result = await generation.result;
    return endingOf(result, result.finishReason, result.promptTokens);
  }
  const options = { ...settings, signal, tools, ...(thinking === undefined ? {} : { thinking }) };
  const reply = model.chat(messages, options);
  try {
    yield* reply.events();
  } catch (error) {
    throw error instanceof ContextLengthError ? new Error(error.message + ROOM) : error;
  }
  const { finishReason, generation, usage } = await reply.answer;
  return endingOf(generation, finishReason, usage.promptTokens);
}

function endingOf(result: GenerationResult, finishReason: Ending["finishReason"], promptTokens: number): Ending {
  const { firstTokenSeconds, decodeSeconds, generatedTokens, message } = result;
  const tokensPerSecond = generatedTokens > 1 && decodeSeconds > 0 ? (generatedTokens - 1) / decodeSeconds : null;
  const figures = { firstTokenSeconds, tokensPerSecond, usedTokens: promptTokens + generatedTokens };
  return { finishReason, notice: message, figures };
}

async function report(model: WebModel) {
  const { threads, memory, features, kernels } = await model.stats();
  const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
  const rows: [string, string][] = [
    ["Weights", megabytes(memory.constants)],
    ["Conversation", megabytes(memory.state)],
    ["Scratch", megabytes(memory.scratch)],
    ["Threads", globalThis.crossOriginIsolated ? `${threads}` : "1 (page is not isolated)"],
    ["Features", features.replaceAll(",", ", ")],
  ];
  const slow = kernels.filter(([, used]) => used.some((name) => name.endsWith("_reference")));
  if (slow.length > 0) rows.push(["Slow: no fast kernel for", slow.map(([operator]) => operator).join(", ")]);
  return { rows, kernels: [...new Set(kernels.flatMap(([, used]) => used))].sort() };
}
