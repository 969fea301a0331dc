/** How the answers of a model are read. */
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
  /** Texts that begin calls. */
  readonly callStarts: readonly string[];
  /** Text that nothing but a call follows, with which `callSteps` begin; "" where these begin as any JSON does. */
  readonly callToken: string;
  /** What an answer is made of that must call a tool. */
  readonly callSteps: readonly CallStep[];
  /** Reads an answer to its end. */
  read(cursor: AnswerCursor, writer: AnswerWriter): Reading<void>;
}
