/**
 * Constrains tool calls that a model begins by itself: waits for the text that begins one, then masks tokens until the call
 * ends.
 */
import { logInfo } from "../log.ts";
import type { AnswerFormat } from "../text/answer/index.ts";
import type { Tool } from "../text/chat-messages.ts";
import type { ConstrainedParts, ConstrainedText } from "./constrained-text.ts";

/** How tool calls begin in formats without a marker. */
const BARE = '{"name": "';

/**
 * What a call is constrained to once it has begun: a name of these tools and its arguments, of any object where the tool is
 * not strict.
 */
export function callParts({ callToken, callSteps }: AnswerFormat, tools: readonly Tool[]): ConstrainedParts {
  const [first, ...others] = callSteps;
  const rest = first?.kind === "text" ? first.text.slice(callToken.length) : "";
  const steps = first?.kind === "text" ? [...(rest === "" ? [] : [{ ...first, text: rest }]), ...others] : callSteps;
  return {
    steps,
    tools: tools.map(({ name, parameters, strict, text }) => ({ name, ...(strict && { parameters, text }) })),
  };
}

export class CallWatch {
  /** Text that begins a call; "" where calls are bare JSON that begins the answer. */
  readonly #marker: string;
  readonly #call: ConstrainedText;
  /** The last text, which may be the beginning of a call. */
  #seen = "";
  /** Whether the answer has begun with something that is no bare call, so that no call can follow. */
  #isOver = false;
  /** Text after the call's beginning that came in the same token. */
  #rest = "";
  #isHolding = false;

  constructor(marker: string, call: ConstrainedText) {
    this.#marker = marker;
    this.#call = call;
  }

  /** Whether a call is being written and constrained. */
  get isHolding(): boolean {
    return this.#isHolding;
  }

  /**
   * The only token that may come next in the call, or a mask of those that may; null where the call cannot be constrained.
   */
  async next(): Promise<number | Uint32Array | null> {
    const rest = this.#rest;
    this.#rest = "";
    if (await this.#call.acceptText(rest)) return this.#call.next();
    logInfo(() => `a call of a tool began with ${JSON.stringify(rest)}: it is not constrained to its schema`);
    this.#isHolding = false;
    return null;
  }

  allows(id: number): boolean {
    return this.#call.allows(id);
  }

  /** Takes a token and its text; `isThinking` after it. */
  take(id: number, text: string, isThinking: boolean): void {
    if (this.#isHolding) {
      this.#call.accept(id, text);
      if (this.#call.isEnded) this.#isHolding = false;
      return;
    }
    this.#seen += text;
    if (this.#marker === "") this.#lookForBare(isThinking);
    else this.#lookForMarker();
  }

  #lookForMarker(): void {
    const at = this.#seen.indexOf(this.#marker);
    if (at >= 0) this.#begin(this.#seen.slice(at + this.#marker.length));
    else this.#seen = this.#seen.slice(-this.#marker.length);
  }

  #lookForBare(isThinking: boolean): void {
    if (isThinking || this.#isOver) this.#seen = "";
    const text = this.#seen.trimStart();
    if (text.startsWith(BARE)) this.#begin(text);
    this.#isOver ||= !BARE.startsWith(text);
  }

  #begin(rest: string): void {
    this.#seen = "";
    this.#rest = rest;
    this.#isHolding = true;
    this.#call.restart();
  }

  dispose(): void {
    this.#call.dispose();
  }
}
