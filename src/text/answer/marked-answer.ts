/** Answers in which markers set thinking and calls apart from text. */
import type { ThinkingTags } from "../thinking.ts";
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";

/** Reads an answer to its end. Thinking begins with it, or never: a marker that comes later is mentioned. */
export function* readMarkedAnswer(
  cursor: AnswerCursor,
  writer: AnswerWriter,
  { calls, thinking }: { readonly calls: CallFormat | null; readonly thinking: ThinkingTags | null },
): Reading<void> {
  if (thinking && !writer.isThinking && (yield* cursor.attempt(() => begins(cursor, thinking.begin))))
    writer.think(true);
  if (!writer.isThinking) yield* readBare(cursor, writer, calls);
  const starts = calls?.starts ?? [];
  /** Whether the marker that ends thinking is due: a call within it may end it, too. */
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

/** The place behind what was read, which tells a marker that is mentioned from one that counts. */
class Place {
  /** The last two characters. */
  #last = "";
  /** Whether a piece of code has begun in the line. */
  #inCode = false;

  take(text: string): void {
    const line = text.lastIndexOf("\n");
    if (line >= 0) this.#inCode = false;
    if (text.slice(line + 1).split("`").length % 2 === 0) this.#inCode = !this.#inCode;
    this.#last = (this.#last + text).slice(-2);
  }

  /** Whether a marker that was passed stands in quotes, or in code, which begin before it and end behind it. */
  *isQuoted(cursor: AnswerCursor): Reading<boolean> {
    const quote = this.#last.at(-1) ?? "";
    const isBegun = quote === "`" ? this.#inCode : /^[^\p{L}\p{N}.,;:!?]?["']$/u.test(this.#last);
    return isBegun && (yield* cursor.peek()) === quote;
  }
}

function* readBare(cursor: AnswerCursor, writer: AnswerWriter, calls: CallFormat | null): Reading<void> {
  if (!calls?.readBare) return;
  yield* cursor.attempt(function* () {
    yield* cursor.skipSpace();
    return yield* calls.readBare!(cursor, writer);
  });
}
