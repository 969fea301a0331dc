/** The messages of a conversation on the page. */
import type { ConversationEvent } from "lowbit/web";
import { type StoredMessage, textOf } from "./conversations.ts";
import { button, element, find, icon } from "./dom.ts";

/** What can be done with a message. */
export interface MessageActions {
  copy(message: StoredMessage): void;
  edit(message: StoredMessage, shown: HTMLElement): void;
  regenerate(message: StoredMessage): void;
}

/** Characters of a question that are shown: laying out megabytes of a pasted text keeps the page from hearing Stop. */
const SHOWN_LENGTH = 20_000;

function shortened(text: string): string {
  const rest = text.length - SHOWN_LENGTH;
  return rest > 0 ? `${text.slice(0, SHOWN_LENGTH)}… (${rest} more characters)` : text;
}

const messages = find("messages");
let markdown: typeof import("./markdown.ts") | null = null;

/** Shows a text as Markdown, and as it is until what reads Markdown has come. */
async function showText(target: HTMLElement, text: () => string): Promise<void> {
  if (!markdown) {
    target.textContent = text();
    // Without a network, and before all of the page was kept, the text stays as it is.
    markdown = await import("./markdown.ts").catch(() => null);
  }
  markdown?.renderMarkdown(target, text());
}

/** Shows all messages anew; nothing of it is read out. */
export function showThread(thread: readonly StoredMessage[], actions: MessageActions): void {
  messages.ariaLive = "off";
  messages.replaceChildren();
  let answer: AnswerView | null = null;
  const shown: Promise<void>[] = [];
  for (const message of thread) {
    if (message.role === "user") showQuestion(message, actions);
    else if (message.role === "assistant") {
      answer = new AnswerView(message, actions);
      shown.push(answer.finish());
    } else answer?.result(message);
  }
  void Promise.all(shown).then(() => {
    scrollToEnd();
    messages.ariaLive = "polite";
  });
}

function action(name: string, text: string, work: () => unknown): HTMLButtonElement {
  const made = button(text, work);
  made.prepend(icon(name));
  return made;
}

const isAtEnd = () => messages.scrollHeight - messages.scrollTop - messages.clientHeight < 48;

function scrollToEnd(): void {
  messages.scrollTop = messages.scrollHeight;
}

export function showQuestion(message: StoredMessage, actions: MessageActions): HTMLElement {
  const files = (message.attachments ?? []).map(({ name }) => element("li", "", name));
  const shown = element(
    "article",
    "message user",
    element("b", "unseen", "You"),
    element("span", "", shortened(message.content)),
    ...(files.length > 0 ? [element("ul", "plain files", ...files)] : []),
  );
  const acts = [
    action("copy", "Copy", () => actions.copy(message)),
    action("edit", "Edit", () => actions.edit(message, shown)),
  ];
  shown.append(element("div", "actions", ...acts));
  messages.append(shown);
  shown.scrollIntoView({ block: "end" });
  return shown;
}

/** How often an answer is written on at most: the end of it is laid out anew each time. */
const WRITE_MS = 50;

/** An answer while it comes, and afterwards. */
export class AnswerView {
  readonly shown = element("article", "message model", element("b", "unseen", "Model"));
  readonly #message: StoredMessage;
  readonly #actions: MessageActions;
  readonly #text = element("div", "text");
  readonly #thought = element("div", "thought");
  #thinking: HTMLDetailsElement | null = null;
  readonly #calls: HTMLElement[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isBehind = false;

  constructor(message: StoredMessage, actions: MessageActions) {
    this.#message = message;
    this.#actions = actions;
    this.shown.append(this.#text);
    messages.append(this.shown);
    this.shown.scrollIntoView({ block: "end" });
  }

  /** Adds what has come to the message, and soon to the page. */
  add(event: ConversationEvent): void {
    const message = this.#message;
    if (event.type === "text") message.content += event.text;
    if (event.type === "reasoning") message.reasoning = (message.reasoning ?? "") + event.text;
    if (event.type === "toolCall")
      message.toolCalls = [...(message.toolCalls ?? []), { id: event.id, name: event.name, arguments: "" }];
    if (event.type === "toolArguments") {
      const call = message.toolCalls![event.index]!;
      message.toolCalls![event.index] = { ...call, arguments: call.arguments + event.text };
    }
    this.#isBehind = true;
    this.#timer ??= setTimeout(() => this.#write(), WRITE_MS);
  }

  /** Shows all there is, and what can be done with it. */
  async finish(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const isInView = isAtEnd();
    const shown = this.#show();
    if (this.#thinking) this.#thinking.firstElementChild!.textContent = "Thoughts";
    const { copy, regenerate } = this.#actions;
    const acts = [
      action("copy", "Copy", () => copy(this.#message)),
      action("again", "Regenerate", () => regenerate(this.#message)),
    ];
    this.shown.append(element("div", "actions", ...acts));
    if (isInView) scrollToEnd();
    await shown;
    if (isInView) scrollToEnd();
  }

  /** Shows what a tool gave. */
  result({ toolCallId, content }: StoredMessage): void {
    const index = this.#message.toolCalls?.findIndex(({ id }) => id === toolCallId) ?? -1;
    this.#calls[index]?.append(element("b", "", "Result"), pre(content));
  }

  /** Keeps the answer's end in view, unless the reader has scrolled away from it. What takes long is done more rarely. */
  #write(): void {
    const begin = performance.now();
    const isInView = isAtEnd();
    this.#isBehind = false;
    void this.#show();
    if (isInView) scrollToEnd();
    const pause = Math.max(WRITE_MS, 4 * (performance.now() - begin));
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#isBehind) this.#write();
    }, pause);
  }

  async #show(): Promise<void> {
    const { content, reasoning, toolCalls = [] } = this.#message;
    if (reasoning && !this.#thinking) {
      this.#thinking = element("details", "thinking", element("summary", "", "Thinking…"), this.#thought);
      this.#text.before(this.#thinking);
    }
    if (reasoning) this.#thought.textContent = reasoning;
    const isShown = content ? showText(this.#text, () => this.#message.content) : null;
    for (const [index, { name, arguments: text }] of toolCalls.entries()) {
      const call = this.#calls[index];
      if (call) call.querySelector("pre")!.textContent = text;
      else {
        const made = element("details", "call", element("summary", "", `Tool: ${name}`), element("b", "", "Arguments"));
        made.append(pre(text));
        this.#calls[index] = made;
        this.shown.append(made);
      }
    }
    await isShown;
  }
}

function pre(text: string): HTMLElement {
  const made = element("pre", "", text);
  made.tabIndex = 0;
  return made;
}

/** What a message says, for the clipboard. */
export const plainText = (message: StoredMessage): string =>
  message.role === "user" ? textOf(message) : message.content;
