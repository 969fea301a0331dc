/** The text of an answer as it comes, read by generators that yield where they need more of it. */

/** A reading of text: yields when all that has come is read, and goes on when there is more or the text has ended. */
export type Reading<T> = Generator<void, T, void>;

/** Consumed text is dropped from this length on. */
const DROPPED_FROM = 4096;

export class AnswerCursor {
  #text = "";
  #at = 0;
  #isEnded = false;
  #isCut = false;
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

  /** No more text will come; `isCut` where the model would have gone on. */
  end(isCut = false): void {
    this.#isEnded = true;
    this.#isCut = isCut;
  }

  /** Whether the text has ended where the model would have gone on. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** The next character, or the one so many further on; "" behind the end of the text. */
  *peek(offset = 0): Reading<string> {
    while (this.#at + offset >= this.#text.length && !this.#isEnded) yield;
    return this.#text[this.#at + offset] ?? "";
  }

  /** How many characters from an offset on are no white space's: the offset of the first that is none. */
  *spaceEnd(offset: number): Reading<number> {
    for (let at = offset; ; at++) {
      const character = yield* this.peek(at);
      if (character === "" || !/\s/.test(character)) return at;
    }
  }

  /** Whether a literal stands at an offset; null where the text ends within it, or before it. */
  *hasAt(offset: number, literal: string): Reading<boolean | null> {
    for (;;) {
      const at = this.#at + offset;
      if (this.#text.startsWith(literal, at)) return true;
      if (!literal.startsWith(this.#text.slice(at, at + literal.length))) return false;
      if (this.#isEnded) return null;
      yield;
    }
  }

  /** Which of some literals stands at an offset, the longest of several; null where the text ends within one. */
  *whichAt(offset: number, literals: readonly string[]): Reading<string | false | null> {
    let found: string | false | null = false;
    for (const literal of literals) {
      const isThere = yield* this.hasAt(offset, literal);
      if (isThere === null) found ||= null;
      else if (isThere && (!found || found.length < literal.length)) found = literal;
    }
    return found;
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
   * Gives the text before the first of some markers to `take`, in pieces that belong to none for certain, and passes over the
   * marker: of several that begin at one place, the longest. Null when the text ends without one; what it may have begun of
   * one is given, too, unless `dropsBegun`.
   */
  *until(markers: readonly string[], take: (text: string) => void, dropsBegun = false): Reading<string | null> {
    for (;;) {
      const found = this.#find(markers, this.#isEnded && !dropsBegun);
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

  /** Passes over white space and one of some markers, or what the end of the text has left of it. False where there is none. */
  *passes(markers: readonly string[]): Reading<boolean> {
    const at = yield* this.spaceEnd(0);
    const marker = yield* this.whichAt(at, markers);
    if (marker === false || (marker === null && (yield* this.peek(at)) === "")) return false;
    this.skip(marker === null ? this.rest.length : at + marker.length);
    return true;
  }

  /** The text up to one of some markers, which is passed over; null, at the same place, when there is none. */
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

  /** The first marker, or else where one may begin or the text ends. */
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
    // One may begin earlier, or be longer, when more has come.
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
