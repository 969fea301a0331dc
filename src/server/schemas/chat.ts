/** Schemas of requests and responses of /v1/chat/completions. */
import { z } from "@hono/zod-openapi";
import type { ServerLimits } from "../limits.ts";
import { EFFORTS } from "../model-options.ts";
import {
  modelField,
  optional,
  otherConstraints,
  otherKind,
  samplingFields,
  streamFields,
  TOKENS_MAX,
  usageSchema,
} from "./fields.ts";

export const toolName = z.string().regex(/^[\w.-]{1,128}$/);
export const jsonObject = z.record(z.string(), z.unknown());

const textPart = z.object({ type: z.literal("text"), text: z.string() });
const refusalPart = z.object({ type: z.literal("refusal"), refusal: z.string() });
const imagePart = z.object({
  type: z.literal("image_url"),
  image_url: z.union([z.string(), z.object({ url: z.string() })]),
});
const audioPart = z.object({
  type: z.literal("input_audio"),
  input_audio: z.object({ data: z.string(), format: optional(z.string()) }),
});
const filePart = z.object({
  type: z.literal("file"),
  file: z.object({ filename: optional(z.string()), file_data: optional(z.string()) }),
});
/** Content parts of other kinds, which other servers accept; a part with text is read as text. */
const otherPart = otherKind("text|refusal|image_url|input_audio|file");
const contentPart = z.union([textPart, refusalPart, imagePart, audioPart, filePart, otherPart]);
const content = z.union([z.string(), z.array(contentPart)]);
export type ContentPart = z.output<typeof contentPart>;

/** Known content parts, by type. */
export interface KnownParts {
  readonly text: z.output<typeof textPart>;
  readonly refusal: z.output<typeof refusalPart>;
  readonly image_url: z.output<typeof imagePart>;
  readonly input_audio: z.output<typeof audioPart>;
  readonly file: z.output<typeof filePart>;
}

const callSchema = z.discriminatedUnion("type", [
  z.object({
    id: z.string(),
    type: z.literal("function"),
    function: z.object({ name: z.string(), arguments: z.string() }),
  }),
  z.object({ id: z.string(), type: z.literal("custom"), custom: z.object({ name: z.string(), input: z.string() }) }),
]);

/** Arguments of a tool call: JSON text, or the object that some clients have parsed. */
const callArguments = optional(z.union([z.string(), jsonObject]));
/** A tool call in an earlier message; some clients leave its type out. */
const saidCall = z.union([
  z.object({
    id: z.string(),
    type: optional(z.literal("function")),
    function: z.object({ name: z.string(), arguments: callArguments }),
  }),
  z.object({ id: z.string(), type: z.literal("custom"), custom: z.object({ name: z.string(), input: z.string() }) }),
]);

const messageSchema = z
  .discriminatedUnion("role", [
    z.object({ role: z.literal("system"), content: optional(content), name: optional(z.string()) }),
    z.object({ role: z.literal("developer"), content: optional(content), name: optional(z.string()) }),
    z.object({ role: z.literal("user"), content: optional(content), name: optional(z.string()) }),
    z.object({
      role: z.literal("assistant"),
      content: optional(content),
      refusal: optional(z.string()),
      reasoning_content: optional(z.string()),
      reasoning: optional(z.string()).openapi({ description: "As reasoning_content." }),
      tool_calls: optional(z.array(saidCall)),
      function_call: optional(z.object({ name: z.string(), arguments: callArguments })),
      name: optional(z.string()),
    }),
    z.object({ role: z.literal("tool"), content: optional(content), tool_call_id: z.string() }),
    z.object({ role: z.literal("function"), content: optional(z.string()), name: z.string() }),
  ])
  .openapi("ChatMessage");

export type ChatMessage = z.output<typeof messageSchema>;

/** Syntaxes of grammars for tools with text input. */
export const grammarSyntax = z.enum(["lark", "regex"]);

/** Tools of other types, which other servers run: left out. */
export function otherTool(known: string) {
  return otherKind(known).openapi({
    description: "A tool of a kind that this server cannot run: left out, with a warning.",
  });
}

/** A function tool, as both of OpenAI's APIs have it. */
export const functionFields = {
  name: toolName,
  description: optional(z.string()),
  parameters: optional(jsonObject),
  strict: optional(z.boolean()),
};
const functionTool = z.object({ type: z.literal("function"), function: z.object(functionFields) });
const customTool = z.object({
  type: z.literal("custom"),
  custom: z.object({
    name: toolName,
    description: optional(z.string()),
    format: optional(
      z.discriminatedUnion("type", [
        z.object({ type: z.literal("text") }),
        z.object({
          type: z.literal("grammar"),
          grammar: z.object({ syntax: grammarSyntax, definition: z.string().min(1) }),
        }),
      ]),
    ),
  }),
});
const toolSchema = z.union([functionTool, customTool, otherTool("function|custom")]).openapi("ChatTool");
export type FunctionTool = z.output<typeof functionTool>;
export type CustomTool = z.output<typeof customTool>;

const named = z.object({ name: toolName });
const chosenTool = z.union([
  z.object({ type: z.literal("function"), function: named }),
  z.object({ type: z.literal("custom"), custom: named }),
  otherTool("function|custom|allowed_tools"),
]);
const allowedTools = z.object({
  type: z.literal("allowed_tools"),
  allowed_tools: z.object({ mode: z.enum(["auto", "required"]), tools: z.array(chosenTool).min(1) }),
});
export type AllowedChatTools = z.output<typeof allowedTools>;
const toolChoice = z.union([z.enum(["none", "auto", "required"]), allowedTools, chosenTool]);

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

/** Structured output in vLLM's form; one of its fields is given. */
export const structuredOutputs = z.object({
  json: optional(z.union([jsonObject, z.string()])),
  regex: optional(z.string().min(1)),
  choice: optional(z.array(z.string().min(1)).min(1).max(1024)),
  grammar: optional(z.string().min(1)).openapi({ description: "EBNF with a rule root." }),
});
export type StructuredOutputs = z.output<typeof structuredOutputs>;

export const reasoningEffort = z.enum(EFFORTS);

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
      prediction: optional(
        z.object({ type: z.literal("content"), content: z.union([z.string(), z.array(textPart)]) }),
      ).openapi({
        description: "A text that the answer resembles, which makes it come faster; the answer is the same.",
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
