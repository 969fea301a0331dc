/** A language model in the AI SDK's interface. */
import type {
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3Content,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  LanguageModelV3StreamResult,
} from "@ai-sdk/provider";
import { chatOptionsOf } from "./call-options.ts";
import type { LoadedModels } from "./loaded-models.ts";
import { messagesOf } from "./prompt.ts";
import { answerParts, failedFinish } from "./stream-parts.ts";

export class ChatModel implements LanguageModelV3 {
  readonly specificationVersion = "v3";
  readonly provider = "lowbit";
  readonly modelId: string;
  /** URLs of files are never fetched. */
  readonly supportedUrls = {};
  readonly #models: LoadedModels;

  constructor(modelId: string, models: LoadedModels) {
    this.modelId = modelId;
    this.#models = models;
  }

  // Bound functions, since the SDK and its wrappers call them on proxies.
  readonly doGenerate = async (options: LanguageModelV3CallOptions): Promise<LanguageModelV3GenerateResult> => {
    const { parts, warnings, response } = await this.#answer(options);
    const content: LanguageModelV3Content[] = [];
    for (let next = await parts.next(); ; next = await parts.next()) {
      if (next.done) {
        const { type, ...finish } = next.value;
        return { content, ...finish, response, warnings };
      }
      addTo(content, next.value);
    }
  };

  /** Errors before the first token are thrown; later ones are a part of the stream. */
  readonly doStream = async (options: LanguageModelV3CallOptions): Promise<LanguageModelV3StreamResult> => {
    const { parts, warnings, response } = await this.#answer(options);
    const first = await parts.next();
    const stream = streamOf(first, parts, options.abortSignal, [
      { type: "stream-start", warnings },
      { type: "response-metadata", ...response },
    ]);
    return { stream };
  };

  async #answer(options: LanguageModelV3CallOptions) {
    const messages = messagesOf(options.prompt);
    const model = await this.#models.use(this.modelId, options.abortSignal);
    const { chatOptions, warnings } = chatOptionsOf(options, model);
    const parts = answerParts(model.chat(messages, chatOptions), options.includeRawChunks === true);
    const response = { id: crypto.randomUUID(), timestamp: new Date(), modelId: this.modelId };
    return { parts, warnings, response };
  }
}

type Parts = ReturnType<typeof answerParts>;

/**
 * The parts of an answer after the `head`, each computed when it is read; an abort ends the answer, whether it is being
 * read or not.
 */
function streamOf(
  first: IteratorResult<LanguageModelV3StreamPart, LanguageModelV3StreamPart>,
  parts: Parts,
  signal: AbortSignal | undefined,
  head: readonly LanguageModelV3StreamPart[],
): ReadableStream<LanguageModelV3StreamPart> {
  let onAbort = () => {};
  const end = () => signal?.removeEventListener("abort", onAbort);
  return new ReadableStream<LanguageModelV3StreamPart>(
    {
      start(controller) {
        for (const part of [...head, first.value]) controller.enqueue(part);
        if (first.done) {
          controller.close();
          return;
        }
        onAbort = () => {
          controller.error(signal!.reason);
          void parts.return(failedFinish);
        };
        if (signal?.aborted) onAbort();
        else signal?.addEventListener("abort", onAbort, { once: true });
      },
      async pull(controller) {
        try {
          const next = await parts.next();
          controller.enqueue(next.value);
          if (!next.done) return;
        } catch (error) {
          if (signal?.aborted) return;
          controller.enqueue({ type: "error", error });
          controller.enqueue(failedFinish);
        }
        end();
        controller.close();
      },
      async cancel() {
        end();
        await parts.return(failedFinish);
      },
    },
    { highWaterMark: 0 },
  );
}

/** Adds a stream part to the content of an answer that is not streamed. */
function addTo(content: LanguageModelV3Content[], part: LanguageModelV3StreamPart): void {
  if (part.type === "text-start") content.push({ type: "text", text: "" });
  else if (part.type === "reasoning-start") content.push({ type: "reasoning", text: "" });
  else if (part.type === "tool-call") content.push(part);
  else if (part.type === "text-delta" || part.type === "reasoning-delta")
    (content.at(-1) as { text: string }).text += part.delta;
}
