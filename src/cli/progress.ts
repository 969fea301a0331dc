/** How far long work has come: a bar on a terminal, plain lines elsewhere. Work that ends soon shows nothing. */
import cliProgress from "cli-progress";
import type { OutputStream } from "./terminal.ts";

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
  #bar: cliProgress.SingleBar | null = null;

  constructor(stream: OutputStream, label: string, now: () => number = () => performance.now()) {
    this.#stream = stream;
    this.#label = label;
    this.#now = now;
    this.#start = now();
    this.#lastLine = this.#start;
  }

  /** A callback for `onProgress`; any unit serves. */
  readonly update = (done: number, total: number): void => {
    const now = this.#now();
    if (now - this.#start < QUIET_MS || total === 0) return;
    if (this.#stream.isTTY) this.#showBar(done, total);
    else if (now - this.#lastLine >= LINE_MS || (done >= total && this.#lastLine > this.#start)) {
      this.#lastLine = now;
      this.#stream.write(`${this.#label}: ${Math.floor((100 * done) / total)} %\n`);
    }
  };

  /** Takes the bar away. */
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
