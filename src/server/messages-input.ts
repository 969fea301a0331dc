/** From Anthropic's messages, tools and fields to the library's. */

import { valueTexts } from "../json-text.ts";
import type { ChatOptions } from "../language/chat-options.ts";
import { joinedTexts, type Message, type ToolCall, type ToolChoice } from "../text/chat-messages.ts";
import { textOf, toolOf } from "./chat-input.ts";
import { ApiError } from "./errors.ts";
import { given } from "./schemas/fields.ts";
import type { MessageParam, MessagesRequest, PromptFields } from "./schemas/messages.ts";

/**
 * The conversation: results of tools are messages of their own, in front of what the user says beside them. Arguments of
 * calls are those of `text`, the request as it came, with all digits of their numbers.
 */
export function conversationOf({ system, messages }: PromptFields, text: string): Message[] {
  if (messages.at(-1)!.role === "assistant")
    throw new ApiError(400, "messages: expected the last one to be of the user; answers cannot be begun for the model");
  const first: Message[] = system ? [{ role: "system", content: textOf(system) }] : [];
  const inputs = new Map<string, string>();
  for (const { indices, text: input } of valueTexts(text, ["messages", null, "content", null, "input"]))
    inputs.set(indices.join(), input);
  const inputOf = (message: number, block: number) => inputs.get([message, block].join())!;
  return [...first, ...messages.flatMap((message, i) => messagesOf(message, (block) => inputOf(i, block)))];
}

/** Gives the text of the arguments of the call that a block of a message is. */
type InputOf = (block: number) => string;

function messagesOf(message: MessageParam, inputOf: InputOf): Message[] {
  if (message.role === "system") return [{ role: "system", content: textOf(message.content) }];
  if (message.role === "assistant") return [assistantMessage(message, inputOf)];
  const { content } = message;
  if (typeof content === "string") return [{ role: "user", content }];
  const results = content.flatMap((block): Message[] => {
    if (block.type !== "tool_result") return [];
    const text = textOf(block.content ?? "");
    return [{ role: "tool", content: block.is_error ? `Error: ${text}` : text, toolCallId: block.tool_use_id }];
  });
  const text = content.flatMap((block) => (block.type === "text" ? [block.text] : []));
  return text.length === 0 ? results : [...results, { role: "user", content: text.join("\n") }];
}

function assistantMessage({ content }: MessageParam & { role: "assistant" }, inputOf: InputOf): Message {
  if (typeof content === "string") return { role: "assistant", content };
  const toolCalls = content.flatMap((block, index): ToolCall[] =>
    block.type === "tool_use" ? [{ id: block.id, name: block.name, arguments: inputOf(index) }] : [],
  );
  // Blocks of text that nothing parts are one text.
  let text = "";
  let isApart = false;
  for (const block of content) {
    if (block.type !== "text") isApart = true;
    else {
      text = isApart ? joinedTexts(text, block.text) : text + block.text;
      isApart = false;
    }
  }
  const reasoning = content.map((block) => (block.type === "thinking" ? block.thinking : "")).join("");
  return {
    role: "assistant",
    content: text === "" && toolCalls.length > 0 ? null : text,
    ...(reasoning === "" ? {} : { reasoning }),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
  };
}

/** What the prompt depends on beside the messages. Models think only where they are asked to, as the API has it. */
export function promptOptions({ tools, thinking }: PromptFields): Pick<ChatOptions, "tools" | "thinking"> {
  const asked = thinking?.type === "enabled" ? { budget: thinking.budget_tokens } : thinking?.type === "adaptive";
  return {
    ...(thinking?.type === "adaptive" ? {} : { thinking: asked }),
    ...(tools?.length
      ? { tools: tools.map(({ input_schema: parameters, ...tool }) => toolOf({ ...tool, parameters })) }
      : {}),
  };
}

export function answerOptions(request: MessagesRequest): ChatOptions {
  const { temperature, top_p, top_k, stop_sequences, max_tokens, tool_choice } = request;
  return {
    ...promptOptions(request),
    ...given({ temperature, topP: top_p, topK: top_k, stop: stop_sequences }),
    maxTokens: max_tokens,
    ...(tool_choice ? { toolChoice: toolChoiceOf(tool_choice) } : {}),
  };
}

function toolChoiceOf(choice: NonNullable<MessagesRequest["tool_choice"]>): ToolChoice {
  if (choice.type === "tool") return { name: choice.name };
  return choice.type === "any" ? "required" : choice.type;
}

export function takesOneCall({ tool_choice }: MessagesRequest): boolean {
  return (
    tool_choice != null && "disable_parallel_tool_use" in tool_choice && tool_choice.disable_parallel_tool_use === true
  );
}
