/** Parses the text of an answer into events: its text, thinking and tool calls. */

import type { AnswerFormat } from "./answer-format.ts";
import { AnswerCursor, type Reading } from "./cursor.ts";
import { type AnswerEvent, AnswerWriter, type KnownTool } from "./events.ts";

/** Options of an AnswerParser. */
export interface AnswerParserOptions {
  readonly tools: readonly KnownTool[];
  /** Whether the prompt has opened the model's thinking. */
  readonly isThinking: boolean;
  /** Makes the id of a call. */
  readonly makeId: () => string;
}

/**
 * Parses an answer that comes in pieces. The joined events do not depend on how the answer is cut. Text becomes an event as
 * soon as it cannot be part of a marker any more.
 */
export class AnswerParser {
  readonly writer: AnswerWriter;
  readonly #cursor = new AnswerCursor();
  readonly #reading: Reading<void>;

  constructor(format: AnswerFormat, { tools, isThinking, makeId }: AnswerParserOptions) {
    this.writer = new AnswerWriter(tools, makeId);
    if (isThinking) this.writer.think(true);
    this.#reading = format.read(this.#cursor, this.writer);
    this.#reading.next();
  }

  /** Adds a piece of the answer and returns the events that it completes. */
  push(piece: string): AnswerEvent[] {
    if (piece === "") return [];
    this.#cursor.add(piece);
    this.#reading.next();
    return this.writer.take();
  }

  /** Returns the last events when the answer has ended; `isCut`: a length limit ended it, not the model. */
  end(isCut = false): AnswerEvent[] {
    this.#cursor.end(isCut);
    this.#reading.next();
    this.writer.end();
    return this.writer.take();
  }
}
