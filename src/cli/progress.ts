/** Shows the progress of long work: a bar on a terminal, plain lines elsewhere, nothing for short work. */

import type { Writable } from "node:stream";
import cliProgress from "cli-progress";

/** A standard stream, or a test's. */
export type OutputStream = Writable & { readonly isTTY?: boolean };

/** Work shorter than this shows nothing. */
const QUIET_MS = 500;
/** Time between two plain lines. */
const LINE_MS = 5000;

export class Progress {
  readonly #stream: OutputStream;
  readonly #label: string;
  readonly #now: () => number;
  readonly #start: number;
  #lastLine: number;
  /** Whether the last line said 100 %, which is printed once. */
  #hasEnded = false;
  #bar: cliProgress.SingleBar | null = null;

  constructor(stream: OutputStream, label: string, now: () => number = () => performance.now()) {
    this.#stream = stream;
    this.#label = label;
    this.#now = now;
    this.#start = now();
    this.#lastLine = this.#start;
  }

  /** A callback for `onProgress`, in any unit. */
  readonly update = (done: number, total: number): void => {
    const now = this.#now();
    if (now - this.#start < QUIET_MS || total === 0) return;
    if (this.#stream.isTTY) this.#showBar(done, total);
    else if (this.#isLineDue(now, done >= total)) {
      this.#lastLine = now;
      this.#hasEnded = done >= total;
      this.#stream.write(`${this.#label}: ${Math.floor((100 * done) / total)} %\n`);
    }
  };

  #isLineDue(now: number, isEnd: boolean): boolean {
    if (isEnd && this.#hasEnded) return false;
    return now - this.#lastLine >= LINE_MS || (isEnd && this.#lastLine > this.#start);
  }

  /** Removes the bar. */
  stop(): void {
    this.#bar?.stop();
    this.#bar = null;
  }

  #showBar(done: number, total: number): void {
    if (!this.#bar) {
      const options = { format: `${this.#label} {bar} {percentage} %, {eta_formatted} left` };
      const settings = { ...options, stream: this.#stream, clearOnComplete: true, hideCursor: true };
      this.#bar = new cliProgress.SingleBar(settings, cliProgress.Presets.rect);
      this.#bar.start(total, done);
    }
    this.#bar.update(done);
  }
}
