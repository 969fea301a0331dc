/** Text between markers that it may hold itself: an end marker counts where what must follow it follows. */
import type { AnswerCursor, Reading } from "./cursor.ts";

/**
 * What follows an end marker: what ends the value; what may, unless a better end comes later; something else, so that the
 * marker is part of the value; or the end of the text.
 */
export type Following = "end" | "perhaps" | "other" | "cut";

/** The markers around a value, and what counts as its end. */
export interface TagRules {
  /** Ends a value. */
  readonly close: string;
  /** Begins a value: one within a value has an end marker of its own. */
  readonly nested: string;
  /** Marks at which a value ends whose own end marker is left out. */
  readonly ends: readonly string[];
  /** Whether a line break behind the first marker and before the last belongs to the markers. One before `ends` always does. */
  readonly inLines?: boolean | undefined;
  /** What follows an end marker, from an offset on. */
  follows(cursor: AnswerCursor, offset: number): Reading<Following>;
  /** Whether a value ends at a marker of `ends`, at which the cursor is, unless a better end comes later. */
  endsAt(marker: string): Reading<boolean>;
}

export class TaggedText {
  readonly #cursor: AnswerCursor;
  readonly #rules: TagRules;
  readonly #markers: readonly string[];
  /** Values that have begun within this one and are due to end. */
  #depth = 0;

  constructor(cursor: AnswerCursor, rules: TagRules) {
    this.#cursor = cursor;
    this.#rules = rules;
    const markers = [rules.close, rules.nested, ...rules.ends];
    this.#markers = [...markers, ...(rules.inLines ? markers : rules.ends).map((marker) => `\n${marker}`)];
  }

  /** The text, piece by piece, and past its end marker. False where the text of the answer ends before. */
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

  /** Whether the value ends at a marker behind so much white space. */
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

  /** An end that only the end of the answer makes one is none where the answer was cut. */
  #unlessCut(): Following {
    return this.#cursor.isCut ? "cut" : "end";
  }

  /** Whether an end marker that counts comes behind an offset, when so many values within are due to end. */
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
