/** From OpenAI's messages, tools and fields to the library's. */
import type { ChatOptions } from "../language/chat-options.ts";
import type { Message, Tool, ToolChoice } from "../text/chat-messages.ts";
import { ApiError } from "./errors.ts";
import { samplingOptions } from "./sampling.ts";
import type { ChatMessage, ChatRequest } from "./schemas/chat.ts";
import { given } from "./schemas/fields.ts";

type Content = string | readonly { readonly text: string }[];

export function textOf(content: Content): string {
  return typeof content === "string" ? content : content.map(({ text }) => text).join("");
}

export function chatMessages(messages: readonly ChatMessage[]): Message[] {
  return messages.map((message): Message => {
    if (message.role === "tool")
      return { role: "tool", content: textOf(message.content), toolCallId: message.tool_call_id };
    if (message.role === "user") return { role: "user", content: textOf(message.content) };
    if (message.role !== "assistant") return { role: "system", content: textOf(message.content) };
    const { content, reasoning_content, tool_calls } = message;
    const toolCalls = tool_calls?.map(({ id, function: { name, arguments: text } }) => ({ id, name, arguments: text }));
    return {
      role: "assistant",
      content: (content ?? null) === null ? null : textOf(content!),
      ...(reasoning_content ? { reasoning: reasoning_content } : {}),
      ...(toolCalls?.length ? { toolCalls } : {}),
    };
  });
}

interface FunctionFields {
  readonly name: string;
  readonly description?: string | null | undefined;
  readonly parameters?: object | null | undefined;
  readonly strict?: boolean | null | undefined;
}

export function toolOf({ name, description, parameters, strict }: FunctionFields): Tool {
  return { name, ...given({ description, parameters, strict }) };
}

/** How a request thinks: an effort, a budget, or as the template has it. */
export function thinkingOf(effort: string | null | undefined, budget?: number | null): Partial<ChatOptions> {
  if (typeof budget === "number") return { thinking: { budget } };
  if (effort === "none") return { thinking: false };
  return effort ? { templateOptions: { reasoning_effort: effort } } : {};
}

export function chatOptions(request: ChatRequest): ChatOptions {
  const { tools, tool_choice, logprobs, top_logprobs, max_tokens, max_completion_tokens } = request;
  if (typeof top_logprobs === "number" && !logprobs)
    throw new ApiError(400, "top_logprobs: expected logprobs to be true", { param: "top_logprobs" });
  const { templateOptions, ...thinking } = thinkingOf(request.reasoning_effort, request.thinking_budget);
  const variables = { ...templateOptions, ...request.chat_template_kwargs };
  return {
    ...samplingOptions(request),
    ...given({ maxTokens: max_completion_tokens ?? max_tokens }),
    ...(logprobs ? { logprobs: top_logprobs ?? 0 } : {}),
    ...(tools?.length ? { tools: tools.map((tool) => toolOf(tool.function)) } : {}),
    ...(tool_choice ? { toolChoice: toolChoiceOf(tool_choice) } : {}),
    ...thinking,
    ...(Object.keys(variables).length > 0 ? { templateOptions: variables } : {}),
  };
}

function toolChoiceOf(choice: NonNullable<ChatRequest["tool_choice"]>): ToolChoice {
  return typeof choice === "string" ? choice : { name: choice.function.name };
}
