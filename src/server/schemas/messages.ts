/** Schemas of requests and responses of Anthropic's /v1/messages. */
import { z } from "@hono/zod-openapi";
import type { ServerLimits } from "../limits.ts";
import { EFFORTS } from "../model-options.ts";
import { jsonObject, otherTool, toolName } from "./chat.ts";
import { modelField, optional, otherKind, TOKENS_MAX } from "./fields.ts";

const textBlock = z.object({ type: z.literal("text"), text: z.string() });
const texts = z.union([z.string(), z.array(textBlock)]);

const imageBlock = z.object({
  type: z.literal("image"),
  source: z.looseObject({ type: z.string(), media_type: optional(z.string()) }),
});
const title = { title: optional(z.string()), context: optional(z.string()) };
const documentSource = z.union([
  z.object({ type: z.literal("text"), data: z.string(), media_type: optional(z.string()) }),
  z.object({ type: z.literal("content"), content: z.union([z.string(), z.array(z.union([textBlock, imageBlock]))]) }),
  z.object({ type: z.literal("base64"), media_type: z.string(), data: z.string() }),
  z.looseObject({ type: z.enum(["url", "file"]) }),
]);
const documentBlock = z.object({ type: z.literal("document"), source: documentSource, ...title });
const searchBlock = z.object({
  type: z.literal("search_result"),
  source: z.string(),
  title: z.string(),
  content: z.array(textBlock),
});
const referenceBlock = z.object({ type: z.literal("tool_reference"), tool_name: z.string() });
/** Blocks of unknown types, or of types that a model of text cannot see. */
const unknownBlock = otherKind("text|image|document|search_result|tool_reference|tool_result");

const shownBlock = z.union([textBlock, imageBlock, documentBlock, searchBlock, referenceBlock, unknownBlock]);
export type ShownBlock = z.output<typeof shownBlock>;

/** Known blocks, by type. */
export interface KnownBlocks {
  readonly image: z.output<typeof imageBlock>;
  readonly document: z.output<typeof documentBlock>;
  readonly search_result: z.output<typeof searchBlock>;
  readonly tool_reference: z.output<typeof referenceBlock>;
}

const toolResultBlock = z.object({
  type: z.literal("tool_result"),
  tool_use_id: z.string(),
  content: optional(z.union([z.string(), z.array(shownBlock)])),
  is_error: optional(z.boolean()),
});
const userBlock = z.union([shownBlock, toolResultBlock]);
export type ToolResultBlock = z.output<typeof toolResultBlock>;

const use = { id: z.string(), name: z.string(), input: jsonObject };
/** Results of tools that Anthropic's or MCP servers have run. */
const ranBlock = z.looseObject({ type: z.string().regex(/^[a-z_]+_tool_result$/), tool_use_id: z.string() });
/** Blocks of unknown types, or of types without text for a model. */
const otherBlock = z.looseObject({
  type: z
    .string()
    .regex(/^(?!(?:text|tool_use|server_tool_use|mcp_tool_use|thinking|image)$)(?!.*_tool_result$)[a-z_0-9]{1,64}$/),
});
const assistantBlock = z.union([
  textBlock,
  z.object({ type: z.enum(["tool_use", "server_tool_use", "mcp_tool_use"]), ...use }),
  z.object({ type: z.literal("thinking"), thinking: z.string(), signature: optional(z.string()) }),
  imageBlock,
  ranBlock,
  otherBlock,
]);
export type AssistantBlock = z.output<typeof assistantBlock>;

const messageSchema = z
  .discriminatedUnion("role", [
    z.object({ role: z.literal("user"), content: z.union([z.string(), z.array(userBlock)]) }),
    z.object({ role: z.literal("assistant"), content: z.union([z.string(), z.array(assistantBlock)]) }),
    z.object({ role: z.literal("system"), content: texts }),
  ])
  .openapi("MessageParam");

export type MessageParam = z.output<typeof messageSchema>;

const customTool = z.object({
  type: optional(z.literal("custom")),
  name: toolName,
  description: optional(z.string()),
  input_schema: jsonObject,
  strict: optional(z.boolean()),
});
const toolSchema = z.union([customTool, otherTool("custom")]);

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
  output_config: optional(
    z.object({
      effort: optional(z.enum(EFFORTS)),
      format: optional(z.object({ type: z.literal("json_schema"), schema: jsonObject })),
    }),
  ),
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
        textBlock,
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
