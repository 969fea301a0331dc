/** Answers in which marks set thinking and calls apart from text. */
import type { ThinkingMarks } from "../thinking.ts";
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";

/** Reads an answer to its end. */
export function* readMarkedAnswer(
  cursor: AnswerCursor,
  writer: AnswerWriter,
  { calls, thinking }: { readonly calls: CallFormat | null; readonly thinking: ThinkingMarks | null },
): Reading<void> {
  const starts = calls?.starts ?? [];
  const outside = [...starts, ...(thinking ? [thinking.begin, thinking.end] : [])];
  const inside = [...starts, ...(thinking ? [thinking.end] : [])];
  for (let isFirst = true; ; ) {
    if (isFirst && !writer.isThinking) {
      isFirst = false;
      yield* readBare(cursor, writer, calls);
    }
    const mark = yield* cursor.until(writer.isThinking ? inside : outside, writer.write);
    if (mark === null) return;
    if (mark === thinking?.begin) writer.think(true);
    else if (mark === thinking?.end && writer.isThinking) {
      writer.think(false);
      isFirst = true;
    } else if (!starts.includes(mark) || !(yield* cursor.attempt(() => calls!.read(cursor, mark, writer))))
      writer.write(mark);
  }
}

function* readBare(cursor: AnswerCursor, writer: AnswerWriter, calls: CallFormat | null): Reading<void> {
  if (!calls?.readBare) return;
  yield* cursor.attempt(function* () {
    yield* cursor.skipSpace();
    return yield* calls.readBare!(cursor, writer);
  });
}
