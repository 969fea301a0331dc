/** What an answer is made of, told as it comes: text, thinking, and calls of tools. */
import type { ToolCall } from "../chat-messages.ts";

/** A piece of an answer. */
export type AnswerEvent =
  | { readonly type: "reasoning"; readonly text: string }
  | { readonly type: "text"; readonly text: string }
  /** A call begins: `index` counts the calls of an answer from 0. */
  | { readonly type: "toolCall"; readonly index: number; readonly id: string; readonly name: string }
  /** More of the JSON text of a call's arguments. */
  | { readonly type: "toolArguments"; readonly index: number; readonly text: string };

/** What a parser is to know of the tools that a model may call. */
export interface KnownTool {
  readonly name: string;
  /** JSON schema of the arguments. */
  readonly parameters?: object | undefined;
}

/** Collects the events of an answer: joins pieces, and drops white space around what is no text. */
export class AnswerWriter {
  readonly calls: (ToolCall & { arguments: string })[] = [];
  readonly tools: ReadonlyMap<string, KnownTool>;
  /** Whether the answer is within the model's thinking. */
  isThinking = false;
  text = "";
  reasoning = "";
  readonly #makeId: () => string;
  #events: AnswerEvent[] = [];
  /** White space that is given when more text of its kind follows. */
  #held = "";
  /** Whether white space that comes next is dropped. */
  #atEdge = false;

  constructor(tools: readonly KnownTool[], makeId: () => string) {
    this.tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#makeId = makeId;
  }

  /** The events since the last time. */
  take(): AnswerEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  /** Takes text, or thinking within the model's thinking. */
  readonly write = (piece: string): void => {
    const all = this.#held + piece;
    const text = this.#atEdge ? all.trimStart() : all;
    const end = text.trimEnd().length;
    this.#held = text.slice(end);
    if (end > 0) this.#give(text.slice(0, end));
  };

  /** Begins or ends the model's thinking. */
  think(isThinking: boolean): void {
    this.#edge();
    this.isThinking = isThinking;
  }

  /** The answer has ended: white space at the end of plain text is part of it. */
  end(): void {
    if (this.#held !== "" && !this.#atEdge && !this.isThinking) this.#give(this.#held);
    this.#held = "";
  }

  /** Begins a call. False, and no call, within the model's thinking where there is no such tool. */
  begin(name: string): boolean {
    if (name === "" || (this.isThinking && !this.tools.has(name))) return false;
    this.#edge();
    this.isThinking = false;
    const call = { id: this.#makeId(), name, arguments: "" };
    this.#events.push({ type: "toolCall", index: this.calls.length, id: call.id, name });
    this.calls.push(call);
    return true;
  }

  /** More of the arguments of the last call. */
  readonly argue = (text: string): void => {
    if (text === "") return;
    const index = this.calls.length - 1;
    this.calls[index]!.arguments += text;
    const last = this.#events.at(-1);
    if (last?.type === "toolArguments" && last.index === index)
      this.#events[this.#events.length - 1] = { ...last, text: last.text + text };
    else this.#events.push({ type: "toolArguments", index, text });
  };

  #edge(): void {
    this.#held = "";
    this.#atEdge = true;
  }

  #give(text: string): void {
    this.#atEdge = false;
    const type = this.isThinking ? "reasoning" : "text";
    this[type] += text;
    const last = this.#events.at(-1);
    if (last?.type === type) this.#events[this.#events.length - 1] = { type, text: last.text + text };
    else this.#events.push({ type, text });
  }
}
