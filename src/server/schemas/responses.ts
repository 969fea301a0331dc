/** Schemas of requests and responses of /v1/responses. */
import { z } from "@hono/zod-openapi";
import type { ServerLimits } from "../limits.ts";
import { functionFields, grammarSyntax, jsonObject, otherTool, reasoningEffort, toolName } from "./chat.ts";
import { modelField, optional, otherKind, samplingFields, TOKENS_MAX } from "./fields.ts";

const textPart = z.object({ type: z.enum(["input_text", "output_text", "text", "summary_text"]), text: z.string() });
const refusalPart = z.object({ type: z.literal("refusal"), refusal: z.string() });
const imagePart = z.object({
  type: z.enum(["input_image", "computer_screenshot"]),
  image_url: optional(z.string()),
  file_id: optional(z.string()),
});
const filePart = z.object({
  type: z.literal("input_file"),
  filename: optional(z.string()),
  file_data: optional(z.string()),
  file_url: optional(z.string()),
  file_id: optional(z.string()),
});
const audioPart = z.object({
  type: z.literal("input_audio"),
  input_audio: z.looseObject({ format: optional(z.string()) }),
});
const knownParts = [...textPart.shape.type.options, "refusal", ...imagePart.shape.type.options, "input_file"];
const contentPart = z.union([
  textPart,
  refusalPart,
  imagePart,
  filePart,
  audioPart,
  otherKind([...knownParts, "input_audio"].join("|")),
]);
export type ResponsePart = z.output<typeof contentPart>;

/** Known content parts, by type. */
export interface KnownResponseParts {
  readonly refusal: z.output<typeof refusalPart>;
  readonly input_image: z.output<typeof imagePart>;
  readonly input_file: z.output<typeof filePart>;
  readonly input_audio: z.output<typeof audioPart>;
}
const content = z.union([z.string(), z.array(contentPart)]);

const id = optional(z.string());
const messageItem = z.object({
  type: optional(z.literal("message")),
  id,
  role: z.enum(["user", "assistant", "system", "developer"]),
  content: optional(content),
});
const callItem = z.object({
  type: z.literal("function_call"),
  id,
  call_id: z.string(),
  namespace: optional(z.string()),
  name: z.string(),
  arguments: z.string(),
});
const customCallItem = z.object({
  type: z.literal("custom_tool_call"),
  id,
  call_id: z.string(),
  namespace: optional(z.string()),
  name: z.string(),
  input: z.string(),
});
const resultItem = z.object({
  type: z.enum(["function_call_output", "custom_tool_call_output"]),
  id,
  call_id: z.string(),
  output: optional(content),
});
/** Calls of tools that clients have run without the server offering them, and their results. */
const actionItem = z.looseObject({
  type: z.enum(["local_shell_call", "shell_call", "apply_patch_call", "computer_call"]),
  id,
  call_id: z.string(),
});
const actionResultItem = z.looseObject({
  type: z.enum(["local_shell_call_output", "shell_call_output", "apply_patch_call_output", "computer_call_output"]),
  id,
  call_id: optional(z.string()),
});
const reasoningItem = z.object({
  type: z.literal("reasoning"),
  id,
  summary: optional(z.array(z.object({ type: z.literal("summary_text"), text: z.string() }))),
  content: optional(z.array(z.object({ type: z.enum(["reasoning_text", "text"]), text: z.string() }))),
  encrypted_content: optional(z.string()),
});
const referenceItem = z.object({ type: z.literal("item_reference"), id: z.string() });
const known = [
  "message",
  "function_call",
  "custom_tool_call",
  "function_call_output",
  "custom_tool_call_output",
  ...actionItem.shape.type.options,
  ...actionResultItem.shape.type.options,
  "reasoning",
  "item_reference",
];
/** Calls that other servers have run, such as `web_search_call`, and unknown types. */
const otherItem = otherKind(known.join("|")).extend({ id });

