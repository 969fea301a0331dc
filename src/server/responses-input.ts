/** Converts items and fields of OpenAI's Responses API to the library's messages and options. */
import type { ChatOptions } from "../language/chat-options.ts";
import type { Message, ToolChoice } from "../text/chat-messages.ts";
import { joinedAnswers } from "../text/template-turns.ts";
import { contentText, dataType, filePart, otherPart, type Part, systemText, type UnseenPolicy } from "./contents.ts";
import { customArguments, OfferedTools, qualified } from "./offered-tools.ts";
import { samplingOptions } from "./sampling.ts";
import { given } from "./schemas/fields.ts";
import type {
  AllowedTools,
  InputItem,
  KnownItems,
  KnownResponseParts,
  ResponsePart,
  ResponsePrompt,
  ResponseRequest,
} from "./schemas/responses.ts";
import type { Warn } from "./warnings.ts";

/** How items are read. */
export interface ItemReading {
  readonly policy: UnseenPolicy;
  readonly warn: Warn;
}

/** Converts items to a conversation, including those of earlier responses. */
export function conversationOf(
  instructions: string | null,
  items: readonly InputItem[],
  reading: ItemReading,
): Message[] {
  const first: Message[] = instructions ? [{ role: "system", content: systemText(instructions) }] : [];
  const messages = items.flatMap((item, index) => messagesOf(item, index, items.length, reading));
  return joined([...first, ...messages]);
}

function messagesOf(item: InputItem, index: number, count: number, { policy, warn }: ItemReading): Message[] {
  const path = `input.${index}`;
  const textOf = (content: string | readonly ResponsePart[], at: string, isNew = false) =>
    typeof content === "string" ? content : contentText(content.map(partOf), { path: `${path}.${at}`, isNew }, policy);
  switch (item.type ?? "message") {
    case "message": {
      const { role, content: given } = item as KnownItems["message"];
      const content = given ?? "";
      if (role === "assistant") return [{ role, content: textOf(content, "content") }];
      const text = textOf(content, "content", role === "user" && index === count - 1);
      return [role === "user" ? { role, content: text } : { role: "system", content: systemText(text) }];
    }
    case "function_call": {
      const { call_id, namespace, name, arguments: text } = item as KnownItems["function_call"];
      return [calling(call_id, qualified(name, namespace), text)];
    }
    case "custom_tool_call": {
      const { call_id, namespace, name, input } = item as KnownItems["custom_tool_call"];
      return [calling(call_id, qualified(name, namespace), customArguments(input))];
    }
    case "function_call_output":
    case "custom_tool_call_output": {
      const { call_id, output } = item as KnownItems["function_call_output"];
      return [{ role: "tool", content: textOf(output ?? "", "output"), toolCallId: call_id }];
    }
    case "reasoning": {
      const { content, summary } = item as KnownItems["reasoning"];
      const thought = (content?.length ? content : (summary ?? [])).map(({ text }) => text).join("");
      return [{ role: "assistant", content: null, reasoning: thought }];
    }
    default:
      return otherMessages(item as { type: string } & Record<string, unknown>, warn);
  }
}

function calling(id: string, name: string, text: string): Message {
  return { role: "assistant", content: null, toolCalls: [{ id, name, arguments: text }] };
}

function partOf(part: ResponsePart): Part | null {
  switch (part.type) {
    case "refusal":
      return (part as KnownResponseParts["refusal"]).refusal;
    case "input_image":
    case "computer_screenshot": {
      const { image_url } = part as KnownResponseParts["input_image"];
      return { what: "image", label: dataType(image_url ?? "") };
    }
    case "input_file": {
      const { filename, file_data } = part as KnownResponseParts["input_file"];
      return filePart(filename, file_data);
    }
    case "input_audio":
      return { what: "audio", label: (part as KnownResponseParts["input_audio"]).input_audio.format ?? "" };
    // Encrypted content can be read only by the server that wrote it.
    case "encrypted_content":
      return null;
    default:
      return otherPart(part);
  }
}

