/** Requests and answers of Anthropic's /v1/messages. */
import { z } from "@hono/zod-openapi";
import type { ServerLimits } from "../limits.ts";
import { jsonObject, toolName } from "./chat.ts";
import { modelField, optional, TOKENS_MAX } from "./fields.ts";

const textBlock = z.object({ type: z.literal("text"), text: z.string() });
const texts = z.union([z.string(), z.array(textBlock)]);

const userBlock = z.discriminatedUnion("type", [
  textBlock,
  z.object({
    type: z.literal("tool_result"),
    tool_use_id: z.string(),
    content: optional(texts),
    is_error: optional(z.boolean()),
  }),
]);

const assistantBlock = z.discriminatedUnion("type", [
  textBlock,
  z.object({ type: z.literal("tool_use"), id: z.string(), name: z.string(), input: jsonObject }),
  z.object({ type: z.literal("thinking"), thinking: z.string(), signature: optional(z.string()) }),
  z.object({ type: z.literal("redacted_thinking"), data: z.string() }),
]);

const messageSchema = z
  .discriminatedUnion("role", [
    z.object({ role: z.literal("user"), content: z.union([z.string(), z.array(userBlock).min(1)]) }),
    z.object({ role: z.literal("assistant"), content: z.union([z.string(), z.array(assistantBlock)]) }),
    z.object({ role: z.literal("system"), content: texts }),
  ])
  .openapi("MessageParam");

export type MessageParam = z.output<typeof messageSchema>;

const toolSchema = z.object({
  type: optional(z.literal("custom")),
  name: toolName,
  description: optional(z.string()),
  input_schema: jsonObject,
  strict: optional(z.boolean()),
});

const toolChoice = z.discriminatedUnion("type", [
  z.object({ type: z.literal("auto"), disable_parallel_tool_use: optional(z.boolean()) }),
  z.object({ type: z.literal("any"), disable_parallel_tool_use: optional(z.boolean()) }),
  z.object({ type: z.literal("tool"), name: toolName, disable_parallel_tool_use: optional(z.boolean()) }),
  z.object({ type: z.literal("none") }),
]);

const thinking = z.discriminatedUnion("type", [
  z.object({ type: z.literal("enabled"), budget_tokens: z.int().min(1).max(TOKENS_MAX) }),
  z.object({ type: z.literal("adaptive") }),
  z.object({ type: z.literal("disabled") }),
]);

const promptFields = ({ messages, tools }: ServerLimits) => ({
  model: modelField,
  messages: z.array(messageSchema).min(1).max(messages),
  system: optional(texts),
  tools: optional(z.array(toolSchema).max(tools)),
  tool_choice: optional(toolChoice),
  thinking: optional(thinking),
});

export function messagesRequest(limits: ServerLimits) {
  return z
    .object({
      ...promptFields(limits),
      max_tokens: z.int().min(1).max(TOKENS_MAX),
      stop_sequences: optional(z.array(z.string().min(1)).max(16)),
      stream: optional(z.boolean()),
      temperature: optional(z.number().min(0).max(2)),
      top_p: optional(z.number().gt(0).max(1)),
      top_k: optional(z.int().min(0).max(TOKENS_MAX)),
      output_config: optional(
        z.object({ format: optional(z.object({ type: z.literal("json_schema"), schema: jsonObject })) }),
      ),
    })
    .openapi("MessagesRequest");
}

export type MessagesRequest = z.output<ReturnType<typeof messagesRequest>>;

export function countTokensRequest(limits: ServerLimits) {
  return z.object(promptFields(limits)).openapi("CountTokensRequest");
}

export type PromptFields = z.output<ReturnType<typeof countTokensRequest>>;

export const countTokensSchema = z.object({ input_tokens: z.int() }).openapi("CountTokens");

export const messageAnswerSchema = z
  .object({
    id: z.string(),
    type: z.literal("message"),
    role: z.literal("assistant"),
    model: z.string(),
    content: z.array(
      z.discriminatedUnion("type", [
        textBlock.extend({ citations: z.null() }),
        z.object({ type: z.literal("thinking"), thinking: z.string(), signature: z.string() }),
        z.object({ type: z.literal("tool_use"), id: z.string(), name: z.string(), input: jsonObject }),
      ]),
    ),
    stop_reason: z.enum(["end_turn", "max_tokens", "stop_sequence", "tool_use"]),
    stop_sequence: z.string().nullable(),
    usage: z.object({
      input_tokens: z.int(),
      cache_creation_input_tokens: z.int(),
      cache_read_input_tokens: z.int(),
      output_tokens: z.int(),
    }),
  })
  .openapi("Message");
