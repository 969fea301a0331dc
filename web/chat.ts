/** Questions and answers: asked, stopped, changed, asked again. */
import type { ConversationEvent } from "lowbit/web";
import { type Attachment, type Conversation, messagesOf, type StoredMessage } from "./conversations.ts";
import { find, say } from "./dom.ts";
import type { ChatModel, Ending } from "./engine.ts";
import { focusNext, watchFocus } from "./focus.ts";
import { isRepeating } from "./repetition.ts";
import { readChoices, readSettings, type Settings } from "./settings.ts";
import { isReady, page, show } from "./state.ts";
import { AnswerView, type MessageActions, plainText, showQuestion, showThread } from "./thread.ts";

const input = find<HTMLTextAreaElement>("input");
const messages = find("messages");

/** How often a model may call tools before an answer ends where it calls more. */
const TOOL_ROUNDS = 8;

const TITLE_LENGTH = 60;

const actions: MessageActions = {
  async copy(message) {
    const { copyText } = await import("./clipboard.ts");
    say((await copyText(plainText(message))) ? "Copied" : "Cannot copy: the browser does not allow it");
  },
  async edit(message, shown) {
    const { editMessage } = await import("./edit.ts");
    if (!isReady()) return;
    editMessage(message, shown, (text) => void ask(text, message.attachments, message));
  },
  regenerate(message) {
    const { messages } = page.conversation;
    const index = messages.indexOf(message);
    const question = messages.slice(0, index).findLast(({ role }) => role === "user");
    if (isReady() && question) void ask(question.content, question.attachments, question);
  },
};

/** Shows the conversation that is open. */
export function showConversation(): void {
  showThread(page.conversation.messages, actions);
}

/**
 * Asks a question, at the place of an earlier one where it is one again: what followed that is gone. When nothing comes of
 * it, the conversation is as it was before.
 */
export async function ask(
  text: string,
  attachments: readonly Attachment[] = [],
  earlier?: StoredMessage,
): Promise<void> {
  const { model, conversation } = page;
  if (!model) return;
  const before = conversation.messages;
  const isSame = earlier?.content === text;
  const question: StoredMessage = { role: "user", content: text, ...(attachments.length > 0 && { attachments }) };
  conversation.messages = [...(earlier ? before.slice(0, before.indexOf(earlier)) : before), question];
  const hasTitle = conversation.title !== "";
  if (!hasTitle) conversation.title = titleOf(text || attachments[0]!.name);
  if (earlier) showConversation();
  else showQuestion(question, actions);
  const controller = new AbortController();
  page.running = controller;
  if (earlier) {
    // The button that had the focus is gone.
    input.focus();
    watchFocus();
  }
  show("answering");
  say("Answering");
  // The answer is read out when it is whole, not piece by piece.
  messages.ariaBusy = "true";
  // Before the answer, which may take longer than the page is open.
  await keep(conversation);
  let outcome = "Ready";
  try {
    const ending = await answer(model, conversation, controller.signal);
    outcome = ending.notice ?? "Ready";
  } catch (error) {
    outcome = controller.signal.aborted ? "Stopped" : `Cannot answer: ${(error as Error).message}`;
    if (conversation.messages.at(-1) === question) {
      conversation.messages = before;
      if (!hasTitle) conversation.title = "";
      if (before.length === 0 && conversation.system === "") await forget(conversation);
      if (!earlier || !isSame) giveBack(text, attachments);
      if (page.conversation === conversation) showConversation();
    }
  }
  messages.ariaBusy = "false";
  await keep(conversation);
  if (page.model !== model) return;
  say(outcome);
  show("ready");
  focusNext(input);
}

/** A question that has no answer can be changed and asked again. */
function giveBack(text: string, attachments: readonly Attachment[]): void {
  if (input.value !== "") return;
  input.value = text;
  for (const attachment of attachments) document.dispatchEvent(new CustomEvent("attached", { detail: attachment }));
}

