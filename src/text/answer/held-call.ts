/** A call that is held back until it is whole, or too long to be. */
import type { AnswerWriter } from "./events.ts";

/** So many characters of arguments are held back: most calls whole, and files that models write as they come. */
const HELD_MAX = 256;

/** Arguments of a call that may still turn out to be text. */
export class HeldCall {
  readonly #writer: AnswerWriter;
  readonly #name: string;
  #held: string | null = "";

  constructor(writer: AnswerWriter, name: string) {
    this.#writer = writer;
    this.#name = name;
  }

  /** Whether the call has been told of. */
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

  /** Tells of the call and of what there is of its arguments. */
  begin(): void {
    if (this.#held === null) return;
    const text = this.#held;
    this.#held = null;
    this.#writer.begin(this.#name);
    this.#writer.argue(text);
  }
}
