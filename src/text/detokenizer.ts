/** Streams token ids to text, never emitting half a character. */
import { InvalidArgumentError } from "../errors.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** Most tokens in the window before it is cut; bounds the work per token. */
const WINDOW_MAX = 16;

const NONE: ReadonlySet<number> = new Set();

/**
 * Least tokens kept in the window: an unfinished UTF-8 sequence has at most 3 bytes, each of which may be a token, and one more
 * token gives it left context.
 */
const CONTEXT_MIN = 4;

export interface DetokenizerOptions {
  /**
   * Preceding ids, whose text is not repeated: a word after them keeps its leading space, which SentencePiece tokenizers drop
   * at the start of a text. Without effect when the last of them is special.
   */
  readonly after?: ArrayLike<number> | undefined;
  /** Special tokens whose text is emitted, too. Default none. */
  readonly shownIds?: ReadonlySet<number> | undefined;
}

/**
 * Streaming detokenizer. The texts that `push` and finally `flush` return join to
 * `tokenizer.decode(ids, { skipSpecialTokens: true, stream: true })` of all ids. Only a short window of ids is decoded again.
 */
export class Detokenizer {
  readonly #tokenizer: Tokenizer;
  readonly #shownIds: ReadonlySet<number>;
  /** Latest ids, their text, and the length of it that was emitted. */
  #window: number[] = [];
  #text = "";
  #emitted = 0;

  constructor(tokenizer: Tokenizer, options: DetokenizerOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#shownIds = options.shownIds ?? NONE;
    const after = options.after ?? [];
    for (let i = after.length - 1; i >= 0 && this.#window.length < WINDOW_MAX / 2; i--) {
      if (!isText(tokenizer, after[i]!)) break;
      this.#window.unshift(after[i]!);
    }
    this.#text = tokenizer.decode(this.#window, { stream: true });
    this.#emitted = finishedLength(this.#text);
  }

  /**
   * Adds a token and returns the text that it completes, "" while a character is incomplete. Special tokens and ids above the
   * vocabulary, which padded models have, give no text; InvalidArgumentError for an invalid id.
   */
  push(id: number): string {
    if (!Number.isInteger(id) || id < 0)
      throw new InvalidArgumentError(`detokenizer: expected a token id but found ${id}`);
    if (!isText(this.#tokenizer, id) && !this.#shownIds.has(id)) return "";
    this.#window.push(id);
    this.#text = this.#tokenizer.decode(this.#window, { stream: true });
    const piece = this.#take(finishedLength(this.#text));
    if (this.#window.length >= WINDOW_MAX) this.#shrink();
    return piece;
  }

  /** Returns the rest of the text, U+FFFD for an incomplete character. The next token then starts a new text. */
  flush(): string {
    const rest = this.#take(this.#text.length);
    this.#window = [];
    this.#text = "";
    this.#emitted = 0;
    return rest;
  }

  #take(end: number): string {
    const piece = this.#text.slice(this.#emitted, end);
    this.#emitted = Math.max(this.#emitted, end);
    return piece;
  }

  /**
   * Keeps the fewest latest ids that by themselves decode to the end of the text, so that the cut is not within a character.
   */
  #shrink(): void {
    for (let count = CONTEXT_MIN; count < this.#window.length; count++) {
      const kept = this.#window.slice(-count);
      const text = this.#tokenizer.decode(kept, { stream: true });
      const dropped = this.#text.length - text.length;
      if (dropped > this.#emitted || !this.#text.endsWith(text)) continue;
      this.#window = kept;
      this.#text = text;
      this.#emitted -= dropped;
      return;
    }
  }
}

function isText(tokenizer: Tokenizer, id: number): boolean {
  return id < tokenizer.vocabSize && !tokenizer.isSpecial(id);
}

/** Length of the text without a final U+FFFD, which may be an incomplete character. */
function finishedLength(text: string): number {
  return text.endsWith("\uFFFD") ? text.length - 1 : text.length;
}
