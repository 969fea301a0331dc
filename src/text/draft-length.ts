/**
 * How many tokens are drafted for a step: as many as are worth the rows that they cost, by what steps of so many rows took
 * on this machine and by how often drafts came true in this text.
 */

/** The share of the newest measurement in an average. */
const NEWEST = 0.2;
/** A row more than one is taken to cost so much of a step until it is measured: that of many CPUs. */
const ROW_COST = 0.15;
/** Chances of a drafted token at first, by the length of the text that it was found behind. */
const FIRST_CHANCES: readonly (readonly [from: number, chance: number])[] = [
  [8, 0.8],
  [4, 0.6],
  [2, 0.4],
];
/** What the clock of a page may round to nothing. */
const LEAST_MS = 0.01;
/** Steps after which drafts that were not worth it are tried again, doubled each time that they are not. */
const REST_STEPS = 16;
const REST_STEPS_MAX = 256;

export class DraftLength {
  /** Milliseconds of a step by its rows. */
  readonly #costs: number[] = [];
  readonly #chances = FIRST_CHANCES.map(([, chance]) => chance);
  #rest = 0;
  #restSteps = REST_STEPS;
  /** Whether tokens that came true are computed again with the next ones where others of their step did not. */
  #computesAgain = false;

  /**
   * Tokens to draft behind a text of `matched` tokens that occurred before, at most `most`, in a step that computes so many
   * tokens again.
   */
  next(matched: number, most: number, recomputed = 0): number {
    const kind = kindOf(matched);
    if (kind < 0) return 0;
    if (this.#rest > 0) {
      this.#rest--;
      return 0;
    }
    const best = this.#best(this.#chances[kind]!, most, recomputed);
    if (best > 0) return best;
    // One token is tried now and then: texts change.
    this.#rest = this.#restSteps;
    this.#restSteps = Math.min(2 * this.#restSteps, REST_STEPS_MAX);
    return Math.min(1, most);
  }

  #best(chance: number, most: number, recomputed: number): number {
    const alone = this.#cost(recomputed + 1);
    let [best, bestGain] = [0, 1 / alone];
    let [expected, share, again] = [1, 1, 0];
    for (let drafted = 1; drafted <= most; drafted++) {
      if (this.#computesAgain) again += share * (1 - chance) * drafted;
      share *= chance;
      expected += share;
      const cost = this.#cost(recomputed + drafted + 1);
      const gain = expected / (cost + (again * (cost - alone)) / drafted);
      if (gain > bestGain) [best, bestGain] = [drafted, gain];
    }
    return best;
  }

  /** Milliseconds of a step of so many rows: measured, or what the nearest measured one says. */
  #cost(rows: number): number {
    const known = this.#costs[rows];
    if (known !== undefined) return known;
    let nearest = 0;
    for (const other of this.#costs.keys())
      if (this.#costs[other] !== undefined && Math.abs(other - rows) < Math.abs(nearest - rows)) nearest = other;
    const at = (count: number) => 1 + ROW_COST * (count - 1);
    return nearest === 0 ? at(rows) : (this.#costs[nearest]! * at(rows)) / at(nearest);
  }

  /** Notes what a step took, in milliseconds. */
  took(rows: number, milliseconds: number): void {
    const before = this.#costs[rows];
    // A pause of the machine is no cost of the rows.
    const own = Math.max(LEAST_MS, before === undefined ? milliseconds : Math.min(milliseconds, 2 * before));
    this.#costs[rows] = before === undefined ? own : before + NEWEST * (own - before);
  }

  /**
   * Notes how many of the tokens drafted behind a text of `matched` tokens came true, and how many are computed again for the
   * others' sake.
   */
  cameTrue(
    matched: number,
    { drafted, accepted, recomputed = 0 }: { drafted: number; accepted: number; recomputed?: number },
  ): void {
    this.#computesAgain ||= recomputed > 0;
    const kind = kindOf(matched);
    for (let i = 0; i < Math.min(drafted, accepted + 1); i++) {
      const before = this.#chances[kind]!;
      this.#chances[kind] = before + NEWEST * ((i < accepted ? 1 : 0) - before);
    }
    if (accepted > 0) this.#restSteps = REST_STEPS;
  }
}

function kindOf(matched: number): number {
  return FIRST_CHANCES.findIndex(([from]) => matched >= from);
}
