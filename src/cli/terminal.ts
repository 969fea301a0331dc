/** What a command sees of the outside: streams, and interrupts as an abort signal. Tests bring streams of their own. */
import { once } from "node:events";
import type { Readable } from "node:stream";
import { cannotWrite } from "../tools/index.ts";
import { type OutputStream, Progress } from "./progress.ts";

export interface Streams {
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
}

/** Runners such as npx pass on a Ctrl-C that the terminal has sent already: within this time, two are one. */
const SAME_INTERRUPT_MS = 200;

/** The reason of an abort that the user asked for. */
export class Interrupted extends Error {
  readonly exitCode: number;
  constructor(exitCode: number) {
    super("interrupted");
    this.exitCode = exitCode;
  }
}

/** Exit codes of shells for programs that a signal ended. */
export const SIGINT_EXIT_CODE = 130;
export const SIGTERM_EXIT_CODE = 143;

export class Terminal {
  readonly stdin: Streams["stdin"];
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly #controller = new AbortController();
  #handler: (() => void) | null = null;
  #endsItself = false;
  #lastInterrupt = Number.NEGATIVE_INFINITY;

  constructor({ stdin, stdout, stderr }: Streams) {
    this.stdin = stdin;
    this.stdout = stdout;
    this.stderr = stderr;
    // A reader that has gone away, as in `lowbit inspect x.pte | head -1`, or a full disk.
    stdout.on("error", (error) => this.#controller.abort(cannotWrite("standard output", error)));
    stderr.on("error", () => {});
  }

  /** Aborts on an interrupt, and when nobody reads the output any more or it cannot be written. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether a person is there to answer. */
  get isInteractive(): boolean {
    return this.stdin.isTTY === true && this.stdout.isTTY === true;
  }

  /** Ctrl-C: calls the handler if one is set, else aborts. False when there is nothing left to stop. */
  interrupt(exitCode: number = SIGINT_EXIT_CODE): boolean {
    const now = performance.now();
    if (now - this.#lastInterrupt < SAME_INTERRUPT_MS) return true;
    this.#lastInterrupt = now;
    if (this.#handler && (exitCode === SIGINT_EXIT_CODE || this.#endsItself)) this.#handler();
    else if (this.signal.aborted) return false;
    else this.#controller.abort(new Interrupted(exitCode));
    return true;
  }

  /** Takes over Ctrl-C; null gives it back. */
  onInterrupt(handler: (() => void) | null): void {
    this.#handler = handler;
    this.#endsItself = false;
  }

  /** Takes over Ctrl-C and SIGTERM: the command ends by itself, in its own time. */
  onTermination(handler: () => void): void {
    this.#handler = handler;
    this.#endsItself = true;
  }

  /** Whether the command takes the time that it needs to end after a SIGTERM. */
  get endsItself(): boolean {
    return this.#endsItself;
  }

  /** Writes to the output and waits while it is full. */
  async write(text: string): Promise<void> {
    this.signal.throwIfAborted();
    if (!this.stdout.write(text)) await once(this.stdout, "drain", { signal: this.signal });
  }

  /** Resolves when all output has been taken; throws what kept it from that. */
  async written(): Promise<void> {
    await new Promise<void>((resolve) => this.stdout.write("", () => setImmediate(resolve)));
    this.signal.throwIfAborted();
  }

  async writeLine(text = ""): Promise<void> {
    await this.write(`${text}\n`);
  }

  async writeJson(value: unknown): Promise<void> {
    await this.writeLine(JSON.stringify(value));
  }

  /** A line for the user, on the error stream: output stays clean. */
  note(line: string): void {
    this.stderr.write(`${line}\n`);
  }

  /** Tells that the command waits for another process. */
  readonly onWait = (reason: string): void => this.note(`lowbit: ${reason}`);

  /** Shows how far long work has come, on the error stream. */
  progress(label: string): Progress {
    return new Progress(this.stderr, label);
  }
}
