/** What the page is doing, and what can be used meanwhile. */
import { type Conversation, type ConversationStore, newConversation } from "./conversations.ts";
import { find } from "./dom.ts";
import type { ChatModel } from "./engine.ts";

export const page = {
  model: null as ChatModel | null,
  conversation: newConversation() as Conversation,
  store: null as ConversationStore | null,
  /** Conversations that were deleted, of which an answer may still be ending. */
  deleted: new Set<string>(),
  /** Ends the load or the answer that runs. */
  running: null as AbortController | null,
};

export type Doing = "empty" | "loading" | "ready" | "answering";
let doing: Doing = "empty";

export const isReady = () => doing === "ready";
export const isAnswering = () => doing === "answering";

/** What can be used now. */
export function show(now: Doing): void {
  doing = now;
  find<HTMLTextAreaElement>("input").disabled = now === "empty" || now === "loading";
  find<HTMLButtonElement>("send").disabled = now !== "ready";
  find("send").hidden = now === "answering";
  find("stop").hidden = now !== "answering";
  find("loading").hidden = now !== "loading";
  find<HTMLButtonElement>("fetch").disabled = now === "loading";
  document.body.dataset.doing = now;
}

/** Shows the models to choose from, or the conversation. */
export function showStart(isShown: boolean): void {
  find("start").hidden = !isShown;
  find("messages").hidden = isShown;
  find("model").ariaExpanded = `${isShown}`;
}
