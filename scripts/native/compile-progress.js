/** A line of progress of a build: rewritten in place on a terminal, else a line of its own every ten seconds. */

const QUIET_SECONDS = 10;
/** A terminal shows that the build lives while one file is compiled. */
const TICK_MS = 1000;

export class CompileProgress {
  #done = 0;
  #all;
  #out;
  #start = performance.now();
  #lastLine = this.#start;
  #timer;

  /** @param {number} all files to compile @param {Pick<NodeJS.WriteStream, "write" | "isTTY">} out */
  constructor(all, out = process.stderr) {
    this.#all = all;
    this.#out = out;
    if (all === 0) return;
    this.#write();
    this.#timer = setInterval(() => this.#show(), TICK_MS);
  }

  /** One file more is compiled. */
  add() {
    this.#done++;
    this.#show();
  }

  end() {
    clearInterval(this.#timer);
    if (this.#out.isTTY && this.#all > 0) this.#out.write("\r\x1b[K");
  }

  #show() {
    if (this.#out.isTTY || performance.now() - this.#lastLine > QUIET_SECONDS * 1e3) this.#write();
  }

  #write() {
    const seconds = ((performance.now() - this.#start) / 1e3).toFixed(0);
    const line = `lowbit: compiling native kernels: ${this.#done} of ${this.#all} files, ${seconds} s`;
    this.#out.write(this.#out.isTTY ? `\r\x1b[K${line}` : `${line}\n`);
    this.#lastLine = performance.now();
  }
}
