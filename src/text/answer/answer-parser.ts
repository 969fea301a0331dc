/** Text of an answer to its events: thinking and calls of tools apart from what the answer says. */

import type { AnswerFormat } from "./answer-format.ts";
import { AnswerCursor, type Reading } from "./cursor.ts";
import { type AnswerEvent, AnswerWriter, type KnownTool } from "./events.ts";

/** What a parser is made for. */
export interface AnswerParserOptions {
  readonly tools: readonly KnownTool[];
  /** Whether the prompt has opened the model's thinking. */
  readonly isThinking: boolean;
  /** Makes ids of calls. */
  readonly makeId: () => string;
}

/**
 * Parses an answer that comes in pieces. However it is cut, the events join to the same. Text is given as soon as it belongs
 * to no marker for certain.
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

  /** Events that a piece of text completes. */
  push(piece: string): AnswerEvent[] {
    if (piece === "") return [];
    this.#cursor.add(piece);
    this.#reading.next();
    return this.writer.take();
  }

  /** The last events, when no more text comes: `isCut` where a limit has ended the answer, not the model. */
  end(isCut = false): AnswerEvent[] {
    this.#cursor.end(isCut);
    this.#reading.next();
    this.writer.end();
    return this.writer.take();
  }
}
