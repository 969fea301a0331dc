/** A cursor over the text of an answer as it comes, read by generators that yield when they need more text. */

/**
 * A parser as a generator: it yields when all available text is read, and is resumed when there is more or the text has ended.
 */
export type Reading<T> = Generator<void, T, void>;

/** Number of consumed characters from which on they are dropped. */
const DROPPED_FROM = 4096;

export class AnswerCursor {
  #text = "";
  #at = 0;
  #isEnded = false;
  #isCut = false;
  /** Number of running attempts that may return to an earlier place; while it is not 0, no consumed text is dropped. */
  #kept = 0;

  /** Appends a piece of text. */
  add(piece: string): void {
    if (this.#kept === 0 && this.#at >= DROPPED_FROM) {
      this.#text = this.#text.slice(this.#at);
      this.#at = 0;
    }
    this.#text += piece;
  }

  /** Marks the end of the text; `isCut`: a limit ended it, and the model would have gone on. */
  end(isCut = false): void {
    this.#isEnded = true;
    this.#isCut = isCut;
  }

  /** Whether a limit ended the text, where the model would have gone on. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** The character `offset` places after the cursor; "" past the end of the text. */
  *peek(offset = 0): Reading<string> {
    while (this.#at + offset >= this.#text.length && !this.#isEnded) yield;
    return this.#text[this.#at + offset] ?? "";
  }

  /** The offset of the first character from `offset` on that is not white space. */
  *spaceEnd(offset: number): Reading<number> {
    for (let at = offset; ; at++) {
      const character = yield* this.peek(at);
      if (character === "" || !/\s/.test(character)) return at;
    }
  }

  /** Whether the text at an offset begins with a literal; null where the text ends before that is decided. */
  *hasAt(offset: number, literal: string): Reading<boolean | null> {
    for (;;) {
      const at = this.#at + offset;
      if (this.#text.startsWith(literal, at)) return true;
      if (!literal.startsWith(this.#text.slice(at, at + literal.length))) return false;
      if (this.#isEnded) return null;
      yield;
    }
  }

  /** The longest of several literals that begins at an offset; false for none, null where the text ends within one. */
  *whichAt(offset: number, literals: readonly string[]): Reading<string | false | null> {
    let found: string | false | null = false;
    for (const literal of literals) {
      const isThere = yield* this.hasAt(offset, literal);
      if (isThere === null) found ||= null;
      else if (isThere && (!found || found.length < literal.length)) found = literal;
    }
    return found;
  }

  /** Moves the cursor over characters that have come. */
  skip(count: number): void {
    this.#at += count;
  }

  /** The text that has come and is not yet read. */
  get rest(): string {
    return this.#text.slice(this.#at);
  }

  /** Skips white space and returns the character after it, "" at the end of the text. */
  *skipSpace(): Reading<string> {
    for (;;) {
      const character = yield* this.peek();
      if (character === "" || !/\s/.test(character)) return character;
      this.#at++;
    }
  }

  /** Whether the text goes on with a literal; if so, skips it. */
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
   * Passes the text before the first of several markers to `take`, in pieces that cannot be part of a marker, and skips the
   * marker (the longest one at that place). Returns null when the text ends without a marker; a marker that the end cuts off is
   * passed to `take` too, unless `dropsPartial`.
   */
  *until(markers: readonly string[], take: (text: string) => void, dropsPartial = false): Reading<string | null> {
    for (;;) {
      const found = this.#find(markers, this.#isEnded && !dropsPartial);
      if (found.start > this.#at) take(this.#text.slice(this.#at, found.start));
      this.#at = found.start;
      if (found.marker !== null) {
        this.#at += found.marker.length;
        return found.marker;
      }
      if (this.#isEnded) {
        this.#at = this.#text.length;
        return null;
      }
      yield;
    }
  }

  /** Skips white space and one of several markers, which the end of the text may cut off. False where there is none. */
  *passes(markers: readonly string[]): Reading<boolean> {
    const at = yield* this.spaceEnd(0);
    const marker = yield* this.whichAt(at, markers);
    if (marker === false || (marker === null && (yield* this.peek(at)) === "")) return false;
    this.skip(marker === null ? this.rest.length : at + marker.length);
    return true;
  }

  /** Reads the text up to one of several markers and skips the marker. Returns null without moving when there is none. */
  *before(markers: readonly string[]): Reading<{ readonly text: string; readonly marker: string } | null> {
    return yield* this.attempt(
      function* (this: AnswerCursor) {
        let text = "";
        const marker = yield* this.until(markers, (piece) => {
          text += piece;
        });
        return marker === null ? null : { text, marker };
      }.bind(this),
    );
  }

  /** Runs a reading, and moves the cursor back to where it was if the result is null or false. */
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

  /** Offset of the first marker; without one, of where a marker may begin (unless `isWhole`), or of the end of the text. */
  #find(markers: readonly string[], isWhole: boolean): { readonly start: number; readonly marker: string | null } {
    const text = this.#text;
    let start = text.length;
    let marker: string | null = null;
    for (const candidate of markers) {
      const at = text.indexOf(candidate, this.#at);
      if (at < 0 || at > start || (at === start && marker !== null && marker.length > candidate.length)) continue;
      start = at;
      marker = candidate;
    }
    if (isWhole) return { start, marker };
    // More text may complete a marker that begins earlier, or a longer one.
    for (const candidate of markers)
      for (let at = Math.max(this.#at, text.length - candidate.length + 1); at <= start && at < text.length; at++)
        if (
          candidate.startsWith(text.slice(at)) &&
          (at < start || marker === null || candidate.length > marker.length)
        ) {
          start = at;
          marker = null;
        }
    return { start, marker };
  }
}
