/** How a family of models writes calls of tools. */
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";

/** A part of a call that an answer is constrained to: text that comes as it is, or one of what tools have. */
export type CallStep =
  | { readonly kind: "text"; readonly text: string }
  /** The name of a tool. */
  | { readonly kind: "name" }
  /** Arguments of the tool that was named, as JSON. */
  | { readonly kind: "arguments" }
  /** An object with name and arguments; `key` is that of the arguments. */
  | { readonly kind: "call"; readonly key: string };

export interface CallFormat {
  /** What an answer is made of that must call a tool. */
  readonly steps: readonly CallStep[];
  /** Texts that begin calls. */
  readonly starts: readonly string[];
  /** All texts that have a meaning, `starts` included: tokens that are such a text are shown. */
  readonly specialTokens: readonly string[];
  /**
   * Reads what follows a text of `starts`. False where that is no call: it is text then, and so is the marker. Once a call has
   * begun, true, with the rest left to be read as text.
   */
  read(cursor: AnswerCursor, start: string, writer: AnswerWriter): Reading<boolean>;
  /** Reads calls that nothing marks, at the beginning of an answer's text. False where there is none. */
  readBare?(cursor: AnswerCursor, writer: AnswerWriter): Reading<boolean>;
}
