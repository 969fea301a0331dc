/** Schemas of requests and responses of Ollama's API, /api. */
import { z } from "@hono/zod-openapi";
import type { ServerLimits } from "../limits.ts";
import { EFFORTS } from "../model-options.ts";
import { jsonObject, toolName } from "./chat.ts";
import { optional, TOKENS_MAX } from "./fields.ts";

const modelName = z.string().min(1).max(512).openapi({ description: "Name of a model of GET /api/tags." });

/** Ollama's older clients send the model as `name`. */
const namedModel = { model: optional(modelName), name: optional(modelName) };

const whole = z.int().min(-TOKENS_MAX).max(TOKENS_MAX);

/** Sampling options. Fields for Ollama's own engine and for hardware are accepted and ignored. */
const optionsSchema = z
  .looseObject({
    num_predict: optional(whole).openapi({ description: "Most tokens; 0 and less for any number." }),
    num_ctx: optional(whole),
    temperature: optional(z.number().min(0)),
    top_k: optional(whole),
    top_p: optional(z.number().min(0).max(1)),
    min_p: optional(z.number().min(0).max(1)),
    typical_p: optional(z.number()),
    mirostat: optional(z.number()),
    repeat_last_n: optional(whole),
    repeat_penalty: optional(z.number().min(0).max(10)),
    presence_penalty: optional(z.number().min(-2).max(2)),
    frequency_penalty: optional(z.number().min(-2).max(2)),
    seed: optional(z.int()),
    stop: optional(z.union([z.string(), z.array(z.string()).max(16)])),
  })
  .openapi("OllamaOptions");
export type OllamaOptions = z.output<typeof optionsSchema>;

