/** The numbers of characters by which states of an automaton can reach an accepting state. */
import { type Automaton, AutomatonSizeError } from "./automaton.ts";

/** Limit of the table's size: states times lengths. */
const WORK_MAX = 100_000_000;

export class Lengths {
  readonly #automaton: Automaton;
  /** By length: a 1 for each state from which some text of that length is accepted. The list repeats from index `#again` on. */
  readonly #reached: Uint8Array[];
  readonly #known = new Map<string, number>();
  readonly #edges: number;
  #again: number | null = null;

  constructor(automaton: Automaton) {
    this.#automaton = automaton;
    this.#reached = [Uint8Array.from(automaton.accepts, Number)];
    this.#known.set(this.#reached[0]!.join(""), 0);
    this.#edges = automaton.edges.reduce((sum, own) => sum + own.length + 1, 0);
  }

  /** Whether some of these states can reach acceptance by `least` to `most` characters. */
  has(states: readonly number[], least: number, most: number): boolean {
    for (let length = least; length <= most; length++) {
      const reached = this.#at(length);
      if (states.some((state) => reached[state])) return true;
      // The lengths repeat, and all of them have been tried.
      if (this.#again !== null && length - least > this.#reached.length) return false;
    }
    return false;
  }

  #at(length: number): Uint8Array {
    while (this.#again === null && this.#reached.length <= length) this.#add();
    if (length < this.#reached.length) return this.#reached[length]!;
    const period = this.#reached.length - this.#again!;
    return this.#reached[this.#again! + ((length - this.#again!) % period)]!;
  }

  #add(): void {
    if (this.#reached.length * this.#edges > WORK_MAX) throw new AutomatonSizeError();
    const before = this.#reached.at(-1)!;
    const { edges } = this.#automaton;
    const next = Uint8Array.from(edges, (own) => (own.some(({ to }) => before[to]) ? 1 : 0));
    const key = next.join("");
    const known = this.#known.get(key);
    if (known !== undefined) this.#again = known;
    else {
      this.#known.set(key, this.#reached.length);
      this.#reached.push(next);
    }
  }
}
