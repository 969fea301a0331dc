/** How the model of a template writes its answers: chosen by what the template contains. */

import { thinkingMarks } from "../thinking.ts";
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { readMarkedAnswer } from "./marked-answer.ts";
import { taggedJson } from "./tagged-json.ts";

/** How answers are read. */
export interface AnswerFormat {
  /** Texts that have a meaning: tokens that are such a text are shown to the parser. */
  readonly marks: readonly string[];
  /** Text that ends the model's thinking; "" for models that do not think. */
  readonly closeThinking: string;
  /** Reads an answer to its end. */
  read(cursor: AnswerCursor, writer: AnswerWriter): Reading<void>;
}

/** The format of a template; that of plain text without one. Calls are only looked for where there are tools. */
export function answerFormat(template: string, hasTools: boolean): AnswerFormat {
  const thinking = thinkingMarks(template);
  const calls = hasTools ? callFormat(template) : null;
  return {
    marks: [...(calls?.marks ?? []), ...(thinking ? [thinking.begin, thinking.end] : [])],
    closeThinking: thinking?.close ?? "",
    read: (cursor, writer) => readMarkedAnswer(cursor, writer, { calls, thinking }),
  };
}

function callFormat(template: string): CallFormat {
  return taggedJson(template);
}
