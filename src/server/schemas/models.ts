/** Lists of models, in a form that clients of OpenAI's and Anthropic's APIs read. */
import { z } from "@hono/zod-openapi";
import { modelField, optional } from "./fields.ts";

export const modelSchema = z
  .object({
    id: z.string(),
    object: z.literal("model"),
    created: z.int(),
    owned_by: z.string(),
    type: z.literal("model"),
    display_name: z.string(),
    created_at: z.string(),
    max_model_len: z.int().optional().openapi({ description: "Tokens of the context, as vLLM tells it." }),
    max_input_tokens: z.int().optional().openapi({ description: "The same, as Anthropic tells it." }),
    meta: z
      .object({
        size: z.int().optional().openapi({ description: "Bytes of the model's files." }),
        n_ctx: z.int().optional().openapi({ description: "Tokens of the context." }),
      })
      .optional()
      .openapi({ description: "As llama.cpp's server tells it." }),
  })
  .openapi("Model");

/** A request that only names a model. */
export const modelRequest = z.object({ model: modelField }).openapi("ModelNameRequest");

export const pullRequest = z
  .object({
    model: z.string().min(1).max(512).openapi({ description: "Its name on the hub, org/name." }),
    stream: optional(z.boolean()),
  })
  .openapi("ModelPull");

export const managedModelSchema = z
  .object({ id: z.string(), object: z.literal("model"), state: z.enum(["away", "loading", "loaded"]) })
  .openapi("ManagedModel");

export const modelListSchema = z
  .object({
    object: z.literal("list"),
    data: z.array(modelSchema),
    has_more: z.literal(false),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
  })
  .openapi("ModelList");
