/** A stream of events with a result at its end. */
import { InvalidArgumentError } from "../errors.ts";

/** Events as they come, to be iterated over once, and a result at their end. */
export class ResultStream<Event, Result> implements AsyncIterable<Event> {
  readonly #events: AsyncGenerator<Event, Result, void>;
  #isStarted = false;
  #settle!: { readonly resolve: (result: Result) => void; readonly reject: (error: unknown) => void };
  readonly #result: Promise<Result>;

  constructor(events: AsyncGenerator<Event, Result, void>) {
    this.#events = events;
    this.#result = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    // Whoever iterates gets the error there: without this, it would be an unhandled rejection, too.
    this.#result.catch(() => {});
  }

  /**
   * The result, when the events have ended. Without an iteration, awaiting it runs the events to their end. It rejects with
   * the error of the iteration, and with InvalidArgumentError when the iteration was left early.
   */
  get result(): Promise<Result> {
    if (!this.#isStarted) void this.#drain();
    return this.#result;
  }

  /** Starts the stream; leaving the iteration ends it. InvalidArgumentError for a second iteration. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Event, void, void> {
    if (this.#isStarted)
      throw new InvalidArgumentError("generation: expected one iteration but found another; begin a new generation");
    this.#isStarted = true;
    let end: unknown = new InvalidArgumentError("answer: expected to be read to its end but found the reading left");
    try {
      this.#settle.resolve(yield* mapEvents(this.#events, (event) => [event]));
    } catch (error) {
      end = error;
      throw error;
    } finally {
      this.#settle.reject(end);
    }
  }

  async #drain(): Promise<void> {
    try {
      for await (const _ of this);
    } catch {
      // The result is rejected with it.
    }
  }
}

/** Replaces each event of a stream by the events that `each` makes of it; the result stays. Ending it ends the stream. */
export function mapEvents<Event, Result, To>(
  events: AsyncGenerator<Event, Result, void>,
  each: (event: Event) => Iterable<To>,
): AsyncGenerator<To, Result, void>;
/** Replaces the events as above, and the result by what `finish` makes of it. */
export function mapEvents<Event, Result, To, Finished>(
  events: AsyncGenerator<Event, Result, void>,
  each: (event: Event) => Iterable<To>,
  finish: (result: Result) => Finished | Promise<Finished>,
): AsyncGenerator<To, Finished, void>;
export async function* mapEvents<Event, Result, To>(
  events: AsyncGenerator<Event, Result, void>,
  each: (event: Event) => Iterable<To>,
  finish: (result: Result) => unknown = (result) => result,
): AsyncGenerator<To, unknown, void> {
  try {
    for (;;) {
      const next = await events.next();
      if (next.done) return await finish(next.value);
      yield* each(next.value);
    }
  } finally {
    await events.return(undefined as never);
  }
}
