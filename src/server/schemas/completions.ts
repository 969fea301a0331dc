/** Schemas of requests and responses of /v1/completions. */
import { z } from "@hono/zod-openapi";
import type { ServerLimits } from "../limits.ts";
import { structuredOutputs } from "./chat.ts";
import {
  ids,
  modelField,
  optional,
  otherConstraints,
  samplingFields,
  streamFields,
  TOKENS_MAX,
  usageSchema,
} from "./fields.ts";

export function completionRequest({ choices }: ServerLimits) {
  const prompt = z.union([
    z.string().min(1),
    z.array(z.string().min(1)).min(1).max(choices),
    ids.min(1),
    z.array(ids.min(1)).min(1).max(choices),
  ]);
  return z
    .object({
      model: modelField,
      prompt,
      max_tokens: optional(z.int().min(0).max(TOKENS_MAX)).openapi({ description: "Default: 16, as OpenAI has it." }),
      n: optional(z.int().min(1).max(choices)),
      best_of: optional(z.literal(1, "expected 1: no texts are made to choose the best of them")),
      echo: optional(z.boolean()),
      logprobs: optional(z.int().min(0).max(20)),
      suffix: optional(z.string()).openapi({
        description: "Text behind the one that is written: for models that have tokens for it.",
      }),
      add_special_tokens: optional(z.boolean()).openapi({
        description: "Whether the tokenizer puts its own tokens, such as BOS, around a text. Default: true.",
      }),
      structured_outputs: optional(structuredOutputs),
      ...otherConstraints,
      response_format: otherConstraints.json_schema,
      ...samplingFields,
      ...streamFields,
    })
    .openapi("CompletionRequest");
}

export type CompletionRequest = z.output<ReturnType<typeof completionRequest>>;

const logprobsSchema = z.object({
  tokens: z.array(z.string()),
  token_logprobs: z.array(z.number().nullable()),
  top_logprobs: z.array(z.record(z.string(), z.number()).nullable()),
  text_offset: z.array(z.int()),
});

export const completionSchema = z
  .object({
    id: z.string(),
    object: z.literal("text_completion"),
    created: z.int(),
    model: z.string(),
    choices: z.array(
      z.object({
        index: z.int(),
        text: z.string(),
        logprobs: logprobsSchema.nullable(),
        finish_reason: z.enum(["stop", "length"]).nullable(),
      }),
    ),
    usage: usageSchema.nullable().optional(),
  })
  .openapi("Completion");
