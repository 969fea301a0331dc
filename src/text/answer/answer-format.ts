/** How the answer of a model is divided into text, thinking and tool calls. */
import type { CallStep } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";

export interface AnswerFormat {
  /** Special strings such as `<tool_call>`: tokens equal to one reach the parser instead of being dropped. */
  readonly specialTokens: readonly string[];
  /** Text that ends the model's thinking; "" for models that do not think. */
  readonly closeThinking: string;
  /** Text that begins the model's thinking; "" where there is none. */
  readonly beginThinking: string;
  /** Strings that begin a tool call. */
  readonly callStarts: readonly string[];
  /** Special token that only a call can follow and that `callSteps` begin with; "" where calls begin as any JSON does. */
  readonly callToken: string;
  /** Parts of an answer that must call a tool, in order. */
  readonly callSteps: readonly CallStep[];
  /** Reads an answer to its end. */
  read(cursor: AnswerCursor, writer: AnswerWriter): Reading<void>;
}