function titleOf(text: string): string {
  const line = text.trim().split("\n")[0]!;
  return line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH - 1)}…` : line;
}

/** Keeps a conversation that has something to keep. */
export async function keep(conversation: Conversation): Promise<void> {
  if (conversation.messages.length === 0 && conversation.system === "") return;
  if (page.deleted.has(conversation.id)) return;
  conversation.changedAt = Date.now();
  await page.store?.put(conversation);
  document.dispatchEvent(new Event("kept"));
}

/** How often an answer that comes is kept: a tab that is closed, or dies, loses no more of it. */
const PART_MS = 1000;

/** Keeps an answer while it comes; `touch` says that more has, `end` that the rest is kept by who asks. */
function keepParts(conversation: Conversation, message: StoredMessage) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const keepNow = () => {
    clearTimeout(timer);
    timer = undefined;
    if (page.deleted.has(conversation.id) || conversation.messages.at(-1) !== message) return;
    // Calls without results would puzzle the model.
    const { toolCalls, ...part } = message;
    void page.store?.putPart({ ...conversation, messages: [...conversation.messages.slice(0, -1), part] });
  };
  const ending = new AbortController();
  const { signal } = ending;
  addEventListener("pagehide", keepNow, { signal });
  document.addEventListener("visibilitychange", keepNow, { signal });
  return {
    touch() {
      timer ??= setTimeout(keepNow, PART_MS);
    },
    end() {
      clearTimeout(timer);
      ending.abort();
    },
  };
}

async function forget({ id }: Conversation): Promise<void> {
  await page.store?.delete(id);
  document.dispatchEvent(new Event("kept"));
}

const REPEATING =
  "Stopped: the answer repeats itself. A repetition penalty or a higher temperature, in the settings, may help";

/** Answers until the model calls no more tools, or the answer repeats itself. */
async function answer(
  model: ChatModel,
  conversation: Conversation,
  signal: AbortSignal,
): Promise<Pick<Ending, "notice">> {
  const settings: Settings = readSettings();
  const { thinking, hasTools, servers } = readChoices();
  const hasAny = hasTools || servers.length > 0;
  const toolbox = hasAny ? await (await import("./toolbox.ts")).openToolbox(hasTools, servers) : null;
  for (let round = 0; ; round++) {
    const sent = messagesOf(conversation);
    const message: StoredMessage = { role: "assistant", content: "" };
    const view = new AnswerView(message, actions);
    const parts = keepParts(conversation, message);
    const repetition = new AbortController();
    const stop = AbortSignal.any([signal, repetition.signal]);
    const events = model.answer(sent, { settings, thinking, tools: toolbox?.tools ?? [], signal: stop });
    let ending: Ending;
    try {
      ending = await read(events, (event) => {
        if (conversation.messages.at(-1) !== message) conversation.messages.push(message);
        view.add(event);
        parts.touch();
        if (isRepeating(message.content) || isRepeating(message.reasoning ?? "")) repetition.abort();
      });
      if (conversation.messages.at(-1) !== message) conversation.messages.push(message);
    } catch (error) {
      // Calls without results would puzzle the model.
      delete message.toolCalls;
      if (signal.aborted || !repetition.signal.aborted) throw error;
      return { notice: REPEATING };
    } finally {
      parts.end();
      if (conversation.messages.at(-1) === message) await view.finish();
      else view.shown.remove();
    }
    showFigures(model, ending);
    if (ending.finishReason !== "toolCalls" || !toolbox) return ending;
    for (const call of message.toolCalls ?? []) {
      const content = await toolbox.run(call, signal);
      const result: StoredMessage = { role: "tool", content, toolCallId: call.id };
      conversation.messages.push(result);
      view.result(result);
    }
    await keep(conversation);
    if (round === TOOL_ROUNDS) return { ...ending, notice: "Ready: the model calls tools again and again" };
  }
}

async function read(
  events: AsyncGenerator<ConversationEvent, Ending, void>,
  onEvent: (event: ConversationEvent) => void,
): Promise<Ending> {
  for (;;) {
    const next = await events.next();
    if (next.done) return next.value;
    onEvent(next.value);
  }
}

/** The corner: how fast the last answer was, and how full the context is. */
function showFigures({ contextLength }: ChatModel, { figures }: Ending): void {
  const { firstTokenSeconds, tokensPerSecond, usedTokens } = figures;
  const parts = [
    ...(tokensPerSecond === null ? [] : [`${tokensPerSecond.toFixed(1)} tok/s`]),
    `first token ${firstTokenSeconds.toFixed(2)} s`,
    `context ${usedTokens}${contextLength === null ? "" : ` of ${contextLength}`}`,
  ];
  find("corner").textContent = parts.join(" · ");
  document.dispatchEvent(new Event("answered"));
}
