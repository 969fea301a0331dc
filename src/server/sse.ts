/** Streams of server-sent events or JSON lines: pings while nothing happens, an abort for clients that do not read. */
import { ApiError } from "./errors.ts";

/** An event of a stream: its name, where the API has names, and its data, which is written as JSON. */
export interface StreamEvent {
  readonly event?: string;
  /** Value that is written as JSON; a string is written as it is, and must be one line. */
  readonly data: unknown;
}

/** How events are written. */
export interface StreamForm {
  readonly contentType: string;
  readonly write: (event: StreamEvent) => string;
  /** Text that is sent while nothing happens; "" for none. */
  readonly ping: string;
}

export interface StreamOptions {
  /** How events are written. Default: server-sent events. */
  readonly form?: StreamForm | undefined;
  readonly pingSeconds: number;
  readonly stalledSeconds: number;
  /** Events that are sent while nothing happens, for APIs that have them; otherwise a comment is. */
  readonly ping?: () => readonly StreamEvent[];
  /** The events that report an error, and end the stream. */
  readonly failed: (error: unknown) => readonly StreamEvent[];
  /** Aborts the computation when the client has left or does not read. */
  readonly abort: (reason: unknown) => void;
}

/** A server-sent event. JSON has no line ends outside of its escapes, so no text can end an event or begin another. */
function formatEvent({ event, data }: StreamEvent): string {
  const text = typeof data === "string" ? data : JSON.stringify(data);
  return `${event === undefined ? "" : `event: ${event}\n`}data: ${text}\n\n`;
}

const EVENTS: StreamForm = {
  contentType: "text/event-stream; charset=utf-8",
  write: formatEvent,
  ping: ": ping\n\n",
};

/** JSON lines. */
export const LINES: StreamForm = {
  contentType: "application/x-ndjson",
  write: ({ data }) => `${JSON.stringify(data)}\n`,
  ping: "",
};

/** Characters waiting to be written from which on no more events are asked for. */
const UNWRITTEN_MAX = 65536;

const HEADERS = {
  "cache-control": "no-cache, no-transform",
  // nginx would buffer the stream otherwise.
  "x-accel-buffering": "no",
};

/**
 * A response that streams events. An error before the first event is thrown, so that it gets a status, unless the first
 * event takes longer than `pingSeconds`: a ping then begins the response.
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
 * Events as bytes. The next event is asked for before the present one is written, so that the model computes meanwhile, and
 * all events of one turn of the event loop are written together.
 */
class EventSource {
  readonly body: ReadableStream<Uint8Array>;
  readonly #events: AsyncGenerator<StreamEvent>;
  readonly #options: StreamOptions;
  readonly #form: StreamForm;
  readonly #encoder = new TextEncoder();
  readonly #timer: NodeJS.Timeout;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  /** Text of events, to be written in the next turn of the event loop. */
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

  /** Whether the client has read what was written before. */
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

  /** Sends a ping where nothing happens; aborts where nothing is read. */
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

/** Waits for a promise, at most `seconds`. It rejects if the promise rejects in that time. */
async function orAfter(seconds: number, promise: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, seconds * 1000);
  });
  await Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
