/** /v1/embeddings and /v1/rerank, for embedding models and rerankers. */
import type { z } from "@hono/zod-openapi";
import type { LanguageModel } from "../../language/language-model.ts";
import { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";
import { embeddingRequest, embeddingSchema, rerankRequest, rerankSchema } from "../schemas/embeddings.ts";
import type { Job, Serving } from "../serving.ts";
import { sumOf } from "../usage.ts";
import { type App, addPost } from "./route.ts";

const NOTHING_WRITTEN = { cachedTokens: 0, generatedTokens: 0, draftedTokens: 0, acceptedTokens: 0 };

export function addEmbeddings(app: App, serving: Serving): void {
  const embeddings = { path: "/v1/embeddings", summary: "Embeddings of texts.", request: embeddingRequest };
  addPost(app, { ...embeddings, response: embeddingSchema }, (c, body) =>
    serving.answer(c, { model: body.model, choices: 1 }, (job) => embed(job, body)),
  );
  const rerank = { summary: "Documents by relevance.", request: rerankRequest, response: rerankSchema };
  // /v1 is the path of Jina's clients and Cohere's older ones, /v2 that of Cohere's newer ones.
  for (const path of ["/v1/rerank", "/v2/rerank"])
    addPost(app, { ...rerank, path }, (c, body) =>
      serving.answer(c, { model: body.model, choices: 1 }, (job) => rank(job, body)),
    );
}

/** The part of a model that an endpoint needs; ApiError 400 where the model has none. */
function needed<T>(part: T | null, { embedding, reranker }: LanguageModel, name: string, what: string): T {
  if (part) return part;
  const made = embedding ? "gives embeddings" : reranker ? "ranks documents" : "generates text";
  throw new ApiError(400, `model ${name}: does not ${what}; it ${made}`, { code: "unsupported_model", param: "model" });
}

interface VectorOptions {
  /** Name of the model in the request. */
  readonly name: string;
  readonly prompt?: string | null | undefined;
  readonly dimensions?: number | null | undefined;
  readonly truncate: boolean;
}

/** Computes embeddings of texts or of token ids. ApiError 400 for a model that makes none. */
export async function vectorsOf(
  { model, signal, took }: Job,
  texts: readonly (string | readonly number[])[],
  { name, prompt, dimensions, truncate }: VectorOptions,
) {
  const embedding = needed(model.embedding, model, name, "give embeddings");
  const options = { ...(prompt != null && { prompt }), truncate };
  const ids = texts.map((text) => (typeof text === "string" ? embedding.encode(text, options) : text));
  const vectors = ids.length > 0 ? await embedding.embed(ids, { dimensions: dimensions ?? undefined, signal }) : [];
  const promptTokens = sumOf(ids.map(({ length }) => length));
  took({ ...NOTHING_WRITTEN, promptTokens });
  return { vectors, promptTokens };
}

async function embed(job: Job, body: z.output<typeof embeddingRequest>): Promise<object> {
  const { model: name, input, encoding_format: format, dimensions, prompt_name: prompt, truncate } = body;
  const isOne = typeof input === "string" || typeof input[0] === "number";
  const texts = (isOne ? [input] : input) as readonly (string | readonly number[])[];
  const given = { name, prompt, dimensions, truncate: truncate ?? false };
  const { vectors, promptTokens } = await vectorsOf(job, texts, given);
  return {
    object: "list",
    data: vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: format === "base64" ? base64Of(vector) : Array.from(vector),
    })),
    model: body.model,
    usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
  };
}

/** The vector as float32, little-endian, in base64. */
function base64Of(vector: Float32Array): string {
  const bytes = Buffer.alloc(4 * vector.length);
  for (const [i, value] of vector.entries()) bytes.writeFloatLE(value, 4 * i);
  return bytes.toString("base64");
}

async function rank({ model, signal, took }: Job, body: z.output<typeof rerankRequest>): Promise<object> {
  const reranker = needed(model.reranker, model, body.model, "rank documents");
  const { query, documents, top_n: most, return_documents: returned, prompt_name: prompt, truncate } = body;
  const options = { ...(prompt != null && { prompt }), truncate: truncate ?? false };
  const pairs = documents.map((document) => reranker.encode(query, document, options));
  const scores = await reranker.score(pairs, signal);
  const promptTokens = sumOf(pairs.map(({ ids }) => ids.length));
  took({ ...NOTHING_WRITTEN, promptTokens });
  const ranked = scores.map((score, index) => ({
    index,
    relevance_score: score,
    ...(returned && { document: { text: documents[index]! } }),
  }));
  ranked.sort((a, b) => b.relevance_score - a.relevance_score || a.index - b.index);
  return {
    id: newId("rerank"),
    model: body.model,
    results: ranked.slice(0, most ?? ranked.length),
    usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
  };
}
