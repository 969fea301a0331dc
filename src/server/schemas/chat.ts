/** Requests and answers of /v1/chat/completions. */
import { z } from "@hono/zod-openapi";
import type { ServerLimits } from "../limits.ts";
import {
  modelField,
  optional,
  otherConstraints,
  samplingFields,
  streamFields,
  TOKENS_MAX,
  usageSchema,
} from "./fields.ts";

const textPart = z.object({ type: z.literal("text"), text: z.string() });
const content = z.union([z.string(), z.array(textPart).min(1)]);
export const toolName = z.string().regex(/^[\w.-]{1,128}$/);
export const jsonObject = z.record(z.string(), z.unknown());

const callSchema = z.object({
  id: z.string(),
  type: z.literal("function"),
  function: z.object({ name: z.string(), arguments: z.string() }),
});

const messageSchema = z
  .discriminatedUnion("role", [
    z.object({ role: z.literal("system"), content, name: optional(z.string()) }),
    z.object({ role: z.literal("developer"), content, name: optional(z.string()) }),
    z.object({ role: z.literal("user"), content, name: optional(z.string()) }),
    z.object({
      role: z.literal("assistant"),
      content: optional(content),
      reasoning_content: optional(z.string()),
      tool_calls: optional(z.array(callSchema)),
      name: optional(z.string()),
    }),
    z.object({ role: z.literal("tool"), content, tool_call_id: z.string() }),
  ])
  .openapi("ChatMessage");

export type ChatMessage = z.output<typeof messageSchema>;

const toolSchema = z
  .object({
    type: z.literal("function"),
    function: z.object({
      name: toolName,
      description: optional(z.string()),
      parameters: optional(jsonObject),
      strict: optional(z.boolean()),
    }),
  })
  .openapi("ChatTool");

const toolChoice = z.union([
  z.enum(["none", "auto", "required"]),
  z.object({ type: z.literal("function"), function: z.object({ name: toolName }) }),
]);

const responseFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object") }),
  z.object({
    type: z.literal("json_schema"),
    json_schema: z.object({
      name: optional(z.string()),
      description: optional(z.string()),
      schema: optional(jsonObject),
      strict: optional(z.boolean()),
    }),
  }),
]);

/** What an answer must be, as vLLM writes it: one of its fields. */
export const structuredOutputs = z.object({
  json: optional(z.union([jsonObject, z.string()])),
  regex: optional(z.string().min(1)),
  choice: optional(z.array(z.string().min(1)).min(1).max(1024)),
  grammar: optional(z.string().min(1)).openapi({ description: "EBNF with a rule root." }),
});
export type StructuredOutputs = z.output<typeof structuredOutputs>;

export const reasoningEffort = z.enum(["none", "minimal", "low", "medium", "high", "xhigh"]);

export function chatRequest({ choices, messages, tools }: ServerLimits) {
  return z
    .object({
      model: modelField,
      messages: z.array(messageSchema).min(1).max(messages),
      max_tokens: optional(z.int().min(1).max(TOKENS_MAX)),
      max_completion_tokens: optional(z.int().min(1).max(TOKENS_MAX)),
      n: optional(z.int().min(1).max(choices)),
      logprobs: optional(z.boolean()),
      top_logprobs: optional(z.int().min(0).max(20)),
      tools: optional(z.array(toolSchema).max(tools)),
      tool_choice: optional(toolChoice),
      parallel_tool_calls: optional(z.boolean()),
      response_format: optional(responseFormat),
      structured_outputs: optional(structuredOutputs),
      ...otherConstraints,
      reasoning_effort: optional(reasoningEffort),
      thinking_budget: optional(z.int().min(0).max(TOKENS_MAX)).openapi({
        description: "Tokens after which the model's thinking ends; 0 turns it off.",
      }),
      chat_template_kwargs: optional(jsonObject).openapi({
        description: "Variables of the chat template, such as enable_thinking.",
      }),
      ...samplingFields,
      ...streamFields,
    })
    .openapi("ChatRequest");
}

export type ChatRequest = z.output<ReturnType<typeof chatRequest>>;

const tokenLogprob = z.object({ token: z.string(), logprob: z.number(), bytes: z.array(z.int()).nullable() });

export const chatSchema = z
  .object({
    id: z.string(),
    object: z.literal("chat.completion"),
    created: z.int(),
    model: z.string(),
    choices: z.array(
      z.object({
        index: z.int(),
        message: z.object({
          role: z.literal("assistant"),
          content: z.string().nullable(),
          refusal: z.null(),
          reasoning_content: z.string().optional(),
          tool_calls: z.array(callSchema).optional(),
        }),
        logprobs: z
          .object({
            content: z.array(tokenLogprob.extend({ top_logprobs: z.array(tokenLogprob) })),
            refusal: z.null(),
          })
          .nullable(),
        finish_reason: z.enum(["stop", "length", "tool_calls"]),
      }),
    ),
    usage: usageSchema,
  })
  .openapi("ChatCompletion");
