/** The text of an answer as it comes, read by generators that yield where they need more of it. */

/** A reading of text: yields when all that has come is read, and goes on when there is more or the text has ended. */
export type Reading<T> = Generator<void, T, void>;

/** Consumed text is dropped from this length on. */
const DROPPED_FROM = 4096;

export class AnswerCursor {
  #text = "";
  #at = 0;
  #isEnded = false;
  /** Places that may be returned to. */
  #kept = 0;

  /** Appends text that has come. */
  add(piece: string): void {
    if (this.#kept === 0 && this.#at >= DROPPED_FROM) {
      this.#text = this.#text.slice(this.#at);
      this.#at = 0;
    }
    this.#text += piece;
  }

  /** No more text will come. */
  end(): void {
    this.#isEnded = true;
  }

  /** The next character, "" at the end of the text. */
  *peek(): Reading<string> {
    while (this.#at >= this.#text.length && !this.#isEnded) yield;
    return this.#text[this.#at] ?? "";
  }

  /** Passes over characters that have come. */
  skip(count: number): void {
    this.#at += count;
  }

  /** What has come and is not read yet. */
  get rest(): string {
    return this.#text.slice(this.#at);
  }

  /** Passes over white space, and gives the character behind it, "" at the end. */
  *skipSpace(): Reading<string> {
    for (;;) {
      const character = yield* this.peek();
      if (character === "" || !/\s/.test(character)) return character;
      this.#at++;
    }
  }

  /** Whether the text goes on with a literal, which is passed over then. */
  *takes(literal: string): Reading<boolean> {
    for (;;) {
      if (this.#text.startsWith(literal, this.#at)) {
        this.#at += literal.length;
        return true;
      }
      const rest = this.rest;
      if (this.#isEnded || !literal.startsWith(rest)) return false;
      yield;
    }
  }

  /**
   * Gives the text before the first of some marks to `take`, in pieces that belong to none for certain, and passes over the
   * mark: of several that begin at one place, the longest. Null when the text ends without one.
   */
  *until(marks: readonly string[], take: (text: string) => void): Reading<string | null> {
    for (;;) {
      const found = this.#find(marks);
      if (found.start > this.#at) take(this.#text.slice(this.#at, found.start));
      this.#at = found.start;
      if (found.mark !== null) {
        this.#at += found.mark.length;
        return found.mark;
      }
      if (this.#isEnded) return null;
      yield;
    }
  }

  /** The text up to one of some marks, which is passed over; null, at the same place, when there is none. */
  *before(marks: readonly string[]): Reading<{ readonly text: string; readonly mark: string } | null> {
    return yield* this.attempt(
      function* (this: AnswerCursor) {
        let text = "";
        const mark = yield* this.until(marks, (piece) => {
          text += piece;
        });
        return mark === null ? null : { text, mark };
      }.bind(this),
    );
  }

  /** A reading that leaves the place as it was where it gives null or false. */
  *attempt<T>(reading: () => Reading<T>): Reading<T> {
    const start = this.#at;
    this.#kept++;
    try {
      const result = yield* reading();
      if (result === null || result === false) this.#at = start;
      return result;
    } finally {
      this.#kept--;
    }
  }

  /** The first mark, or else where one may begin or the text ends. */
  #find(marks: readonly string[]): { readonly start: number; readonly mark: string | null } {
    const text = this.#text;
    let start = text.length;
    let mark: string | null = null;
    for (const candidate of marks) {
      const at = text.indexOf(candidate, this.#at);
      if (at < 0 || at > start || (at === start && mark !== null && mark.length > candidate.length)) continue;
      start = at;
      mark = candidate;
    }
    if (this.#isEnded) return { start, mark };
    // One may begin earlier, or be longer, when more has come.
    for (const candidate of marks)
      for (let at = Math.max(this.#at, text.length - candidate.length + 1); at <= start && at < text.length; at++)
        if (candidate.startsWith(text.slice(at)) && (at < start || mark === null || candidate.length > mark.length)) {
          start = at;
          mark = null;
        }
    return { start, mark };
  }
}
