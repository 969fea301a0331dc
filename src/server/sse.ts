/** Streams of events, or of lines of JSON: pings while nothing happens, an end for readers that take nothing. */
import { ApiError } from "./errors.ts";

/** An event of a stream: its name, where the API has names, and its data, which is written as JSON. */
export interface StreamEvent {
  readonly event?: string;
  /** A value for JSON; a string is written as it is and must have one line. */
  readonly data: unknown;
}

/** How events are written. */
export interface StreamForm {
  readonly contentType: string;
  readonly write: (event: StreamEvent) => string;
  /** What is sent while nothing happens; "" for nothing. */
  readonly ping: string;
}

export interface StreamOptions {
  /** Default: events as browsers know them. */
  readonly form?: StreamForm | undefined;
  readonly pingSeconds: number;
  readonly stalledSeconds: number;
  /** What is sent while nothing happens: a comment, unless the API has events for it. */
  readonly ping?: () => readonly StreamEvent[];
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

const EVENTS: StreamForm = {
  contentType: "text/event-stream; charset=utf-8",
  write: formatEvent,
  ping: ": ping\n\n",
};

/** Lines of JSON. */
export const LINES: StreamForm = {
  contentType: "application/x-ndjson",
  write: ({ data }) => `${JSON.stringify(data)}\n`,
  ping: "",
};

/** Characters that wait for the next turn of the event loop, before no more events are asked for. */
const UNWRITTEN_MAX = 65536;

const HEADERS = {
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
  const { contentType } = options.form ?? EVENTS;
  return new Response(new EventSource(events, first, options).body, {
    headers: { ...HEADERS, "content-type": contentType },
  });
}

/**
 * Events as bytes. The next event is asked for before the one that is there is written, so that a model computes its next
 * tokens meanwhile, and what comes in one turn of the event loop is written at once.
 */
class EventSource {
  readonly body: ReadableStream<Uint8Array>;
  readonly #events: AsyncGenerator<StreamEvent>;
  readonly #options: StreamOptions;
  readonly #form: StreamForm;
  readonly #encoder = new TextEncoder();
  readonly #timer: NodeJS.Timeout;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  /** Events that are to be written in the next turn of the event loop. */
  #text = "";
  #onTaken: () => void = () => {};
  #writtenAt = performance.now();
  #isOver = false;

  constructor(
    events: AsyncGenerator<StreamEvent>,
    first: Promise<IteratorResult<StreamEvent>>,
    options: StreamOptions,
  ) {
    this.#events = events;
    this.#options = options;
    this.#form = options.form ?? EVENTS;
    this.body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#controller = controller;
      },
      pull: () => this.#onTaken(),
      cancel: (reason) => this.#leave(reason),
    });
    this.#timer = setInterval(() => this.#tick(), Math.min(options.pingSeconds, options.stalledSeconds) * 500);
    this.#timer.unref();
    void this.#run(first);
  }

  async #run(first: Promise<IteratorResult<StreamEvent>>): Promise<void> {
    try {
      for (let next = await first; !next.done; next = await this.#events.next()) {
        if (this.#isOver) return;
        this.#write(this.#form.write(next.value));
        if (!this.#isTaken || this.#text.length > UNWRITTEN_MAX) await this.#taken();
      }
    } catch (error) {
      if (this.#isOver) return;
      for (const event of this.#options.failed(error)) this.#write(this.#form.write(event));
    }
    if (!this.#isOver) this.#close();
  }

  /** Whether the reader has taken what was written before. */
  get #isTaken(): boolean {
    return (this.#controller.desiredSize ?? 0) > 0;
  }

  #taken(): Promise<void> {
    return new Promise((resolve) => {
      this.#onTaken = resolve;
    });
  }

  #write(text: string): void {
    if (this.#text === "") setImmediate(() => this.#flush());
    this.#text += text;
  }

  #flush(): void {
    if (this.#isOver || this.#text === "") return;
    this.#writtenAt = performance.now();
    this.#controller.enqueue(this.#encoder.encode(this.#text));
    this.#text = "";
  }

  #close(): void {
    this.#flush();
    this.#end();
    this.#controller.close();
  }

  #end(): void {
    this.#isOver = true;
    this.#onTaken();
    clearInterval(this.#timer);
  }

  /** A ping where nothing happens; an end where nothing is taken. */
  #tick(): void {
    const { pingSeconds, stalledSeconds, ping } = this.#options;
    const quiet = (performance.now() - this.#writtenAt) / 1000;
    const isTaken = this.#isTaken;
    if (isTaken && quiet >= pingSeconds) this.#write(ping ? ping().map(this.#form.write).join("") : this.#form.ping);
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
