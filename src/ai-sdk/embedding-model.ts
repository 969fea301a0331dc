/** An embedding model in the AI SDK's interface. */
import type {
  EmbeddingModelV3,
  EmbeddingModelV3CallOptions,
  EmbeddingModelV3Result,
  SharedV3Warning,
} from "@ai-sdk/provider";
import { UnsupportedError } from "../errors.ts";
import type { EmbedOptions } from "../language/embedding-model.ts";
import { callerHeaders, ownOptions } from "./call-options.ts";
import type { LoadedModels } from "./loaded-models.ts";

/** Names of the library's options that calls may give as `providerOptions.lowbit`. */
const OWN = ["prompt", "truncate", "dimensions"] as const;

/** Fields of `providerOptions.lowbit` in calls of embedding models. */
export type LowbitEmbeddingOptions = Pick<EmbedOptions, (typeof OWN)[number]>;

export class TextEmbeddingModel implements EmbeddingModelV3 {
  readonly specificationVersion = "v3";
  readonly provider = "lowbit";
  readonly modelId: string;
  /** No limit: the library splits a call into batches by its memory. */
  readonly maxEmbeddingsPerCall = Number.POSITIVE_INFINITY;
  readonly supportsParallelCalls = true;
  readonly #models: LoadedModels;

  constructor(modelId: string, models: LoadedModels) {
    this.modelId = modelId;
    this.#models = models;
  }

  /** A bound function, since version 7 of the SDK calls it on a proxy of this object. */
  readonly doEmbed = async (call: EmbeddingModelV3CallOptions): Promise<EmbeddingModelV3Result> => {
    const { own, unknown } = ownOptions<LowbitEmbeddingOptions>(call.providerOptions, OWN);
    const features = [...callerHeaders(call), ...unknown];
    const warnings = features.map((feature): SharedV3Warning => ({ type: "unsupported", feature }));
    const { embedding, name } = await this.#models.use(this.modelId, call.abortSignal);
    if (!embedding) throw new UnsupportedError(`${name}: the program generates text; it gives no embeddings`);
    const ids = call.values.map((text) => embedding.encode(text, own));
    const vectors = await embedding.embed(ids, { ...own, signal: call.abortSignal });
    const tokens = ids.reduce((sum, { length }) => sum + length, 0);
    return { embeddings: vectors.map((vector) => [...vector]), usage: { tokens }, warnings };
  };
}
