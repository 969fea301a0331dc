/** Schemas of requests of /v1/embeddings and /v1/rerank. */
import { z } from "@hono/zod-openapi";
import { ids, modelField, optional } from "./fields.ts";

const text = z.string().min(1);

export const embeddingRequest = z
  .object({
    model: modelField,
    input: z.union([text, z.array(text).min(1).max(2048), ids.min(1), z.array(ids.min(1)).min(1).max(2048)]),
    encoding_format: optional(z.enum(["float", "base64"])),
    dimensions: optional(z.int().min(1).max(65536)),
    prompt_name: optional(z.string()).openapi({ description: "Name of one of the model's prompts, such as query." }),
    truncate: optional(z.boolean()).openapi({
      description: "Cut texts that are too long; otherwise they are refused.",
    }),
  })
  .openapi("EmbeddingRequest");

const usage = z.object({ prompt_tokens: z.int(), total_tokens: z.int() });

export const embeddingSchema = z
  .object({
    object: z.literal("list"),
    model: z.string(),
    data: z.array(
      z.object({
        object: z.literal("embedding"),
        index: z.int(),
        embedding: z
          .union([z.array(z.number()), z.string()])
          .openapi({ description: "Base64: float32, little-endian." }),
      }),
    ),
    usage,
  })
  .openapi("EmbeddingList");

export const rerankSchema = z
  .object({
    id: z.string(),
    model: z.string(),
    results: z.array(
      z.object({
        index: z.int(),
        relevance_score: z.number(),
        document: z.object({ text: z.string() }).optional(),
      }),
    ),
    usage,
  })
  .openapi("Ranking");

export const rerankRequest = z
  .object({
    model: modelField,
    query: text,
    documents: z
      .array(
        z
          .union([text, z.object({ text })])
          .transform((document) => (typeof document === "string" ? document : document.text)),
      )
      .min(1)
      .max(2048),
    top_n: optional(z.int().min(1)),
    return_documents: optional(z.boolean()),
    prompt_name: optional(z.string()).openapi({ description: "Name of one of the model's prompts." }),
    truncate: optional(z.boolean()).openapi({
      description: "Cut texts that are too long; otherwise they are refused.",
    }),
  })
  .openapi("RerankRequest");
