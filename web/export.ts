/** Conversations as files: JSON with all there is, Markdown to read. */
import { type Conversation, textOf } from "./conversations.ts";

/** A conversation as Markdown: who said what, thoughts and tools folded as HTML has it. */
export function markdownOf({ title, system, messages }: Conversation): string {
  const parts = [`# ${title || "Conversation"}`];
  if (system) parts.push("## System", system);
  for (const message of messages) {
    const { role, content, reasoning, toolCalls = [] } = message;
    if (role === "user") parts.push("## You", textOf(message));
    if (role === "tool") parts.push("### Result", fenced(content));
    if (role !== "assistant") continue;
    parts.push("## Model");
    if (reasoning) parts.push(reasoning.replace(/^/gm, "> "));
    if (content) parts.push(content);
    for (const { name, arguments: text } of toolCalls) parts.push(`### Tool: ${name}`, fenced(text));
  }
  return `${parts.join("\n\n")}\n`;
}

/** As code, in more backticks than the text has in a row. */
function fenced(text: string): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map(({ length }) => length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}

/** Lets the reader save a conversation. */
export function download(conversation: Conversation, format: "json" | "md"): void {
  const text = format === "json" ? `${JSON.stringify(conversation, null, 2)}\n` : markdownOf(conversation);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: format === "json" ? "application/json" : "text/markdown" }));
  const name = conversation.title
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-|-$/g, "")
    .slice(0, 40);
  link.download = `${name || "conversation"}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
