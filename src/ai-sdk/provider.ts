/** The provider for the AI SDK: models by name or path, loaded when first used. */
import type { EmbeddingModelV3, LanguageModelV3, ProviderV3, RerankingModelV3 } from "@ai-sdk/provider";
import { checkOptions, checkString } from "../arguments.ts";
import { UnsupportedError } from "../errors.ts";
import { ChatModel } from "./chat-model.ts";
import { TextEmbeddingModel } from "./embedding-model.ts";
import { LoadedModels, type LowbitSettings } from "./loaded-models.ts";
import { DocumentRerankingModel } from "./reranking-model.ts";

/** A provider in the AI SDK's specification v3, which versions 6 and 7 of the package `ai` accept. */
export interface LowbitProvider extends ProviderV3 {
  /** Gives the language model of a name or path; it is loaded when first used. */
  (modelId: string): LanguageModelV3;
  /** Gives the language model of a name or path; it is loaded when first used. */
  languageModel(modelId: string): LanguageModelV3;
  /** Gives the embedding model of a name or path; it is loaded when first used. */
  embeddingModel(modelId: string): EmbeddingModelV3;
  /** Gives the reranker of a name or path; it is loaded when first used. */
  rerankingModel(modelId: string): RerankingModelV3;
  /** Throws, since there are no image models. */
  imageModel(modelId: string): never;
  /**
   * Frees the models that the provider has loaded; generations under way end with an error. A model that is used again is
   * loaded again.
   */
  dispose(): Promise<void>;
}

/**
 * Makes a provider of its own for the AI SDK, which runs models in this process.
 * @example
 * const provider = createLowbit({ models: { small: "llama-1b.pte" } });
 * const { text } = await generateText({ model: provider("small"), prompt: "Hello!" });
 * await provider.dispose();
 */
export function createLowbit(settings: LowbitSettings = {}): LowbitProvider {
  checkOptions(settings);
  const models = new LoadedModels(settings);
  const languageModel = (modelId: string): LanguageModelV3 => {
    checkString("modelId", modelId);
    return new ChatModel(modelId, models);
  };
  return Object.assign((modelId: string) => languageModel(modelId), {
    specificationVersion: "v3" as const,
    languageModel,
    embeddingModel: (modelId: string): EmbeddingModelV3 => {
      checkString("modelId", modelId);
      return new TextEmbeddingModel(modelId, models);
    },
    rerankingModel: (modelId: string): RerankingModelV3 => {
      checkString("modelId", modelId);
      return new DocumentRerankingModel(modelId, models);
    },
    imageModel: (modelId: string): never => {
      throw new UnsupportedError(`${modelId}: no model of lowbit makes images`);
    },
    dispose: () => models.dispose(),
  });
}

/** The provider without named models, whose models are paths: `lowbit("llama-1b.pte")`. */
export const lowbit: LowbitProvider = createLowbit();
