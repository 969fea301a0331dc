/** Requests to the hub: errors with what to do, another try where one may help, no waiting for what has stalled. */
import { setTimeout as delay } from "node:timers/promises";
import { LowbitError } from "../errors.ts";

/** The hub, or the way to it, does not give what was asked for. */
export class HubError extends LowbitError {
  /** Whether another try may help. */
  readonly temporary: boolean;
  constructor(message: string, temporary = false, options?: ErrorOptions) {
    super(message, options);
    this.temporary = temporary;
  }
}

export interface RequestOptions {
  readonly token: string | null;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds without any byte after which a connection is given up. Default 30 s. */
  readonly stallMs?: number | undefined;
  /** Tries in all. Default 5. */
  readonly tries?: number | undefined;
  /** Milliseconds before the second try; each later wait is twice as long. Default 500. */
  readonly waitMs?: number | undefined;
}

const STALL_MS = 30_000;
const TRIES = 5;
const WAIT_MS = 500;

/** Repeats `work` after errors that may pass. An abort throws the signal's reason at once. */
export async function retried<R>(options: RequestOptions, work: () => Promise<R>): Promise<R> {
  const { tries = TRIES, waitMs = WAIT_MS, signal } = options;
  for (let attempt = 1; ; attempt++) {
    signal?.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      signal?.throwIfAborted();
      if (!(error instanceof HubError && error.temporary) || attempt >= tries) throw error;
    }
    await delay(waitMs * 2 ** (attempt - 1), undefined, signal ? { signal } : {}).catch(() => signal?.throwIfAborted());
  }
}

/** A watch that aborts when nothing has been heard for a while. */
export class StallWatch {
  readonly signal: AbortSignal;
  readonly #controller = new AbortController();
  readonly #ms: number;
  #timer: NodeJS.Timeout | undefined;

  constructor({ signal, stallMs = STALL_MS }: RequestOptions) {
    this.#ms = stallMs;
    this.signal = signal ? AbortSignal.any([signal, this.#controller.signal]) : this.#controller.signal;
    this.heard();
  }

  heard(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#controller.abort(new HubError("stalled", true)), this.#ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

/** One request. HubError for a status other than 2xx and 3xx, naming what to do. */
export async function request(
  url: string,
  init: { method?: string; headers?: Record<string, string>; redirect?: "manual" | "follow" },
  { token, signal }: RequestOptions,
  watch: StallWatch,
): Promise<Response> {
  const headers = { ...init.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  let response: Response;
  try {
    response = await fetch(url, { ...init, headers, signal: watch.signal });
  } catch (cause) {
    signal?.throwIfAborted();
    const reason = (cause as Error & { cause?: Error }).cause?.message ?? (cause as Error).message;
    throw new HubError(`${url}: cannot be reached: ${reason}`, true, { cause });
  }
  if (response.status < 400) return response;
  await response.body?.cancel().catch(() => {});
  throw statusError(url, response.status);
}

function statusError(url: string, status: number): HubError {
  if (status === 401 || status === 403)
    return new HubError(`${url}: access denied (${status}); accept the model's terms and set HF_TOKEN`);
  if (status === 404)
    return new HubError(`${url}: not found; check the name and revision, and HF_TOKEN if it is private`);
  return new HubError(`${url}: status ${status}`, status === 408 || status === 429 || status >= 500);
}
