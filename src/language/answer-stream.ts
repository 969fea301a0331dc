/** A stream that is iterated over, or waited for as a whole. */
import { InvalidArgumentError } from "../errors.ts";
import { secondIteration } from "./token-stream.ts";

/** An answer, to be iterated over once or to be waited for. */
export class AnswerStream<E, R> implements AsyncIterable<E> {
  readonly #events: AsyncGenerator<E, R, void>;
  #isBegun = false;
  #settle!: { readonly resolve: (result: R) => void; readonly reject: (error: unknown) => void };
  readonly #result: Promise<R>;

  constructor(events: AsyncGenerator<E, R, void>) {
    this.#events = events;
    this.#result = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    // Who iterates is told of a failure there.
    this.#result.catch(() => {});
  }

  get result(): Promise<R> {
    if (!this.#isBegun) void this.#drain();
    return this.#result;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<E, void, void> {
    if (this.#isBegun) throw secondIteration();
    this.#isBegun = true;
    const events = this.#events;
    let end: unknown = new InvalidArgumentError("answer: expected to be read to its end but found the reading left");
    try {
      for (let next = await events.next(); ; next = await events.next()) {
        if (next.done) {
          this.#settle.resolve(next.value);
          return;
        }
        yield next.value;
      }
    } catch (error) {
      end = error;
      throw error;
    } finally {
      await events.return(undefined as never);
      this.#settle.reject(end);
    }
  }

  async #drain(): Promise<void> {
    try {
      for await (const _ of this);
    } catch {
      // The result tells of it.
    }
  }
}

/** The answer to a conversation. `begin` is given what takes the tokens of the prompt. */
export class ConversationAnswer<E, R> extends AnswerStream<E, R> {
  readonly #known: { promptTokens: number | null };

  constructor(begin: (known: { promptTokens: number | null }) => AsyncGenerator<E, R, void>) {
    const known = { promptTokens: null };
    super(begin(known));
    this.#known = known;
  }

  get promptTokens(): number | null {
    return this.#known.promptTokens;
  }
}
