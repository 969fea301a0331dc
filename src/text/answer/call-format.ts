/** How a family of models writes calls of tools. */
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";

export interface CallFormat {
  /** Texts that begin calls. */
  readonly starts: readonly string[];
  /** All texts that have a meaning, `starts` included: tokens that are such a text are shown. */
  readonly marks: readonly string[];
  /**
   * Reads what follows a text of `starts`. False where that is no call: it is text then, and so is the mark. Once a call has
   * begun, true, with the rest left to be read as text.
   */
  read(cursor: AnswerCursor, start: string, writer: AnswerWriter): Reading<boolean>;
  /** Reads calls that nothing marks, at the beginning of an answer's text. False where there is none. */
  readBare?(cursor: AnswerCursor, writer: AnswerWriter): Reading<boolean>;
}
