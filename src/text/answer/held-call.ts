/** A tool call that is withheld until it is complete, or too long to be withheld. */
import type { AnswerWriter } from "./events.ts";

/**
 * Characters of arguments that are withheld at most: most calls fit, while a file in an argument streams as the model writes
 * it.
 */
const HELD_MAX = 256;

/** Buffers the arguments of a call that may still turn out to be text. */
export class HeldCall {
  readonly #writer: AnswerWriter;
  readonly #name: string;
  #held: string | null = "";

  constructor(writer: AnswerWriter, name: string) {
    this.#writer = writer;
    this.#name = name;
  }

  /** Whether the call has been emitted. */
  get isBegun(): boolean {
    return this.#held === null;
  }

  readonly take = (text: string): void => {
    if (this.#held === null) {
      this.#writer.argue(text);
      return;
    }
    this.#held += text;
    if (this.#held.length > HELD_MAX) this.begin();
  };

  /** Emits the call and the arguments that have come. */
  begin(): void {
    if (this.#held === null) return;
    const text = this.#held;
    this.#held = null;
    this.#writer.begin(this.#name);
    this.#writer.argue(text);
  }
}
