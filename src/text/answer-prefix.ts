/** Answers that the caller has begun: the model continues the last message of the conversation. */
import type { AssistantMessage, Message } from "./chat-messages.ts";
import { CHANNEL_ANSWER, CHANNEL_CLOSE, CHANNEL_THINKING, hasChannels, thinkingTags } from "./thinking.ts";

/** The message that the answer continues; null where the last one is not the model's, is empty or calls tools. */
export function answerPrefix(messages: readonly Message[]): AssistantMessage | null {
  const last = messages.at(-1);
  return last?.role === "assistant" && !last.toolCalls?.length && (last.content || last.reasoning) ? last : null;
}

/** Whether the model continues thinking rather than text. */
export function goesOnThinking({ content, reasoning }: AssistantMessage): boolean {
  return !content && Boolean(reasoning);
}

/**
 * Texts to append to a prompt that ends where an answer begins: the model's tags at even indices, the message's texts at odd
 * ones. Thinking that the prompt has opened is closed before text.
 */
export function prefixParts(message: AssistantMessage, prompt: string, template: string): string[] {
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