/**
 * Messages of tool calls that the client or another server has run, by the type of their items; other types are left out.
 */
function otherMessages({ type, ...item }: { type: string } & Record<string, unknown>, warn: Warn): Message[] {
  const id = String(item.call_id ?? item.id ?? type);
  if (/^(?:local_shell|shell|apply_patch|computer)_call$/.test(type)) {
    const action = item.action ?? item.operation ?? item.actions ?? {};
    return [calling(id, type.replace(/_call$/, ""), JSON.stringify(action))];
  }
  if (/^(?:local_shell|shell|apply_patch|computer)_call_output$/.test(type))
    return [{ role: "tool", content: actionResult(item.output), toolCallId: id }];
  if (type === "mcp_call") {
    const result = item.output ?? item.error ?? "";
    const text = typeof item.arguments === "string" ? item.arguments : "{}";
    return [calling(id, String(item.name ?? type), text), { role: "tool", content: stringOf(result), toolCallId: id }];
  }
  if (type === "code_interpreter_call") {
    const content = stringOf(item.outputs ?? item.results ?? "");
    return [
      calling(id, "code_interpreter", JSON.stringify({ code: item.code ?? "" })),
      { role: "tool", content, toolCallId: id },
    ];
  }
  warn(`items of type ${type} are left out`);
  return [];
}

function stringOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function actionResult(output: unknown): string {
  const { type } = (output ?? {}) as { type?: unknown };
  return type === "computer_screenshot" ? "[image not shown: this model reads no images]" : stringOf(output ?? "");
}

/** Joins consecutive messages of one answer. */
function joined(messages: readonly Message[]): Message[] {
  const result: Message[] = [];
  for (const message of messages) {
    const last = result.at(-1);
    if (message.role === "assistant" && last?.role === "assistant")
      result[result.length - 1] = joinedAnswers(last, message);
    else result.push(message);
  }
  return result;
}

export function responseTools({ tools }: ResponsePrompt, max: number, warn: Warn): OfferedTools {
  const offered = new OfferedTools(max, warn);
  const add = (tool: NonNullable<ResponsePrompt["tools"]>[number], namespace: string | null) => {
    if (tool.type === "function") offered.addFunction(tool as Parameters<typeof offered.addFunction>[0], namespace);
    else if (tool.type === "custom") offered.addCustom(tool as Parameters<typeof offered.addCustom>[0], namespace);
    else if (tool.type === "namespace" && namespace === null)
      for (const inner of (tool as { tools: readonly (typeof tool)[] }).tools) add(inner, tool.name as string);
    else offered.leaveOut(tool.type);
  };
  for (const tool of tools ?? []) add(tool, null);
  return offered;
}

type Choice = NonNullable<ResponsePrompt["tool_choice"]>;

function toolChoiceOf(choice: Choice): ToolChoice {
  if (typeof choice === "string") return choice;
  if (choice.type !== "allowed_tools") return { name: chosenName(choice) };
  const { tools, mode } = choice as AllowedTools;
  return { names: tools.map(chosenName), mode };
}

/** Name of the chosen tool; "" for a type of tool that is left out. */
function chosenName(choice: object): string {
  const { type, name, namespace } = choice as { type: string; name?: unknown; namespace?: string | null };
  return (type === "function" || type === "custom") && typeof name === "string" ? qualified(name, namespace) : "";
}

/** Options that the prompt depends on, except messages and thinking. */
export function promptOptions(
  { tool_choice }: ResponsePrompt,
  tools: OfferedTools,
): Pick<ChatOptions, "tools" | "toolChoice"> {
  return tools.options(tool_choice ? toolChoiceOf(tool_choice) : null);
}

/** Options of generation, except those of thinking, which depend on the model. */
export function responseOptions(request: ResponseRequest, tools: OfferedTools): ChatOptions {
  return {
    ...samplingOptions(request),
    ...given({ maxTokens: request.max_output_tokens }),
    ...promptOptions(request, tools),
  };
}
