/** Reads text between markers that may occur in it, too: an end marker counts only if what follows it can follow the text. */
import type { AnswerCursor, Reading } from "./cursor.ts";

/**
 * What an end marker is, judged by what follows it: the end of the value ("end"); its end unless a better one comes later
 * ("perhaps"); a part of the value ("other"); undecided, since the text ends here ("cut").
 */
export type Following = "end" | "perhaps" | "other" | "cut";

/** The markers around a value, and what counts as its end. */
export interface TagRules {
  /** End marker of a value. */
  readonly close: string;
  /** Begin marker of a value; a nested one is matched by its own end marker. */
  readonly nested: string;
  /** Markers that end a value whose own end marker is missing. */
  readonly ends: readonly string[];
  /**
   * Whether the line breaks after the begin marker and before the end marker belong to the markers; one before `ends` always
   * does.
   */
  readonly inLines?: boolean | undefined;
  /** Classifies an end marker by the text after it, which begins at an offset. */
  follows(cursor: AnswerCursor, offset: number): Reading<Following>;
  /** Whether the value ends at a marker of `ends` at the cursor, unless a better end comes later. */
  endsAt(marker: string): Reading<boolean>;
}

export class TaggedText {
  readonly #cursor: AnswerCursor;
  readonly #rules: TagRules;
  readonly #markers: readonly string[];
  /** Nested values that have begun and not ended. */
  #depth = 0;

  constructor(cursor: AnswerCursor, rules: TagRules) {
    this.#cursor = cursor;
    this.#rules = rules;
    const markers = [rules.close, rules.nested, ...rules.ends];
    this.#markers = [...markers, ...(rules.inLines ? markers : rules.ends).map((marker) => `\n${marker}`)];
  }

  /** Passes the text to `take` piece by piece and skips its end marker. False where the answer ends before it. */
  *read(take: (text: string) => void): Reading<boolean> {
    const cursor = this.#cursor;
    if (this.#rules.inLines) yield* cursor.takes("\n");
    for (;;) {
      const found = yield* cursor.until(this.#markers, take, true);
      if (found === null) return false;
      cursor.skip(-found.length);
      const marker = found.startsWith("\n") ? found.slice(1) : found;
      const space = found.length - marker.length;
      const end = yield* this.#end(marker, space);
      if (end === "cut") {
        cursor.skip(cursor.rest.length);
        return false;
      }
      if (end === "other") {
        take(found);
        cursor.skip(found.length);
        continue;
      }
      cursor.skip(space + (marker === this.#rules.close ? marker.length : 0));
      return true;
    }
  }

  /** Classifies a marker that follows `space` characters of white space. */
  *#end(marker: string, space: number): Reading<Following> {
    const { close, nested } = this.#rules;
    if (marker === close) {
      const following = yield* this.#rules.follows(this.#cursor, space + marker.length);
      if (following === "other") this.#depth = Math.max(0, this.#depth - 1);
      if (following === "other" || following === "cut") return following;
      if (this.#depth === 0 && following === "end") return "end";
      if (!(yield* this.#hasLaterEnd(space + marker.length, Math.max(0, this.#depth - 1)))) return this.#unlessCut();
      this.#depth = Math.max(0, this.#depth - 1);
      return "other";
    }
    const isNested = marker === nested;
    if (isNested && (yield* this.#hasLaterEnd(space + marker.length, this.#depth + 1))) {
      this.#depth++;
      return "other";
    }
    if (!this.#rules.ends.includes(marker)) return "other";
    if (!(yield* this.#atMarker(marker, space))) return "other";
    const isWithin = !isNested && (yield* this.#hasLaterEnd(space + marker.length, this.#depth));
    return isWithin ? "other" : this.#unlessCut();
  }

  *#atMarker(marker: string, space: number): Reading<boolean> {
    const cursor = this.#cursor;
    let isEnd = false;
    const { endsAt } = this.#rules;
    yield* cursor.attempt(function* () {
      cursor.skip(space);
      isEnd = yield* endsAt(marker);
      return null;
    });
    return isEnd;
  }

  /** The end of the answer ends the value, unless a limit cut the answer. */
  #unlessCut(): Following {
    return this.#cursor.isCut ? "cut" : "end";
  }

  /** Whether a valid end marker follows an offset, with `within` nested values still open. */
  *#hasLaterEnd(offset: number, within: number): Reading<boolean> {
    const cursor = this.#cursor;
    const { close, nested } = this.#rules;
    let depth = within;
    let isFound = false;
    const { follows } = this.#rules;
    yield* cursor.attempt(function* () {
      cursor.skip(offset);
      while (!isFound) {
        const marker = yield* cursor.until([close, nested], () => {});
        if (marker === null) return null;
        if (marker === nested) depth++;
        else if (depth > 0) depth--;
        else isFound = (yield* follows(cursor, 0)) !== "other";
      }
      return null;
    });
    return isFound;
  }
}
