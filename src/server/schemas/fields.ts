/** Fields that requests of several endpoints share, and the schemas of errors. */
import { z } from "@hono/zod-openapi";

/** A field that may be absent or null, as clients write fields that they do not use. */
export function optional<T extends z.ZodType>(type: T) {
  return type.nullish();
}

/** An object whose type is none of `known`. */
export function otherKind(known: string) {
  const expression = new RegExp(`^(?!(?:${known})$)[\\w.:-]{1,64}$`);
  // Aborts on a known type, so that the error is that of the known kind.
  return z.looseObject({ type: z.string().regex(expression, { abort: true }) });
}

/** The fields without null and absent ones, so that defaults apply to those. */
export function given<T extends object>(fields: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => (value ?? null) !== null)) as never;
}

export const TOKENS_MAX = 2 ** 31 - 1;
export const modelField = z.string().min(1).max(512).openapi({ description: "Name of a model of GET /v1/models." });
export const ids = z.array(z.int().min(0).max(TOKENS_MAX));
const stopField = z.union([z.string().min(1), z.array(z.string().min(1)).max(16)]);

/** Keys of `logit_bias`: token ids. */
export const TOKEN_ID = /^[0-9]{1,9}$/;
const tokenId = z.string().regex(TOKEN_ID);

/** Sampling fields: OpenAI's, and those that servers of open models add. */
export const samplingFields = {
  temperature: optional(z.number().min(0).max(2)),
  top_p: optional(z.number().gt(0).max(1)),
  top_k: optional(z.int().min(-1).max(TOKENS_MAX)).openapi({ description: "0 and -1 keep all tokens." }),
  min_p: optional(z.number().min(0).max(1)),
  presence_penalty: optional(z.number().min(-2).max(2)),
  frequency_penalty: optional(z.number().min(-2).max(2)),
  repetition_penalty: optional(z.number().gt(0).max(10)),
  logit_bias: optional(z.record(tokenId, z.number().min(-100).max(100))),
  seed: optional(z.int().min(-Number.MAX_SAFE_INTEGER).max(Number.MAX_SAFE_INTEGER)),
  stop: optional(stopField),
  stop_token_ids: optional(ids.max(64)),
  ignore_eos: optional(z.boolean()),
};

export const streamFields = {
  stream: optional(z.boolean()),
  stream_options: optional(z.object({ include_usage: optional(z.boolean()) })),
};

export const usageSchema = z
  .object({
    prompt_tokens: z.int(),
    completion_tokens: z.int(),
    total_tokens: z.int(),
    prompt_tokens_details: z.object({ cached_tokens: z.int() }),
    completion_tokens_details: z.object({
      reasoning_tokens: z.int(),
      accepted_prediction_tokens: z.int(),
      rejected_prediction_tokens: z.int(),
    }),
  })
  .openapi("Usage");

export const openaiErrorSchema = z
  .object({
    error: z.object({
      message: z.string(),
      type: z.string(),
      param: z.string().nullable(),
      code: z.string().nullable(),
    }),
  })
  .openapi("Error");

export const anthropicErrorSchema = z
  .object({
    type: z.literal("error"),
    error: z.object({ type: z.string(), message: z.string() }),
    request_id: z.string(),
  })
  .openapi("MessagesError");

export const ollamaErrorSchema = z.object({ error: z.string() }).openapi("OllamaError");

const elsewhere = z.null("expected structured_outputs, which has its place here").optional();

/** Fields of other servers for structured output. They are refused, since ignoring them would look like honouring them. */
export const otherConstraints = {
  guided_json: elsewhere,
  guided_regex: elsewhere,
  guided_choice: elsewhere,
  guided_grammar: elsewhere,
  json_schema: elsewhere,
  grammar: elsewhere,
};
