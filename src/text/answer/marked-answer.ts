/** Answers in which markers separate thinking and calls from text. */
import type { ThinkingTags } from "../thinking.ts";
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";

/** Reads an answer to its end. Thinking begins with the answer or never: a later marker is only a mention of it. */
export function* readMarkedAnswer(
  cursor: AnswerCursor,
  writer: AnswerWriter,
  { calls, thinking }: { readonly calls: CallFormat | null; readonly thinking: ThinkingTags | null },
): Reading<void> {
  if (thinking && !writer.isThinking && (yield* cursor.attempt(() => begins(cursor, thinking.begin))))
    writer.think(true);
  if (!writer.isThinking) yield* readBare(cursor, writer, calls);
  const starts = calls?.starts ?? [];
  /** Whether thinking is still open: its end marker, or a call within it, ends it. */
  let isDue = writer.isThinking;
  const place = new Place();
  const take = (text: string) => {
    place.take(text);
    writer.write(text);
  };
  for (;;) {
    const marker = yield* cursor.until(isDue ? [...starts, thinking!.end] : starts, take);
    if (marker === null) return;
    if (isDue && marker === thinking!.end) {
      if (yield* place.isQuoted(cursor)) take(marker);
      else {
        isDue = false;
        writer.think(false);
        yield* readBare(cursor, writer, calls);
      }
    } else if (!(yield* cursor.attempt(() => calls!.read(cursor, marker, writer)))) take(marker);
  }
}

function* begins(cursor: AnswerCursor, marker: string): Reading<boolean> {
  yield* cursor.skipSpace();
  return yield* cursor.takes(marker);
}

/** Remembers the text before the cursor, to tell a quoted mention of a marker from a marker. */
class Place {
  /** The last two characters read. */
  #last = "";
  /** Whether inline code is open in this line. */
  #inCode = false;

  take(text: string): void {
    const line = text.lastIndexOf("\n");
    if (line >= 0) this.#inCode = false;
    if (text.slice(line + 1).split("`").length % 2 === 0) this.#inCode = !this.#inCode;
    this.#last = (this.#last + text).slice(-2);
  }

  /** Whether the marker just read is quoted: it stands between quotes or backticks. */
  *isQuoted(cursor: AnswerCursor): Reading<boolean> {
    const quote = this.#last.at(-1) ?? "";
    const isStarted = quote === "`" ? this.#inCode : /^[^\p{L}\p{N}.,;:!?]?["']$/u.test(this.#last);
    return isStarted && (yield* cursor.peek()) === quote;
  }
}

function* readBare(cursor: AnswerCursor, writer: AnswerWriter, calls: CallFormat | null): Reading<void> {
  if (!calls?.readBare) return;
  yield* cursor.attempt(function* () {
    yield* cursor.skipSpace();
    return yield* calls.readBare!(cursor, writer);
  });
}
