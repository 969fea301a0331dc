/** What steps of a decoder take by their rows, as measured on this machine. */

/** The share of the newest measurement in an average. */
const NEWEST = 0.2;
/** A row more than one is taken to cost so much of a step until it is measured: that of many CPUs. */
const ROW_COST = 0.15;
/** What the clock of a page may round to nothing. */
const LEAST_MS = 0.01;

export class StepCosts {
  /** Milliseconds of a step by its rows. */
  readonly #measured: number[] = [];

  /** Whether steps of so many rows were measured. */
  knows(rows: number): boolean {
    return this.#measured[rows] !== undefined;
  }

  /** Milliseconds of a step of so many rows: measured, or what the nearest measured one says. */
  of(rows: number): number {
    const known = this.#measured[rows];
    if (known !== undefined) return known;
    let nearest = 0;
    for (const other of this.#measured.keys())
      if (this.#measured[other] !== undefined && Math.abs(other - rows) < Math.abs(nearest - rows)) nearest = other;
    const at = (count: number) => 1 + ROW_COST * (count - 1);
    return nearest === 0 ? at(rows) : (this.#measured[nearest]! * at(rows)) / at(nearest);
  }

  /** Notes what a step took, in milliseconds. */
  took(rows: number, milliseconds: number): void {
    const before = this.#measured[rows];
    // Neither a pause of the machine nor what the first step of so many rows prepares is a cost of the rows.
    const most = this.#measured.length === 0 ? Number.POSITIVE_INFINITY : 2 * this.of(rows);
    const own = Math.max(LEAST_MS, Math.min(milliseconds, most));
    this.#measured[rows] = before === undefined ? own : averaged(before, own);
  }
}

/** An average with one more value, of which the newest count most. */
export function averaged(before: number, value: number, newest = NEWEST): number {
  return before + newest * (value - before);
}

/** A chance, with what has come of it once more. */
export function averageChance(before: number, hasComeTrue: boolean, newest = NEWEST): number {
  return averaged(before, hasComeTrue ? 1 : 0, newest);
}
