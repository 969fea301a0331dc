/** Streams of events (SSE): pings while nothing happens, an end for readers that take nothing. */
import { ApiError } from "./errors.ts";

/** An event of a stream: its name, where the API has names, and its data, which is written as JSON. */
export interface StreamEvent {
  readonly event?: string;
  /** A value for JSON; a string is written as it is and must have one line. */
  readonly data: unknown;
}

export interface StreamOptions {
  readonly pingSeconds: number;
  readonly stalledSeconds: number;
  /** What is sent while nothing happens: a comment, unless the API has an event for it. */
  readonly ping?: StreamEvent;
  /** The events that tell of an error, and end the stream. */
  readonly failed: (error: unknown) => readonly StreamEvent[];
  /** Ends the computation when the reader has left or takes nothing. */
  readonly abort: (reason: unknown) => void;
}

/** JSON has no line ends outside of its escapes, so that no text can end an event or begin another. */
function formatEvent({ event, data }: StreamEvent): string {
  const text = typeof data === "string" ? data : JSON.stringify(data);
  return `${event === undefined ? "" : `event: ${event}\n`}data: ${text}\n\n`;
}

const COMMENT = ": ping\n\n";

const HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  // nginx would wait for more otherwise.
  "x-accel-buffering": "no",
};

/**
 * An answer of events. What goes wrong before the first event is thrown, so that it has a status; unless that takes longer
 * than a ping, which begins the answer.
 */
export async function streamResponse(events: AsyncGenerator<StreamEvent>, options: StreamOptions): Promise<Response> {
  const first = events.next();
  first.catch(() => {});
  await orAfter(options.pingSeconds, first);
  return new Response(new EventSource(events, first, options).body, { headers: HEADERS });
}

/** Events as bytes, as fast as they are read. */
class EventSource {
  readonly body: ReadableStream<Uint8Array>;
  readonly #events: AsyncGenerator<StreamEvent>;
  readonly #options: StreamOptions;
  readonly #encoder = new TextEncoder();
  readonly #timer: NodeJS.Timeout;
  #next: Promise<IteratorResult<StreamEvent>> | null;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #writtenAt = performance.now();
  #isOver = false;

  constructor(
    events: AsyncGenerator<StreamEvent>,
    first: Promise<IteratorResult<StreamEvent>>,
    options: StreamOptions,
  ) {
    this.#events = events;
    this.#next = first;
    this.#options = options;
    this.body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#controller = controller;
      },
      pull: () => this.#pull(),
      cancel: (reason) => this.#leave(reason),
    });
    this.#timer = setInterval(() => this.#tick(), Math.min(options.pingSeconds, options.stalledSeconds) * 500);
    this.#timer.unref();
  }

  async #pull(): Promise<void> {
    try {
      const { done, value } = await (this.#next ?? this.#events.next());
      this.#next = null;
      if (this.#isOver) return;
      if (!done) this.#write(value);
      else this.#close();
    } catch (error) {
      if (this.#isOver) return;
      for (const event of this.#options.failed(error)) this.#write(event);
      this.#close();
    }
  }

  #write(event: StreamEvent | null): void {
    this.#writtenAt = performance.now();
    this.#controller.enqueue(this.#encoder.encode(event ? formatEvent(event) : COMMENT));
  }

  #close(): void {
    this.#end();
    this.#controller.close();
  }

  #end(): void {
    this.#isOver = true;
    clearInterval(this.#timer);
  }

  /** A ping where nothing happens; an end where nothing is taken. */
  #tick(): void {
    const { pingSeconds, stalledSeconds, ping = null } = this.#options;
    const quiet = (performance.now() - this.#writtenAt) / 1000;
    const isTaken = (this.#controller.desiredSize ?? 0) > 0;
    if (isTaken && quiet >= pingSeconds) this.#write(ping);
    if (isTaken || quiet < stalledSeconds) return;
    const error = new ApiError(408, `nothing of the answer was taken for ${stalledSeconds} seconds`);
    void this.#leave(error);
    this.#controller.error(error);
  }

  async #leave(reason: unknown): Promise<void> {
    this.#end();
    this.#options.abort(reason);
    await this.#events.return(undefined).catch(() => {});
  }
}

/** Waits for a promise, but no longer than so many seconds. What it throws in that time is thrown. */
async function orAfter(seconds: number, promise: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, seconds * 1000);
  });
  await Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