const duration = z
  .union([z.string().regex(/^-?(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+$|^-?\d+(?:\.\d+)?$/), z.number()])
  .openapi({ description: 'How long the model stays loaded: seconds, or "5m"; less than 0 for ever.' });

const formatField = z.union([z.enum(["", "json"]), jsonObject]);
const thinkField = z.union([z.boolean(), z.enum(EFFORTS)]);
const images = optional(z.array(z.string()).max(1024));

const generationFields = {
  format: optional(formatField),
  options: optional(optionsSchema),
  think: optional(thinkField),
  keep_alive: optional(duration),
  stream: optional(z.boolean()).openapi({ description: "Default: true." }),
  logprobs: optional(z.boolean()),
  top_logprobs: optional(z.int().min(0).max(20)),
  truncate: optional(z.boolean()),
  shift: optional(z.boolean()),
};

const callSchema = z.object({
  id: optional(z.string()),
  type: optional(z.string()),
  function: z.object({ index: optional(z.int()), name: z.string(), arguments: optional(jsonObject) }),
});

const messageSchema = z
  .object({
    role: z.enum(["system", "user", "assistant", "tool"]),
    content: optional(z.string()),
    thinking: optional(z.string()),
    images,
    tool_calls: optional(z.array(callSchema)),
    tool_name: optional(z.string()),
    name: optional(z.string()),
    tool_call_id: optional(z.string()),
  })
  .openapi("OllamaMessage");
export type OllamaMessage = z.output<typeof messageSchema>;

const toolSchema = z.object({
  type: z.literal("function"),
  function: z.object({ name: toolName, description: optional(z.string()), parameters: optional(jsonObject) }),
});

export function ollamaChatRequest({ messages, tools }: ServerLimits) {
  return z
    .object({
      ...{ model: modelName, messages: optional(z.array(messageSchema).max(messages)) },
      ...{ tools: optional(z.array(toolSchema).max(tools)), ...generationFields },
    })
    .openapi("OllamaChatRequest");
}
export type OllamaChatRequest = z.output<ReturnType<typeof ollamaChatRequest>>;

export const ollamaGenerateRequest = z
  .object({
    model: modelName,
    prompt: optional(z.string()),
    suffix: optional(z.string()),
    system: optional(z.string()),
    raw: optional(z.boolean()).openapi({ description: "Whether the prompt is the whole text that the model reads." }),
    images,
    template: optional(z.literal("", "expected none: the model's own template is used")),
    context: optional(z.array(z.int()).max(0, "expected none: /api/chat goes on with conversations")),
    ...generationFields,
  })
  .openapi("OllamaGenerateRequest");
export type OllamaGenerateRequest = z.output<typeof ollamaGenerateRequest>;

const embedFields = { truncate: optional(z.boolean()), options: optional(jsonObject), keep_alive: optional(duration) };

export const ollamaEmbedRequest = z
  .object({
    model: modelName,
    input: optional(z.union([z.string(), z.array(z.string()).max(2048)])),
    dimensions: optional(z.int().min(1).max(65536)),
    ...embedFields,
  })
  .openapi("OllamaEmbedRequest");

export const ollamaEmbeddingsRequest = z
  .object({ model: modelName, prompt: optional(z.string()), ...embedFields })
  .openapi("OllamaEmbeddingsRequest");

const modelRequestSchema = z.object({ ...namedModel, verbose: optional(z.boolean()) });
export const ollamaShowRequest = modelRequestSchema.openapi("OllamaShowRequest");
export const ollamaDeleteRequest = z.object(namedModel).openapi("OllamaDeleteRequest");
export const ollamaPullRequest = z
  .object({ ...namedModel, insecure: optional(z.boolean()), stream: optional(z.boolean()) })
  .openapi("OllamaPullRequest");
export const ollamaCopyRequest = z.object({ source: modelName, destination: modelName }).openapi("OllamaCopyRequest");

/** Times in nanoseconds and token counts, in the last part of an answer. */
const figures = {
  done_reason: z.enum(["stop", "length", "load", "unload"]).optional(),
  total_duration: z.int().optional(),
  load_duration: z.int().optional(),
  prompt_eval_count: z.int().optional(),
  prompt_eval_duration: z.int().optional(),
  eval_count: z.int().optional(),
  eval_duration: z.int().optional(),
};
const head = { model: z.string(), created_at: z.string(), done: z.boolean() };
const tokenLogprob = z.object({ token: z.string(), logprob: z.number(), bytes: z.array(z.int()).nullable() });
const logprobs = z.array(tokenLogprob.extend({ top_logprobs: z.array(tokenLogprob) })).optional();

export const ollamaChatSchema = z
  .object({
    ...head,
    message: z.object({
      role: z.literal("assistant"),
      content: z.string(),
      thinking: z.string().optional(),
      tool_calls: z
        .array(
          z.object({ id: z.string(), function: z.object({ index: z.int(), name: z.string(), arguments: jsonObject }) }),
        )
        .optional(),
    }),
    logprobs,
    ...figures,
  })
  .openapi("OllamaChat");

export const ollamaGenerateSchema = z
  .object({ ...head, response: z.string(), thinking: z.string().optional(), logprobs, ...figures })
  .openapi("OllamaGeneration");

export const ollamaEmbedSchema = z
  .object({
    model: z.string(),
    embeddings: z.array(z.array(z.number())),
    total_duration: z.int(),
    load_duration: z.int(),
    prompt_eval_count: z.int(),
  })
  .openapi("OllamaEmbeddings");

export const ollamaEmbeddingsSchema = z.object({ embedding: z.array(z.number()) }).openapi("OllamaEmbedding");

const details = z.object({
  parent_model: z.string(),
  format: z.string(),
  family: z.string(),
  families: z.array(z.string()),
  parameter_size: z.string(),
  quantization_level: z.string(),
});
const listed = { name: z.string(), model: z.string(), size: z.int(), digest: z.string(), details };

export const ollamaTagsSchema = z
  .object({ models: z.array(z.object({ ...listed, modified_at: z.string(), capabilities: z.array(z.string()) })) })
  .openapi("OllamaModels");

export const ollamaPsSchema = z
  .object({
    models: z.array(z.object({ ...listed, expires_at: z.string(), size_vram: z.literal(0), context_length: z.int() })),
  })
  .openapi("OllamaLoadedModels");

export const ollamaShowSchema = z
  .object({
    modelfile: z.string(),
    parameters: z.string(),
    template: z.string(),
    details,
    model_info: jsonObject,
    capabilities: z.array(z.string()),
    modified_at: z.string(),
  })
  .openapi("OllamaModel");

export const ollamaPullSchema = z
  .object({
    status: z.string(),
    digest: z.string().optional(),
    total: z.int().optional(),
    completed: z.int().optional(),
  })
  .openapi("OllamaPull");
