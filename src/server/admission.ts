/** Admission: a bounded number of texts is generated at once, and requests beyond that wait in a bounded queue. */
import { ApiError } from "./errors.ts";

interface Waiting {
  readonly units: number;
  readonly admit: () => void;
}

export class Admission {
  readonly #running: number;
  readonly #waiting: number;
  readonly #queue: Waiting[] = [];
  #used = 0;

  /** `running`: most texts generated at once; `waiting`: most requests in the queue. */
  constructor(limits: { readonly running: number; readonly waiting: number }) {
    this.#running = limits.running;
    this.#waiting = limits.waiting;
  }

  /** Number of texts that are being generated. */
  get running(): number {
    return this.#used;
  }

  /** Number of requests in the queue. */
  get waiting(): number {
    return this.#queue.length;
  }

  /**
   * Waits until `units` texts may be generated, and gives the function to call when they are done. A request for more texts
   * than may run at once runs alone. ApiError 429 when the queue is full; an abort throws the signal's reason.
   */
  async enter(units: number, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const size = Math.min(units, this.#running);
    if (this.#queue.length > 0 || this.#used + size > this.#running) await this.#wait(size, signal);
    else this.#used += size;
    let isLeft = false;
    return () => {
      if (isLeft) return;
      isLeft = true;
      this.#used -= size;
      this.#admitNext();
    };
  }

  #wait(units: number, signal: AbortSignal): Promise<void> {
    if (this.#queue.length >= this.#waiting)
      throw new ApiError(429, `${this.#waiting} requests wait already; try again later`, {
        code: "queue_full",
        retryAfter: 1,
      });
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#queue.splice(this.#queue.indexOf(waiting), 1);
        reject(signal.reason);
        this.#admitNext();
      };
      const waiting: Waiting = {
        units,
        admit: () => {
          signal.removeEventListener("abort", onAbort);
          resolve();
        },
      };
      signal.addEventListener("abort", onAbort);
      this.#queue.push(waiting);
    });
  }

  #admitNext(): void {
    for (let next = this.#queue[0]; next && this.#used + next.units <= this.#running; next = this.#queue[0]) {
      this.#queue.shift();
      this.#used += next.units;
      next.admit();
    }
  }
}
