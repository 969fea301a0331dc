/** The terminal of a command: streams, and interrupts as an abort signal. Tests bring their own streams. */
import { once } from "node:events";
import type { Readable } from "node:stream";
import { cannotWrite } from "../tools/index.ts";
import { type OutputStream, Progress } from "./progress.ts";

export interface Streams {
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
}

/** Runners such as npx repeat a Ctrl-C that the terminal has sent already: within this time, two count as one. */
const SAME_INTERRUPT_MS = 200;

/** The reason of an abort that the user asked for. */
export class Interrupted extends Error {
  readonly exitCode: number;
  constructor(exitCode: number) {
    super("interrupted");
    this.exitCode = exitCode;
  }
}

/** The program that the command ran ended with an exit code other than 0, which becomes the command's. */
export class ClientEnded extends Error {
  readonly exitCode: number;
  constructor(exitCode: number) {
    super(`the client ended with ${exitCode}`);
    this.exitCode = exitCode;
  }
}

/** Exit codes of shells for programs ended by a signal: 128 + its number. */
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
    // The reader has gone, as in `lowbit inspect x.pte | head -1`, or the disk is full.
    stdout.on("error", (error) => this.#controller.abort(cannotWrite("standard output", error)));
    stderr.on("error", () => {});
  }

  /** Aborts on an interrupt, and when the output cannot be written any more. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether both input and output are a terminal, so that a person can answer. */
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

  /** Sets the handler of Ctrl-C; null removes it. */
  onInterrupt(handler: (() => void) | null): void {
    this.#handler = handler;
    this.#endsItself = false;
  }

  /** Sets the handler of Ctrl-C and SIGTERM, which must end the command. */
  onTermination(handler: () => void): void {
    this.#handler = handler;
    this.#endsItself = true;
  }

  /** Whether the command ends by itself after SIGTERM, in its own time. */
  get endsItself(): boolean {
    return this.#endsItself;
  }

  /** Writes to the output and waits while it is full. */
  async write(text: string): Promise<void> {
    this.signal.throwIfAborted();
    if (!this.stdout.write(text)) await once(this.stdout, "drain", { signal: this.signal });
  }

  /** Resolves when all output has been taken; throws the error of writing it. */
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

  /** Prints a line for the user on the error stream, so that the output stays clean. */
  note(line: string): void {
    this.stderr.write(`${line}\n`);
  }

  /** Notes that the command waits for another process. */
  readonly onWait = (reason: string): void => this.note(`lowbit: ${reason}`);

  /** Shows progress of long work on the error stream. */
  progress(label: string): Progress {
    return new Progress(this.stderr, label);
  }
}
