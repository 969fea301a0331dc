/** Requests of /v1/embeddings and /v1/rerank. */
import { z } from "@hono/zod-openapi";
import { ids, modelField, optional } from "./fields.ts";

const text = z.string().min(1);

export const embeddingRequest = z
  .object({
    model: modelField,
    input: z.union([text, z.array(text).min(1).max(2048), ids.min(1), z.array(ids.min(1)).min(1).max(2048)]),
    encoding_format: optional(z.enum(["float", "base64"])),
    dimensions: optional(z.int().min(1).max(65536)),
  })
  .openapi("EmbeddingRequest");

export const rerankRequest = z
  .object({
    model: modelField,
    query: text,
    documents: z.array(text).min(1).max(2048),
    top_n: optional(z.int().min(1)),
  })
  .openapi("RerankRequest");
