/** A tool call that is withheld until it is complete, or too long to be withheld. */
import type { AnswerWriter } from "./events.ts";

/**
 * Characters of arguments that are withheld at most: most calls fit, while a file in an argument streams as the model writes
 * it.
 */
const WITHHELD_MAX = 256;

/** Buffers the arguments of a call that may still turn out to be text. */
export class WithheldCall {
  readonly #writer: AnswerWriter;
  readonly #name: string;
  #withheld: string | null = "";

  constructor(writer: AnswerWriter, name: string) {
    this.#writer = writer;
    this.#name = name;
  }

  /** Whether the call has been emitted. */
  get isStarted(): boolean {
    return this.#withheld === null;
  }

  readonly take = (text: string): void => {
    if (this.#withheld === null) {
      this.#writer.argue(text);
      return;
    }
    this.#withheld += text;
    if (this.#withheld.length > WITHHELD_MAX) this.begin();
  };

  /** Emits the call and the arguments that have come. */
  begin(): void {
    if (this.#withheld === null) return;
    const text = this.#withheld;
    this.#withheld = null;
    this.#writer.begin(this.#name);
    this.#writer.argue(text);
  }
}
