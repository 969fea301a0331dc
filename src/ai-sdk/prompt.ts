/** Converts the AI SDK's messages to the library's. */
import type {
  LanguageModelV3FilePart,
  LanguageModelV3Message,
  LanguageModelV3Prompt,
  LanguageModelV3ToolResultPart,
} from "@ai-sdk/provider";
import { UnsupportedError } from "../errors.ts";
import { jsonText } from "../json-text.ts";
import { type AssistantMessage, joinedTexts, type Message, type ToolMessage } from "../text/chat-messages.ts";

/** The messages of a prompt. UnsupportedError names a part that is not text. */
export function messagesOf(prompt: LanguageModelV3Prompt): Message[] {
  return prompt.flatMap((message, index): Message[] => {
    const at = `prompt[${index}].content`;
    if (message.role === "system") return [message];
    if (message.role === "user") return [{ role: "user", content: userText(message.content, at) }];
    if (message.role === "assistant") return assistantMessages(message.content, at);
    return message.content.flatMap((part, i) => (part.type === "tool-result" ? toolMessage(part, `${at}[${i}]`) : []));
  });
}

type Content<Role extends LanguageModelV3Message["role"]> = (LanguageModelV3Message & { role: Role })["content"];

function userText(content: Content<"user">, at: string): string {
  return content.map((part, i) => (part.type === "text" ? part.text : fileText(part, `${at}[${i}]`))).join("");
}

/** The text of an attached text file. */
function fileText({ data, mediaType }: LanguageModelV3FilePart, at: string): string {
  if (!mediaType.startsWith("text/") || data instanceof URL)
    throw new UnsupportedError(`${at}: expected text but found ${data instanceof URL ? data : mediaType}`);
  // Version 7 of the SDK also has plain texts.
  const { text } = data as { readonly text?: unknown };
  if (typeof text === "string") return text;
  return typeof data === "string" ? Buffer.from(data, "base64").toString() : new TextDecoder().decode(data);
}

/** An assistant's message, and a message for each result of a tool that its provider has run. */
function assistantMessages(content: Content<"assistant">, at: string): Message[] {
  const texts = { text: "", reasoning: "" };
  const toolCalls = [];
  const results: ToolMessage[] = [];
  for (const [i, part] of content.entries()) {
    if (part.type === "text" || part.type === "reasoning")
      texts[part.type] = isApart(content[i - 1])
        ? joinedTexts(texts[part.type], part.text)
        : texts[part.type] + part.text;
    else if (part.type === "file") texts.text += fileText(part, `${at}[${i}]`);
    else if (part.type === "tool-result") results.push(toolMessage(part, `${at}[${i}]`));
    else {
      // For tool calls whose arguments were no JSON, the SDK keeps the text.
      const text = typeof part.input === "string" ? part.input : jsonText(part.input ?? {});
      toolCalls.push({ id: part.toolCallId, name: part.toolName, arguments: text });
    }
  }
  const message: AssistantMessage = {
    role: "assistant",
    content: texts.text === "" && toolCalls.length > 0 ? null : texts.text,
    ...(texts.reasoning !== "" && { reasoning: texts.reasoning }),
    ...(toolCalls.length > 0 && { toolCalls }),
  };
  return [message, ...results];
}

/** Whether what follows a part is separate from the text before it. */
function isApart(part: Content<"assistant">[number] | undefined): boolean {
  return part !== undefined && part.type !== "text" && part.type !== "file";
}

function toolMessage({ toolCallId, toolName, output }: LanguageModelV3ToolResultPart, at: string): ToolMessage {
  return { role: "tool", content: outputText(output, at), toolCallId, name: toolName };
}

function outputText(output: LanguageModelV3ToolResultPart["output"], at: string): string {
  switch (output.type) {
    case "text":
    case "error-text":
      return output.value;
    case "json":
    case "error-json":
      return jsonText(output.value);
    case "execution-denied":
      return output.reason ?? "The user did not let the tool run.";
    case "content":
      return output.value
        .map((part, i) => {
          if (part.type === "text") return part.text;
          throw new UnsupportedError(`${at}.output.value[${i}]: expected text but found ${part.type}`);
        })
        .join("");
  }
}
