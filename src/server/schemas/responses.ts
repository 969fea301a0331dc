/** Requests and answers of /v1/responses, as far as it keeps nothing. */
import { z } from "@hono/zod-openapi";
import type { ServerLimits } from "../limits.ts";
import { jsonObject, reasoningEffort, toolName } from "./chat.ts";
import { modelField, optional, samplingFields, TOKENS_MAX } from "./fields.ts";

const textPart = z.object({ type: z.enum(["input_text", "output_text", "text"]), text: z.string() });
const content = z.union([z.string(), z.array(textPart)]);

const messageItem = z.object({
  type: optional(z.literal("message")),
  role: z.enum(["user", "assistant", "system", "developer"]),
  content,
});
const callItem = z.object({
  type: z.literal("function_call"),
  call_id: z.string(),
  name: z.string(),
  arguments: z.string(),
});
const resultItem = z.object({
  type: z.literal("function_call_output"),
  call_id: z.string(),
  output: content,
});
const reasoningItem = z.object({
  type: z.literal("reasoning"),
  content: optional(z.array(z.object({ type: z.literal("reasoning_text"), text: z.string() }))),
});

const inputItem = z.union([callItem, resultItem, reasoningItem, messageItem]).openapi("ResponseInputItem");
export type InputItem = z.output<typeof inputItem>;

const toolSchema = z.object({
  type: z.literal("function"),
  name: toolName,
  description: optional(z.string()),
  parameters: optional(jsonObject),
  strict: optional(z.boolean()),
});

const textFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object") }),
  z.object({
    type: z.literal("json_schema"),
    name: optional(z.string()),
    schema: jsonObject,
    strict: optional(z.boolean()),
  }),
]);

const STATELESS = "expected none: this server keeps no responses; give the whole conversation in input";

export function responseRequest({ messages, tools }: ServerLimits) {
  return z
    .object({
      model: modelField,
      input: z.union([z.string().min(1), z.array(inputItem).min(1).max(messages)]),
      instructions: optional(z.string()),
      max_output_tokens: optional(z.int().min(1).max(TOKENS_MAX)),
      ...samplingFields,
      stream: optional(z.boolean()),
      tools: optional(z.array(toolSchema).max(tools)),
      tool_choice: optional(
        z.union([z.enum(["none", "auto", "required"]), z.object({ type: z.literal("function"), name: toolName })]),
      ),
      parallel_tool_calls: optional(z.boolean()),
      reasoning: optional(z.object({ effort: optional(reasoningEffort) })),
      text: optional(z.object({ format: optional(textFormat) })),
      metadata: optional(z.record(z.string(), z.string())),
      previous_response_id: z.null(STATELESS).optional(),
      conversation: z.null(STATELESS).optional(),
      background: optional(z.literal(false, "expected false: this server keeps no responses")),
    })
    .openapi("ResponseRequest");
}

export type ResponseRequest = z.output<ReturnType<typeof responseRequest>>;

export const responseSchema = z
  .object({
    id: z.string(),
    object: z.literal("response"),
    created_at: z.int(),
    status: z.enum(["in_progress", "completed", "incomplete", "failed"]),
    model: z.string(),
    output: z.array(z.object({ id: z.string(), type: z.string() })),
    incomplete_details: z.object({ reason: z.string() }).nullable(),
    error: z.null(),
    usage: z
      .object({
        input_tokens: z.int(),
        input_tokens_details: z.object({ cached_tokens: z.int() }),
        output_tokens: z.int(),
        output_tokens_details: z.object({ reasoning_tokens: z.int() }),
        total_tokens: z.int(),
      })
      .nullable(),
  })
  .openapi("Response");
