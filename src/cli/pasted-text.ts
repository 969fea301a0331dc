/**
 * Bracketed paste: terminals put marks around pasted text when asked to, which tells several pasted lines from typed ones.
 * A pasted text appears in the edited line as "[2 lines pasted]".
 */
import { Transform } from "node:stream";
import type { Streams } from "./terminal.ts";

const START = Buffer.from("\x1b[200~");
const END = Buffer.from("\x1b[201~");
const ASK = "\x1b[?2004h";
const ASK_NO_MORE = "\x1b[?2004l";
const INTERRUPT = 3;

/** A terminal's input in which pasted texts of several lines are replaced by placeholders. */
export class PastedText extends Transform {
  readonly #stdin: Streams["stdin"] & { setRawMode?(isRaw: boolean): unknown };
  readonly #stdout: Streams["stdout"];
  /** Pasted texts by their placeholders. */
  readonly #texts = new Map<string, string>();
  /** Bytes that may begin a mark, or the pasted text so far. */
  #kept = Buffer.alloc(0);
  #isPasting = false;

  /** Turns bracketed paste on; `close` turns it off. */
  constructor({ stdin, stdout }: Pick<Streams, "stdin" | "stdout">) {
    super();
    this.#stdin = stdin;
    this.#stdout = stdout;
    stdin.pipe(this);
    stdout.write(ASK);
  }

  /** Called by readline, which takes this stream for the terminal. */
  setRawMode(isRaw: boolean): this {
    this.#stdin.setRawMode?.(isRaw);
    return this;
  }

  close(): void {
    this.#stdin.unpipe(this);
    this.#stdin.pause();
    this.#stdout.write(ASK_NO_MORE);
  }

  /** A line with its placeholders replaced by the pasted texts. */
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
      // Terminals remove Ctrl-C from pasted text, so here it was typed, and the end mark has been lost.
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
      // readline would take a tab as the completion key.
      this.push(text.trimEnd().replaceAll("\t", "  "));
      return;
    }
    const known = [...this.#texts.keys()].some((placeholder) => placeholder.startsWith(`[${lines} lines pasted`));
    const placeholder = `[${lines} lines pasted${known ? `, ${this.#texts.size + 1}` : ""}]`;
    this.#texts.set(placeholder, text);
    this.push(placeholder);
  }
}

/**
 * Number of last bytes that may begin a mark. The Escape key alone waits for the bytes after it; it has no meaning here.
 */
function beginningOf(mark: Buffer, bytes: Buffer): number {
  for (let length = Math.min(mark.length - 1, bytes.length); length > 0; length--)
    if (bytes.subarray(bytes.length - length).equals(mark.subarray(0, length))) return length;
  return 0;
}
