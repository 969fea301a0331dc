/**
 * Texts that are pasted into a terminal: terminals that are asked put marks around them (bracketed paste), so that a text of
 * several lines can be told from lines that are typed. Such a text stands in the line that is edited as "[2 lines pasted]".
 */
import { Transform } from "node:stream";
import type { Streams } from "./terminal.ts";

const START = Buffer.from("\x1b[200~");
const END = Buffer.from("\x1b[201~");
const ASK = "\x1b[?2004h";
const ASK_NO_MORE = "\x1b[?2004l";
const INTERRUPT = 3;

/** What is typed of a terminal's input. Pasted texts of several lines are kept, and a placeholder is typed for each. */
export class PastedText extends Transform {
  readonly #stdin: Streams["stdin"] & { setRawMode?(isRaw: boolean): unknown };
  readonly #stdout: Streams["stdout"];
  /** Texts by their placeholders. */
  readonly #texts = new Map<string, string>();
  /** What may be the beginning of a mark, or what was pasted so far. */
  #kept = Buffer.alloc(0);
  #isPasting = false;

  /** Asks the terminal for marks; `close` takes that back. */
  constructor({ stdin, stdout }: Pick<Streams, "stdin" | "stdout">) {
    super();
    this.#stdin = stdin;
    this.#stdout = stdout;
    stdin.pipe(this);
    stdout.write(ASK);
  }

  /** Called by readline, for which this stands in for the terminal. */
  setRawMode(isRaw: boolean): this {
    this.#stdin.setRawMode?.(isRaw);
    return this;
  }

  close(): void {
    this.#stdin.unpipe(this);
    this.#stdin.pause();
    this.#stdout.write(ASK_NO_MORE);
  }

  /** A line with the texts that its placeholders stand for. */
  whole(line: string): string {
    let text = line;
    for (const [placeholder, pasted] of this.#texts) text = text.replace(placeholder, () => pasted);
    return text;
  }

  override _transform(chunk: Buffer, _encoding: string, done: () => void): void {
    let rest = Buffer.concat([this.#kept, chunk]);
    for (;;) {
      const mark = this.#isPasting ? END : START;
      const found = rest.indexOf(mark);
      // Terminals take it out of what is pasted: it is typed, where the mark at the end has been lost.
      const interrupt = this.#isPasting ? rest.indexOf(INTERRUPT) : -1;
      if (found < 0 && interrupt < 0) break;
      const isMark = found >= 0 && (interrupt < 0 || found < interrupt);
      const end = isMark ? found : interrupt;
      if (this.#isPasting) this.#paste(rest.subarray(0, end).toString());
      else this.push(rest.subarray(0, end));
      this.#isPasting = isMark && !this.#isPasting;
      rest = rest.subarray(isMark ? end + mark.length : end);
    }
    const kept = this.#isPasting ? rest.length : beginningOf(START, rest);
    this.push(rest.subarray(0, rest.length - kept));
    this.#kept = rest.subarray(rest.length - kept);
    done();
  }

  override _flush(done: () => void): void {
    if (this.#isPasting) this.#paste(this.#kept.toString());
    else this.push(this.#kept);
    done();
  }

  #paste(pasted: string): void {
    const text = pasted.replaceAll(/\r\n?/g, "\n").replaceAll(/(?![\n\t])\p{Cc}/gu, "");
    const lines = text.trimEnd().split("\n").length;
    if (lines < 2) {
      // A tab would be taken as a key that completes words.
      this.push(text.trimEnd().replaceAll("\t", "  "));
      return;
    }
    const known = [...this.#texts.keys()].some((placeholder) => placeholder.startsWith(`[${lines} lines pasted`));
    const placeholder = `[${lines} lines pasted${known ? `, ${this.#texts.size + 1}` : ""}]`;
    this.#texts.set(placeholder, text);
    this.push(placeholder);
  }
}

/** How many of the last bytes are the first of a mark. The Escape key, which has no meaning here, waits for what follows it. */
function beginningOf(mark: Buffer, bytes: Buffer): number {
  for (let length = Math.min(mark.length - 1, bytes.length); length > 0; length--)
    if (bytes.subarray(bytes.length - length).equals(mark.subarray(0, length))) return length;
  return 0;
}