const inputItem = z
  .union([
    callItem,
    customCallItem,
    resultItem,
    actionItem,
    actionResultItem,
    reasoningItem,
    referenceItem,
    messageItem,
    otherItem,
  ])
  .openapi("ResponseInputItem");
export type InputItem = z.output<typeof inputItem>;

/** Known items by type, except those with loose schemas. */
export interface KnownItems {
  readonly message: z.output<typeof messageItem>;
  readonly function_call: z.output<typeof callItem>;
  readonly custom_tool_call: z.output<typeof customCallItem>;
  readonly function_call_output: z.output<typeof resultItem>;
  readonly reasoning: z.output<typeof reasoningItem>;
}

const functionTool = z.object({ type: z.literal("function"), ...functionFields });
const customTool = z.object({
  type: z.literal("custom"),
  name: toolName,
  description: optional(z.string()),
  format: optional(
    z.discriminatedUnion("type", [
      z.object({ type: z.literal("text") }),
      z.object({ type: z.literal("grammar"), syntax: grammarSyntax, definition: z.string().min(1) }),
    ]),
  ),
});
const TOOLS = "function|custom|namespace";
const namespaceTool = z.object({
  type: z.literal("namespace"),
  name: z.string().min(1).max(64),
  description: optional(z.string()),
  tools: z.array(z.union([functionTool, customTool, otherTool(TOOLS)])),
});
const toolSchema = z.union([functionTool, customTool, namespaceTool, otherTool(TOOLS)]).openapi("ResponseTool");

const chosenTool = z.union([
  z.object({ type: z.enum(["function", "custom"]), name: toolName, namespace: optional(z.string()) }),
  otherTool("function|custom|allowed_tools"),
]);
const allowedTools = z.object({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: z.array(chosenTool).min(1),
});
export type AllowedTools = z.output<typeof allowedTools>;
const toolChoice = z.union([z.enum(["none", "auto", "required"]), allowedTools, chosenTool]);

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

const promptFields = ({ messages, tools }: ServerLimits) => ({
  model: modelField,
  input: z.union([z.string().min(1), z.array(inputItem).min(1).max(messages)]),
  instructions: optional(z.string()),
  tools: optional(z.array(toolSchema).max(tools)),
  tool_choice: optional(toolChoice),
  parallel_tool_calls: optional(z.boolean()),
  reasoning: optional(z.object({ effort: optional(reasoningEffort), summary: optional(z.string()) })),
  text: optional(z.object({ format: optional(textFormat), verbosity: optional(z.string()) })),
  previous_response_id: optional(z.string().min(1).max(128)),
  conversation: z.null("expected none: give previous_response_id, or the whole conversation in input").optional(),
});

export function inputTokensRequest(limits: ServerLimits) {
  return z.object(promptFields(limits)).openapi("ResponseInputTokensRequest");
}

/** The fields of a request that its prompt depends on. */
export type ResponsePrompt = z.output<ReturnType<typeof inputTokensRequest>>;

export function responseRequest(limits: ServerLimits) {
  return z
    .object({
      ...promptFields(limits),
      max_output_tokens: optional(z.int().min(1).max(TOKENS_MAX)),
      ...samplingFields,
      stream: optional(z.boolean()),
      store: optional(z.boolean()).openapi({ description: "Whether the response may be gone on from. Default: true." }),
      metadata: optional(z.record(z.string(), z.string())),
      background: optional(z.literal(false, "expected false: answers come with the request")),
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

export const inputTokensSchema = z
  .object({ object: z.literal("response.input_tokens"), input_tokens: z.int() })
  .openapi("ResponseInputTokens");

export const itemListSchema = z
  .object({
    object: z.literal("list"),
    data: z.array(z.looseObject({ id: z.string(), type: z.string() })),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.literal(false),
  })
  .openapi("ResponseItemList");

export const deletedSchema = z
  .object({ id: z.string(), object: z.literal("response"), deleted: z.literal(true) })
  .openapi("DeletedResponse");
