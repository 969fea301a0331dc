/** A reranker in the AI SDK's interface. */
import type { RerankingModelV3, RerankingModelV3CallOptions, SharedV3Warning } from "@ai-sdk/provider";
import { UnsupportedError } from "../errors.ts";
import type { RankOptions } from "../language/reranker.ts";
import { callerHeaders, ownOptions } from "./call-options.ts";
import type { LoadedModels } from "./loaded-models.ts";

/** Names of the library's options that calls may give as `providerOptions.lowbit`. */
const OWN = ["prompt", "truncate"] as const;

/** Fields of `providerOptions.lowbit` in calls of rerankers. */
export type LowbitRerankingOptions = Pick<RankOptions, (typeof OWN)[number]>;

type Ranking = Awaited<ReturnType<RerankingModelV3["doRerank"]>>;

export class DocumentRerankingModel implements RerankingModelV3 {
  readonly specificationVersion = "v3";
  readonly provider = "lowbit";
  readonly modelId: string;
  readonly #models: LoadedModels;

  constructor(modelId: string, models: LoadedModels) {
    this.modelId = modelId;
    this.#models = models;
  }

  /** A bound function, since version 7 of the SDK calls it on a proxy of this object. */
  readonly doRerank = async (call: RerankingModelV3CallOptions): Promise<Ranking> => {
    const { own, unknown } = ownOptions<LowbitRerankingOptions>(call.providerOptions, OWN);
    const features = [...callerHeaders(call), ...unknown];
    const warnings = features.map((feature): SharedV3Warning => ({ type: "unsupported", feature }));
    const { reranker, embedding, name } = await this.#models.use(this.modelId, call.abortSignal);
    const does = embedding ? "gives embeddings" : "generates text";
    if (!reranker) throw new UnsupportedError(`${name}: the program ${does}; it ranks no documents`);
    const { documents, query, topN } = call;
    // Documents that are objects are ranked as JSON.
    const texts = documents.type === "text" ? documents.values : documents.values.map((value) => JSON.stringify(value));
    const scores = await reranker.rank(query, texts, { ...own, signal: call.abortSignal });
    const ranking = scores.map((relevanceScore, index) => ({ index, relevanceScore }));
    ranking.sort((a, b) => b.relevanceScore - a.relevanceScore || a.index - b.index);
    return { ranking: ranking.slice(0, topN), warnings };
  };
}
