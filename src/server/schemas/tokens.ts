/** Schemas of requests and responses of /tokenize and /detokenize. */
import { z } from "@hono/zod-openapi";
import { ids, modelField, optional } from "./fields.ts";

export const tokenizeRequest = z
  .object({
    model: modelField,
    prompt: z.string(),
    add_special_tokens: optional(z.boolean()).openapi({
      description: "Whether the tokenizer puts its own tokens, such as BOS, around the text. Default: true.",
    }),
    return_token_strs: optional(z.boolean()),
  })
  .openapi("TokenizeRequest");

export const tokenizeSchema = z
  .object({
    tokens: ids,
    count: z.int(),
    max_model_len: z.int(),
    token_strs: z.array(z.string()).optional(),
  })
  .openapi("Tokens");

export const detokenizeRequest = z.object({ model: modelField, tokens: ids }).openapi("DetokenizeRequest");

export const detokenizeSchema = z.object({ prompt: z.string() }).openapi("Detokenized");
