/** Lines that the user types: messages, and answers to questions that are asked while the model answers. */
import type { Interface } from "node:readline";

export class ChatLines {
  readonly #waiting: string[] = [];
  #wake: () => void = () => {};
  #answer: ((line: string) => void) | null = null;
  #isClosed = false;

  constructor(input: Interface) {
    input.on("line", (line) => {
      if (this.#answer) this.#answer(line);
      else this.#waiting.push(line);
      this.#wake();
    });
    input.on("close", () => {
      this.#isClosed = true;
      this.#answer?.("");
      this.#wake();
    });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /**
   * Takes the next line as the answer to a question, so that it is no message; "" at the end of the input. An abort throws the
   * signal's reason.
   */
  async next(signal?: AbortSignal): Promise<string> {
    signal?.throwIfAborted();
    if (this.#isClosed) return "";
    let onAbort = () => {};
    try {
      return await new Promise<string>((resolve, reject) => {
        onAbort = () => reject(signal!.reason);
        signal?.addEventListener("abort", onAbort);
        this.#answer = resolve;
      });
    } finally {
      signal?.removeEventListener("abort", onAbort);
      this.#answer = null;
    }
  }

  /** Messages, including those that were typed while another was being answered. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, void> {
    for (;;) {
      for (let line = this.#waiting.shift(); line !== undefined; line = this.#waiting.shift()) yield line;
      if (this.#isClosed) return;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
