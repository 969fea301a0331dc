/** Finds stop strings in streamed text, and withholds text that may be the beginning of one. */
import { shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";

export class StopMatcher {
  readonly #stops: readonly string[];
  #held = "";

  /** Checks the stop strings. InvalidArgumentError for an empty one, and for what is not a list. */
  constructor(stops: readonly string[]) {
    if (!Array.isArray(stops))
      throw new InvalidArgumentError(`stop: expected a list of strings but found ${shown(stops)}`);
    for (const stop of stops)
      if (typeof stop !== "string" || stop === "")
        throw new InvalidArgumentError(`stop: expected strings of at least one character but found ${shown(stop)}`);
    this.#stops = stops;
  }

  /**
   * Takes more text and returns the text that surely lies before any stop string. `stop` is the stop string whose end comes
   * first (the longest of several that end together), however the text was cut into pieces; no text follows it.
   */
  push(piece: string): { text: string; stop: string | null } {
    const text = this.#held + piece;
    const found = this.#stops
      .map((stop) => ({ stop, start: text.indexOf(stop) }))
      .filter(({ start }) => start >= 0)
      .sort((a, b) => a.start + a.stop.length - b.start - b.stop.length || a.start - b.start)[0];
    const end = found ? found.start : text.length - this.#withheldLength(text);
    this.#held = found ? "" : text.slice(end);
    return { text: text.slice(0, end), stop: found ? found.stop : null };
  }

  /** Returns the withheld text, when no more text is coming. */
  flush(): string {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }

  /** Length of the longest suffix of `text` that begins a stop string. */
  #withheldLength(text: string): number {
    let longest = 0;
    for (const stop of this.#stops) {
      let length = Math.min(stop.length - 1, text.length);
      while (length > longest && !text.endsWith(stop.slice(0, length))) length--;
      longest = Math.max(longest, length);
    }
    return longest;
  }
}
