/** How a family of models writes tool calls. */
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";

/** A part of a call that an answer is constrained to: fixed text, or a field of one of the tools. */
export type CallStep =
  | { readonly kind: "text"; readonly text: string }
  /** The name of a tool. */
  | { readonly kind: "name" }
  /** Arguments of the tool that was named, as JSON. */
  | { readonly kind: "arguments" }
  /** A JSON object with name and arguments; `key` is the key of the arguments. */
  | { readonly kind: "call"; readonly key: string };

export interface CallFormat {
  /** Parts of an answer that must call a tool, in order. */
  readonly steps: readonly CallStep[];
  /** Strings that begin a call. */
  readonly starts: readonly string[];
  /** All special strings of the format, `starts` included: tokens equal to one reach the parser instead of being dropped. */
  readonly specialTokens: readonly string[];
  /**
   * Reads a call after one of `starts`. Returns false where what follows is not a call: it is text then, and so is the marker.
   * Returns true once a call has begun, even if it breaks off; the rest is then read as text.
   */
  read(cursor: AnswerCursor, start: string, writer: AnswerWriter): Reading<boolean>;
  /** Reads calls without a marker at the beginning of an answer's text. False where there is none. */
  readBare?(cursor: AnswerCursor, writer: AnswerWriter): Reading<boolean>;
}
