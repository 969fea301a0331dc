/** Events of an answer as it comes: text, thinking and tool calls. */
import type { ToolCall } from "../chat-messages.ts";

/** A piece of an answer. */
export type AnswerEvent =
  | { readonly type: "reasoning"; readonly text: string }
  | { readonly type: "text"; readonly text: string }
  /** A call begins: `index` counts the calls of an answer from 0. */
  | { readonly type: "toolCall"; readonly index: number; readonly id: string; readonly name: string }
  /** More of the JSON text of a call's arguments. */
  | { readonly type: "toolArguments"; readonly index: number; readonly text: string };

/** What an answer parser needs to know of a tool that the model may call. */
export interface KnownTool {
  readonly name: string;
  /** JSON schema of the arguments. */
  readonly parameters?: object | undefined;
  /** For a tool whose one argument is a text in a grammar: the argument's name and the grammar in EBNF. */
  readonly text?: { readonly argument: string; readonly ebnf: string } | undefined;
}

/** Separator of two stretches of text that were divided by a call or thinking, without white space of their own. */
const APART = "\n\n";

/** Collects the events of an answer: joins pieces, and drops white space between text and calls or thinking. */
export class AnswerWriter {
  readonly calls: (ToolCall & { arguments: string })[] = [];
  readonly tools: ReadonlyMap<string, KnownTool>;
  /** Whether the answer is within the model's thinking. */
  isThinking = false;
  text = "";
  reasoning = "";
  readonly #makeId: () => string;
  #events: AnswerEvent[] = [];
  /** White space at the end of the last piece, which becomes part of an event only when more text of its kind follows. */
  #held = "";
  /** Whether a call, or text of the other kind (answer or thinking), has come since the last text. */
  #atEdge = false;
  /** White space after the last text of each kind, before what divides it from the next. */
  readonly #gaps = { text: "", reasoning: "" };

  constructor(tools: readonly KnownTool[], makeId: () => string) {
    this.tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#makeId = makeId;
  }

  /** Returns the events since the last call of `take`. */
  take(): AnswerEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  /** Adds a piece of text; it counts as thinking while `isThinking`. */
  readonly write = (piece: string): void => {
    let text = this.#held + piece;
    const end = text.trimEnd().length;
    this.#held = text.slice(end);
    if (end === 0) return;
    text = text.slice(0, end);
    this.#give(this.#atEdge ? this.#separated(text) : text);
  };

  /** Separates a text from the last one of its kind by the white space at both ends, or by a blank line. */
  #separated(text: string): string {
    const begun = text.trimStart();
    if (this[this.#kind] === "") return begun;
    const space = this.#gaps[this.#kind] + text.slice(0, text.length - begun.length);
    return (space || APART) + begun;
  }

  /** Begins or ends the model's thinking. */
  think(isThinking: boolean): void {
    this.#edge();
    this.isThinking = isThinking;
  }

  /** Ends the answer: white space at the end of plain text is part of it. */
  end(): void {
    if (this.#held !== "" && !this.#atEdge && !this.isThinking) this.#give(this.#held);
    this.#held = "";
  }

  /** The name of a tool as callers write it: some models put the name of a group (`functions.`) before it. */
  #known(name: string): string {
    const rest = name.replace(/^functions\./, "");
    return !this.tools.has(name) && this.tools.has(rest) ? rest : name;
  }

  /** Whether a call of this name may begin: within thinking, only one of a known tool. */
  mayBegin(name: string): boolean {
    return name !== "" && (!this.isThinking || this.isKnown(name));
  }

  isKnown(name: string): boolean {
    return this.tools.has(this.#known(name));
  }

  /** The tool with this name; undefined where there is none. */
  tool(name: string): KnownTool | undefined {
    return this.tools.get(this.#known(name));
  }

  /** Begins a call, whose arguments follow by `argue`. Returns false, without a call, where none may begin. */
  begin(name: string): boolean {
    if (!this.mayBegin(name)) return false;
    this.#edge();
    this.isThinking = false;
    const call = { id: this.#makeId(), name: this.#known(name), arguments: "" };
    this.#events.push({ type: "toolCall", index: this.calls.length, id: call.id, name: call.name });
    this.calls.push(call);
    return true;
  }

  /** Appends to the arguments of the last call. */
  readonly argue = (text: string): void => {
    if (text === "") return;
    const index = this.calls.length - 1;
    this.calls[index]!.arguments += text;
    const last = this.#events.at(-1);
    if (last?.type === "toolArguments" && last.index === index)
      this.#events[this.#events.length - 1] = { ...last, text: last.text + text };
    else this.#events.push({ type: "toolArguments", index, text });
  };

  get #kind(): "text" | "reasoning" {
    return this.isThinking ? "reasoning" : "text";
  }

  #edge(): void {
    if (!this.#atEdge) this.#gaps[this.#kind] = this.#held;
    this.#held = "";
    this.#atEdge = true;
  }

  #give(text: string): void {
    this.#atEdge = false;
    const type = this.#kind;
    this[type] += text;
    const last = this.#events.at(-1);
    if (last?.type === type) this.#events[this.#events.length - 1] = { type, text: last.text + text };
    else this.#events.push({ type, text });
  }
}
