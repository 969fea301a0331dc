/** Follows an answer as it is generated: parses it, ends it at stop strings, and ends thinking that has used its budget. */
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { AnswerFormat, AnswerParser } from "../text/answer/index.ts";
import type { ToolCall } from "../text/chat-messages.ts";
import type { TokenGuide } from "../text/generate.ts";
import { StopMatcher } from "../text/stop-strings.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { CallWatch } from "./call-watch.ts";
import type { ChatEvent } from "./chat-options.ts";
import type { ConstrainedText } from "./constrained-text.ts";

const NONE: ReadonlySet<number> = new Set();

/** What a guide is made from. */
export interface AnswerGuideOptions {
  readonly tokenizer: Tokenizer;
  /** Parser of thinking and tool calls; null for answers that are only text. */
  readonly parser: AnswerParser | null;
  readonly format: AnswerFormat | null;
  /** Stop strings, each of which ends the answer. */
  readonly stop: readonly string[];
  /** Most tokens of thinking; null for any number. */
  readonly budget: number | null;
  /** The constraint of the answer's text, which thinking is exempt from; null for none. */
  readonly constrained: ConstrainedText | null;
  /** Constrains tool calls that the model begins by itself, where tools are strict; null where none is. */
  readonly watch: CallWatch | null;
  /** Whether the model may begin to think. */
  readonly mayThink: boolean;
  /** Whether the model may call a tool instead of answering. */
  readonly mayCall: boolean;
  /** Beginning of the answer that the prompt already ends with. */
  readonly prefixText: string;
  /** Called with each token. */
  readonly onToken: (id: number) => void;
}

export class AnswerGuide implements TokenGuide {
  readonly shownIds: ReadonlySet<number>;
  /** Number of tokens in which the model thought. */
  reasoningTokens = 0;
  /** The stop string that ended the answer; null while none has. */
  stopString: string | null = null;
  /** The answer's text so far. */
  text = "";
  readonly #options: AnswerGuideOptions;
  readonly #stops: StopMatcher;
  /** Tokens that must come next: the end of thinking, after its budget. */
  #forced: number[] = [];
  #events: ChatEvent[] = [];
  /** Tokens that begin thinking or a tool call, where they may come in place of constrained text. */
  #startIds: ReadonlySet<number> = NONE;
  readonly #callStarts: ReadonlySet<number>;
  /** Whether an unconstrained tool call has begun: nothing after it is masked. */
  #isFree = false;
  /**
   * Text that the constraint must take before the next token: the beginning in the prompt, or what came in one token with
   * the end of thinking.
   */
  #leftover: string;

  constructor(options: AnswerGuideOptions) {
    const { tokenizer, format, stop } = options;
    this.#options = options;
    this.#leftover = options.prefixText;
    this.#stops = new StopMatcher(stop);
    const { constrained, mayThink, mayCall } = options;
    const idsOf = (markers: readonly string[]) =>
      markers.flatMap((marker) => (constrained ? (tokenizer.tokenToId(marker) ?? []) : []));
    this.#callStarts = new Set(idsOf(mayCall ? (format?.callStarts ?? []) : []));
    this.#startIds = new Set([...this.#callStarts, ...idsOf(mayThink && format ? [format.beginThinking] : [])]);
    this.shownIds = tokenizer.addedTokens.idsIn((format?.specialTokens ?? []).join("\n"));
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

  /** Takes the events since the last time. */
  takeEvents(): ChatEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  async next(vocabularySize: number): Promise<number | Uint32Array | null> {
    const { budget, format, tokenizer, watch } = this.#options;
    if (watch?.isHolding) {
      const next = await watch.next();
      if (next !== null) return next;
    }
    if (this.#forced.length === 0 && budget !== null && this.isThinking && this.reasoningTokens >= budget)
      this.#forced = tokenizer.encode(format!.closeThinking, { addSpecialTokens: false });
    if (this.#forced.length > 0) return this.#forced[0]!;
    const { constrained } = this.#options;
    if (!constrained || this.isThinking || this.#isFree) return null;
    if (!(await constrained.acceptText(this.#leftover)))
      throw this.#options.prefixText !== ""
        ? new InvalidArgumentError("messages: expected the last one to begin an answer that the constraint allows")
        : new UnsupportedError("constraint: the model wrote text behind its thinking in one token with the end of it");
    this.#leftover = "";
    const next = await constrained.next();
    if (this.#startIds.size === 0) return next;
    const mask = typeof next === "number" ? maskOf(next, vocabularySize) : next;
    for (const id of this.#startIds) mask[id >>> 5]! |= 1 << (id & 31);
    return mask;
  }

  allows(id: number): boolean {
    const { watch } = this.#options;
    if (watch?.isHolding) return watch.allows(id);
    return this.#startIds.has(id) || (this.#options.constrained?.allows(id) ?? true);
  }

  take(id: number, text: string, end: "stop" | "length" | null): boolean {
    const { parser, onToken, constrained, watch } = this.#options;
    onToken(id);
    const wasThinking = this.isThinking;
    const isForced = this.#forced.shift() !== undefined;
    const isCall = watch?.isHolding === true;
    const isStart = this.#startIds.has(id);
    const isConstrained = constrained !== null && !wasThinking && !isForced && !isStart && !this.#isFree && !isCall;
    if (isConstrained) constrained.accept(id, text);
    const isEnded = isConstrained && constrained.isEnded;
    const ends = end !== null || isEnded;
    const textBefore = parser?.writer.text.length ?? 0;
    const events: ChatEvent[] = parser ? parser.push(text) : text === "" ? [] : [{ type: "text", text }];
    watch?.take(id, text, this.isThinking);
    if (wasThinking || this.isThinking) this.reasoningTokens++;
    // A call may follow the end of thinking, too, and is not constrained once it has begun.
    if (isStart && !this.isThinking) this.#isFree = true;
    this.#startIds = wasThinking && !this.isThinking ? this.#callStarts : NONE;
    if (wasThinking && !this.isThinking && !isForced) this.#leftover = parser?.writer.text.slice(textBefore) ?? "";
    if (parser && ends) events.push(...parser.end(end === "length" && !isEnded));
    for (const event of events) {
      if (this.stopString !== null) break;
      if (event.type === "text") this.#takeText(event.text);
      else {
        this.#give(this.#stops.flush());
        this.#events.push(event);
      }
    }
    if (ends && this.stopString === null) this.#give(this.#stops.flush());
    return this.stopString !== null || isEnded;
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

/** A mask, a bit a token, that allows one token. */
function maskOf(id: number, vocabularySize: number): Uint32Array {
  const mask = new Uint32Array(Math.ceil(vocabularySize / 32));
  mask[id >>> 5]! |= 1 << (id & 31);
  return mask;
}
