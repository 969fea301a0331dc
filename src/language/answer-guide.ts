/** Follows an answer as it is generated: parses it, ends it at stop strings, and ends thinking that has used its budget. */
import type { AnswerFormat, AnswerParser } from "../text/answer/index.ts";
import type { ToolCall } from "../text/chat-messages.ts";
import type { TokenGuide } from "../text/generate.ts";
import { StopMatcher } from "../text/stop-strings.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { ChatEvent } from "./chat-options.ts";

/** What a guide is made from. */
export interface AnswerGuideOptions {
  readonly tokenizer: Tokenizer;
  /** Null for answers that are nothing but text. */
  readonly parser: AnswerParser | null;
  readonly format: AnswerFormat | null;
  /** Texts that end the answer. */
  readonly stop: readonly string[];
  /** Most tokens of thinking. */
  readonly budget: number | null;
  /** Told of each token. */
  readonly onToken: (id: number) => void;
}

export class AnswerGuide implements TokenGuide {
  readonly shownIds: ReadonlySet<number>;
  /** Tokens of the model's thinking. */
  reasoningTokens = 0;
  /** The stop string that ended the answer. */
  stopString: string | null = null;
  /** The answer's text so far. */
  text = "";
  readonly #options: AnswerGuideOptions;
  readonly #stops: StopMatcher;
  /** Tokens that come next. */
  #forced: number[] = [];
  #events: ChatEvent[] = [];

  constructor(options: AnswerGuideOptions) {
    const { tokenizer, format, stop } = options;
    this.#options = options;
    this.#stops = new StopMatcher(stop);
    this.shownIds = tokenizer.addedTokens.idsIn((format?.marks ?? []).join("\n"));
  }

  get isThinking(): boolean {
    return this.#options.parser?.writer.isThinking ?? false;
  }

  get reasoning(): string {
    return this.#options.parser?.writer.reasoning ?? "";
  }

  get toolCalls(): readonly ToolCall[] {
    return this.#options.parser?.writer.calls ?? [];
  }

  /** The events since the last time. */
  takeEvents(): ChatEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  next(): number | null {
    const { budget, format, tokenizer } = this.#options;
    if (this.#forced.length === 0 && budget !== null && this.isThinking && this.reasoningTokens >= budget)
      this.#forced = tokenizer.encode(format!.closeThinking, { addSpecialTokens: false });
    return this.#forced.shift() ?? null;
  }

  take(id: number, text: string, isLast: boolean): boolean {
    const { parser, onToken } = this.#options;
    onToken(id);
    const wasThinking = this.isThinking;
    const events: ChatEvent[] = parser ? parser.push(text) : text === "" ? [] : [{ type: "text", text }];
    if (parser && isLast) events.push(...parser.end());
    if (wasThinking || this.isThinking) this.reasoningTokens++;
    for (const event of events) {
      if (this.stopString !== null) break;
      if (event.type === "text") this.#takeText(event.text);
      else {
        this.#give(this.#stops.flush());
        this.#events.push(event);
      }
    }
    if (isLast && this.stopString === null) this.#give(this.#stops.flush());
    return this.stopString !== null;
  }

  #takeText(piece: string): void {
    const { text, stop } = this.#stops.push(piece);
    this.stopString = stop;
    this.#give(text);
  }

  #give(text: string): void {
    if (text === "") return;
    this.text += text;
    this.#events.push({ type: "text", text });
  }
}
