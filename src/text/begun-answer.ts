/** Answers that are begun for a model: it goes on with what the last message of a conversation says. */
import type { AssistantMessage, Message } from "./chat-messages.ts";
import { CHANNEL_ANSWER, CHANNEL_CLOSE, CHANNEL_THINKING, hasChannels, thinkingTags } from "./thinking.ts";

/** The message that an answer goes on with; null where the last one is not the model's, says nothing or calls tools. */
export function begunAnswer(messages: readonly Message[]): AssistantMessage | null {
  const last = messages.at(-1);
  return last?.role === "assistant" && !last.toolCalls?.length && (last.content || last.reasoning) ? last : null;
}

/** Whether the model goes on thinking. */
export function goesOnThinking({ content, reasoning }: AssistantMessage): boolean {
  return !content && Boolean(reasoning);
}

/**
 * What follows a prompt that ends where an answer begins: tags of the model, at even places, and texts of the message.
 * Thinking that the prompt has opened is closed in front of text.
 */
export function beginningOf(message: AssistantMessage, prompt: string, template: string): string[] {
  const { content, reasoning = "" } = message;
  const text = content ?? "";
  const tags = hasChannels(template) ? null : thinkingTags(template);
  if (hasChannels(template)) {
    const thought = reasoning === "" ? [] : [CHANNEL_THINKING, reasoning];
    return text === "" ? thought : [...thought, reasoning === "" ? CHANNEL_ANSWER : CHANNEL_CLOSE, text];
  }
  const isOpen = tags !== null && prompt.trimEnd().endsWith(tags.begin);
  if (!tags || (reasoning === "" && !isOpen)) return ["", text];
  const thought = [isOpen ? "" : tags.begin, reasoning];
  return text === "" ? thought : [...thought, tags.close, text];
}
