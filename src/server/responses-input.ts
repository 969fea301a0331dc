/** From the items and fields of OpenAI's responses to the library's messages and options. */
import type { ChatOptions } from "../language/chat-options.ts";
import { type AssistantMessage, joinedTexts, type Message } from "../text/chat-messages.ts";
import { textOf, thinkingOf, toolOf } from "./chat-input.ts";
import { samplingOptions } from "./sampling.ts";
import { given } from "./schemas/fields.ts";
import type { InputItem, ResponseRequest } from "./schemas/responses.ts";

export function conversationOf({ instructions, input }: ResponseRequest): Message[] {
  const first: Message[] = instructions ? [{ role: "system", content: instructions }] : [];
  if (typeof input === "string") return [...first, { role: "user", content: input }];
  return joined([...first, ...input.map(messageOf)]);
}

function messageOf(item: InputItem): Message {
  if (item.type === "function_call_output")
    return { role: "tool", content: textOf(item.output), toolCallId: item.call_id };
  if (item.type === "function_call") {
    const call = { id: item.call_id, name: item.name, arguments: item.arguments };
    return { role: "assistant", content: null, toolCalls: [call] };
  }
  if (item.type === "reasoning")
    return { role: "assistant", content: null, reasoning: (item.content ?? []).map(({ text }) => text).join("") };
  const content = textOf(item.content);
  if (item.role === "user" || item.role === "assistant") return { role: item.role, content };
  return { role: "system", content };
}

/** Items of one answer, which stand in a row, as one message. */
function joined(messages: readonly Message[]): Message[] {
  const result: Message[] = [];
  for (const message of messages) {
    const last = result.at(-1);
    if (message.role === "assistant" && last?.role === "assistant") result[result.length - 1] = join(last, message);
    else result.push(message);
  }
  return result;
}

function join(a: AssistantMessage, b: AssistantMessage): AssistantMessage {
  const reasoning = (a.reasoning ?? "") + (b.reasoning ?? "");
  const toolCalls = [...(a.toolCalls ?? []), ...(b.toolCalls ?? [])];
  return {
    role: "assistant",
    content: a.content === null || b.content === null ? (a.content ?? b.content) : joinedTexts(a.content, b.content),
    ...(reasoning === "" ? {} : { reasoning }),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
  };
}

export function responseOptions(request: ResponseRequest): ChatOptions {
  const { max_output_tokens, tools, tool_choice, reasoning } = request;
  return {
    ...samplingOptions(request),
    ...given({ maxTokens: max_output_tokens }),
    ...(tools?.length ? { tools: tools.map(toolOf) } : {}),
    ...(tool_choice ? { toolChoice: typeof tool_choice === "string" ? tool_choice : { name: tool_choice.name } } : {}),
    ...thinkingOf(reasoning?.effort),
  };
}
