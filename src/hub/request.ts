/** Requests to the hub: errors that say what to do, retries where they may help, and timeouts for stalled connections. */
import { setTimeout as delay } from "node:timers/promises";
import { LowbitError } from "../errors.ts";

/** The hub cannot be reached or does not provide what was asked for. */
export class HubError extends LowbitError {
  /** Whether a retry may help. */
  readonly temporary: boolean;
  /** Milliseconds that the server asks to wait before a retry. */
  readonly retryAfterMs: number;
  constructor(message: string, temporary = false, options: ErrorOptions & { retryAfterMs?: number } = {}) {
    super(message, options);
    this.temporary = temporary;
    this.retryAfterMs = options.retryAfterMs ?? 0;
  }
}

export interface RequestOptions {
  /** Access token, null without one. */
  readonly token: string | null;
  /** Aborts the request, which throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds without data after which a connection is abandoned. Default 30,000. */
  readonly stallMs?: number | undefined;
  /** Most attempts. Default 5. */
  readonly tries?: number | undefined;
  /** Milliseconds before the second attempt; each later wait is twice as long. Default 500. */
  readonly waitMs?: number | undefined;
}

const STALL_MS = 30_000;
const TRIES = 5;
const WAIT_MS = 500;
/** Longest wait that a server may ask for; a longer one is reported as an error. */
const RETRY_AFTER_MAX_MS = 300_000;

/** Retries `work` after temporary errors. An abort throws the signal's reason at once. */
export async function retried<R>(options: RequestOptions, work: () => Promise<R>): Promise<R> {
  const { tries = TRIES, waitMs = WAIT_MS, signal } = options;
  for (let attempt = 1; ; attempt++) {
    signal?.throwIfAborted();
    let asked: number;
    try {
      return await work();
    } catch (error) {
      signal?.throwIfAborted();
      if (!(error instanceof HubError && error.temporary) || attempt >= tries) throw error;
      asked = error.retryAfterMs;
      if (asked > RETRY_AFTER_MAX_MS) throw error;
    }
    await delay(Math.max(asked, waitMs * 2 ** (attempt - 1)), undefined, signal ? { signal } : {}).catch(() =>
      signal?.throwIfAborted(),
    );
  }
}

/** Aborts its signal when no data has arrived for a while. */
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

/** Sends one request. HubError for a status other than 2xx and 3xx, saying what to do. */
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
  throw statusError(url, response);
}

/** Milliseconds that a Retry-After header, in seconds or as a date, asks to wait; 0 without one. */
function retryAfterMs(headers: Headers): number {
  const value = headers.get("retry-after");
  if (value === null) return 0;
  const ms = /^\d+$/.test(value) ? 1000 * Number(value) : Date.parse(value) - Date.now();
  return Number.isFinite(ms) ? Math.max(0, ms) : 0;
}

function statusError(url: string, { status, headers }: Response): HubError {
  if (status === 401 || status === 403)
    return new HubError(`${url}: access denied (${status}); accept the model's terms and set HF_TOKEN`);
  if (status === 404)
    return new HubError(`${url}: not found; check the name and revision, and HF_TOKEN if it is private`);
  const asked = retryAfterMs(headers);
  const wait = asked > 0 ? `; the server asks to wait ${Math.ceil(asked / 1000)} s` : "";
  return new HubError(`${url}: status ${status}${wait}`, status === 408 || status === 429 || status >= 500, {
    retryAfterMs: asked,
  });
}
