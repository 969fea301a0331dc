/** Converts OpenAI's messages, tools and fields to the library's. */
import type { ChatOptions } from "../language/chat-options.ts";
import type { AssistantMessage, Message, ToolCall, ToolChoice } from "../text/chat-messages.ts";
import {
  contentText,
  dataType,
  filePart,
  otherPart,
  type Part,
  type Place,
  systemText,
  type UnseenPolicy,
} from "./contents.ts";
import { ApiError } from "./errors.ts";
import { customArguments, OfferedTools } from "./offered-tools.ts";
import { samplingOptions } from "./sampling.ts";
import type {
  AllowedChatTools,
  ChatMessage,
  ChatRequest,
  ContentPart,
  CustomTool,
  FunctionTool,
  KnownParts,
} from "./schemas/chat.ts";
import { given } from "./schemas/fields.ts";
import type { Warn } from "./warnings.ts";

type Content = string | readonly ContentPart[];

function partOf(part: ContentPart): Part | null {
  if (part.type === "refusal") return (part as KnownParts["refusal"]).refusal;
  if (part.type === "image_url") {
    const { image_url } = part as KnownParts["image_url"];
    return { what: "image", label: dataType(typeof image_url === "string" ? image_url : image_url.url) };
  }
  if (part.type === "input_audio") {
    const { input_audio } = part as KnownParts["input_audio"];
    return { what: "audio", label: input_audio.format ?? "" };
  }
  if (part.type === "file") {
    const { file } = part as KnownParts["file"];
    return filePart(file.filename, file.file_data);
  }
  return isThought(part) ? null : otherPart(part);
}

/** Whether a part of an assistant's message is its thinking, as in Mistral's API. */
function isThought({ type }: ContentPart): boolean {
  return type === "thinking" || type === "reasoning";
}

function thoughtOf(content: Content): string {
  if (typeof content === "string") return "";
  const texts = (value: unknown): string =>
    typeof value === "string" ? value : Array.isArray(value) ? value.map((one) => texts(one?.text)).join("") : "";
  const own = (part: ContentPart) => ("thinking" in part ? part.thinking : (part as { text?: unknown }).text);
  return content.map((part) => (isThought(part) ? texts(own(part)) : "")).join("");
}

export function chatMessages(messages: readonly ChatMessage[], policy: UnseenPolicy): Message[] {
  return messages.map((message, index) => {
    const isNew = message.role === "user" && index === messages.length - 1;
    const textOf = (content: Content) => {
      const place: Place = { path: `messages.${index}.content`, isNew };
      return typeof content === "string" ? content : contentText(content.map(partOf), place, policy);
    };
    return messageOf(message, textOf);
  });
}

function messageOf(message: ChatMessage, textOf: (content: Content) => string): Message {
  if (message.role === "tool")
    return { role: "tool", content: textOf(message.content ?? ""), toolCallId: message.tool_call_id };
  // OpenAI's older form of tools, `functions`: a result names its function and has no id.
  if (message.role === "function")
    return { role: "tool", content: message.content ?? "", toolCallId: message.name, name: message.name };
  if (message.role === "user") return { role: "user", content: textOf(message.content ?? "") };
  if (message.role === "assistant") return assistantMessage(message, textOf);
  const content = message.content ?? "";
  return {
    role: "system",
    content: systemText(typeof content === "string" ? content : content.map((part) => textOf([part]))),
  };
}

function assistantMessage(
  message: ChatMessage & { role: "assistant" },
  textOf: (content: Content) => string,
): AssistantMessage {
  const { content, refusal, tool_calls, function_call } = message;
  const reasoning = message.reasoning_content || message.reasoning || thoughtOf(content ?? "");
  const said = (content ?? null) === null ? (refusal ?? null) : textOf(content!);
  const toolCalls = (tool_calls ?? []).map((call): ToolCall => {
    if (call.type === "custom")
      return { id: call.id, name: call.custom.name, arguments: customArguments(call.custom.input) };
    return { id: call.id, name: call.function.name, arguments: argumentsText(call.function.arguments) };
  });
  if (function_call) {
    const { name, arguments: given } = function_call;
    toolCalls.push({ id: name, name, arguments: argumentsText(given) });
  }
  return {
    role: "assistant",
    content: said,
    ...(reasoning ? { reasoning } : {}),
    ...(toolCalls.length > 0 ? { toolCalls } : {}),
  };
}

function argumentsText(given: string | object | null | undefined): string {
  return typeof given === "string" ? given : given ? JSON.stringify(given) : "";
}

export function chatTools({ tools }: ChatRequest, max: number, warn: Warn): OfferedTools {
  const offered = new OfferedTools(max, warn);
  for (const tool of tools ?? []) {
    if (tool.type === "function") offered.addFunction((tool as FunctionTool).function);
    else if (tool.type === "custom") {
      const { format, ...fields } = (tool as CustomTool).custom;
      const given = format?.type === "grammar" ? ({ type: "grammar", ...format.grammar } as const) : format;
      offered.addCustom({ ...fields, format: given });
    } else offered.leaveOut(tool.type);
  }
  return offered;
}

/** Generation options of a request, except those of thinking, which depend on the model. */
export function chatOptions(request: ChatRequest, tools: OfferedTools): ChatOptions {
  const { tool_choice, logprobs, top_logprobs, max_tokens, max_completion_tokens } = request;
  if (typeof top_logprobs === "number" && !logprobs)
    throw new ApiError(400, "top_logprobs: expected logprobs to be true", { param: "top_logprobs" });
  return {
    ...samplingOptions(request),
    ...given({ maxTokens: max_completion_tokens ?? max_tokens, prediction: predicted(request.prediction) }),
    ...(logprobs ? { logprobs: top_logprobs ?? 0 } : {}),
    ...tools.options(tool_choice ? toolChoiceOf(tool_choice) : null),
  };
}

/** The text of `prediction`, from which drafts are taken; undefined without one. */
function predicted(prediction: ChatRequest["prediction"]): string | undefined {
  const content = prediction?.content;
  return typeof content === "string" ? content : content?.map(({ text }) => text).join("");
}

type Choice = NonNullable<ChatRequest["tool_choice"]>;

function toolChoiceOf(choice: Choice): ToolChoice {
  if (typeof choice === "string") return choice;
  if (choice.type !== "allowed_tools") return { name: chosenName(choice) };
  const { mode, tools } = (choice as AllowedChatTools).allowed_tools;
  return { names: tools.map(chosenName), mode };
}

/** Name of a tool that `tool_choice` names; "" for a kind of tool that is not supported. */
function chosenName(choice: object): string {
  const { function: fn, custom } = choice as { function?: { name: string }; custom?: { name: string } };
  return (fn ?? custom)?.name ?? "";
}
