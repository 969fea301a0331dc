/** What comes piece by piece and has a result at its end: texts, events of answers, those of several at once. */
import { InvalidArgumentError } from "../errors.ts";

/** Events as they come, to be iterated over once, and what they came to. */
export class ResultStream<Event, Result> implements AsyncIterable<Event> {
  readonly #events: AsyncGenerator<Event, Result, void>;
  #isBegun = false;
  #settle!: { readonly resolve: (result: Result) => void; readonly reject: (error: unknown) => void };
  readonly #result: Promise<Result>;

  constructor(events: AsyncGenerator<Event, Result, void>) {
    this.#events = events;
    this.#result = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    // Who iterates is told of a failure there.
    this.#result.catch(() => {});
  }

  /**
   * What the events came to, when they have ended. Who does not iterate over them gets it here, and the events run to their
   * end. It fails as the iteration does, and with InvalidArgumentError when that was left early.
   */
  get result(): Promise<Result> {
    if (!this.#isBegun) void this.#drain();
    return this.#result;
  }

  /** Begins what gives the events; leaving the iteration ends it. InvalidArgumentError for a second one. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Event, void, void> {
    if (this.#isBegun)
      throw new InvalidArgumentError("generation: expected one iteration but found another; begin a new generation");
    this.#isBegun = true;
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
      // The result tells of it.
    }
  }
}

/** The events that `each` makes of each event of a stream, and its result. The stream is ended with them. */
export function mapEvents<Event, Result, To>(
  events: AsyncGenerator<Event, Result, void>,
  each: (event: Event) => Iterable<To>,
): AsyncGenerator<To, Result, void>;
/** The same with the result that `finish` makes of the stream's. */
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
