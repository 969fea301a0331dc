/** Measured time of a decoder's steps on this machine, by their number of tokens. */

/** Weight of the newest measurement in an average. */
const NEWEST = 0.2;
/**
 * Weight of the newest outcome in a chance. With 0.2, drafts of which 0.7 are accepted stopped too often by chance, which cost a
 * tenth of their gain.
 */
export const NEWEST_OUTCOME = 0.1;
/**
 * Assumed cost of each token after the first, as a fraction of a step of one token, until it is measured: typical of many CPUs.
 */
const ROW_COST = 0.15;
/** Least milliseconds of a step: a web page's clock may round shorter times to 0. */
const LEAST_MS = 0.01;

export class StepCosts {
  /** Milliseconds of a step, by its number of tokens. */
  readonly #measured: number[] = [];

  /** Whether steps of this many tokens were measured. */
  knows(rows: number): boolean {
    return this.#measured[rows] !== undefined;
  }

  /** Milliseconds of a step of this many tokens: measured, or scaled from the nearest measurement. */
  of(rows: number): number {
    const known = this.#measured[rows];
    if (known !== undefined) return known;
    let nearest = 0;
    for (const other of this.#measured.keys()) {
      const isNearer = nearest === 0 || Math.abs(other - rows) < Math.abs(nearest - rows);
      if (this.knows(other) && isNearer) nearest = other;
    }
    const at = (count: number) => 1 + ROW_COST * (count - 1);
    return nearest === 0 ? at(rows) : (this.#measured[nearest]! * at(rows)) / at(nearest);
  }

  /** Records a step's milliseconds. */
  took(rows: number, milliseconds: number): void {
    const before = this.#measured[rows];
    // Limits the influence of outliers: a pause of the machine, or one-time preparation in the first step of this size.
    const most = this.#measured.length === 0 ? Number.POSITIVE_INFINITY : 2 * this.of(rows);
    const own = Math.max(LEAST_MS, Math.min(milliseconds, most));
    this.#measured[rows] = before === undefined ? own : averaged(before, own);
  }
}

/** An exponential moving average after one more value. */
export function averaged(before: number, value: number, newest = NEWEST): number {
  return before + newest * (value - before);
}

/** A probability estimate after one more outcome. */
export function averageChance(before: number, hasComeTrue: boolean, newest = NEWEST_OUTCOME): number {
  return averaged(before, hasComeTrue ? 1 : 0, newest);
}
