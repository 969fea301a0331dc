/** How the answers of a model are read. */
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";

export interface AnswerFormat {
  /** Texts that have a meaning: tokens that are such a text are shown to the parser. */
  readonly marks: readonly string[];
  /** Text that ends the model's thinking; "" for models that do not think. */
  readonly closeThinking: string;
  /** Reads an answer to its end. */
  read(cursor: AnswerCursor, writer: AnswerWriter): Reading<void>;
}
