/**
 * How many tokens that were looked up are drafted for a step: as many as are worth the rows that they cost, by what steps of so
 * many rows took on this machine and by how often drafts were accepted in this text.
 */
import { averageChance, type StepCosts } from "./step-costs.ts";

/** Chances of a drafted token at first, by the length of the text that it was found behind. */
const FIRST_CHANCES: readonly (readonly [from: number, chance: number])[] = [
  [8, 0.8],
  [4, 0.6],
  [2, 0.4],
];
/** Steps after which drafts that were not worth it are tried again, doubled each time that they are not. */
const BACKOFF_STEPS = 16;
const BACKOFF_STEPS_MAX = 256;

/** Steps without drafts, after drafts that were not worth it. */
export class Backoff {
  #left = 0;
  #steps = BACKOFF_STEPS;

  /** Whether this step is one of them. */
  skips(): boolean {
    if (this.#left === 0) return false;
    this.#left--;
    return true;
  }

  begin(): void {
    this.#left = this.#steps;
    this.#steps = Math.min(2 * this.#steps, BACKOFF_STEPS_MAX);
  }

  /** The next ones are as few as the first. */
  reset(): void {
    this.#steps = BACKOFF_STEPS;
  }
}

export class DraftLength {
  readonly #costs: StepCosts;
  readonly #chances = FIRST_CHANCES.map(([, chance]) => chance);
  readonly #backoff = new Backoff();
  /** Whether accepted tokens are computed again with the next ones where others of their step were not. */
  #computesAgain = false;

  constructor(costs: StepCosts) {
    this.#costs = costs;
  }

  /** What a token is worth that is drafted behind a text of `matched` tokens: the chance that it is accepted. */
  chance(matched: number): number {
    return this.#chances[kindOf(matched)] ?? 0;
  }

  /**
   * Tokens to draft behind a text of `matched` tokens that occurred before, at most `most`, in a step that computes so many
   * tokens again.
   */
  next(matched: number, most: number, recomputed = 0): number {
    const chance = this.chance(matched);
    if (kindOf(matched) < 0 || this.#backoff.skips()) return 0;
    const best = this.#best(chance, most, recomputed);
    if (best > 0) return best;
    // One token is tried now and then: texts change.
    this.#backoff.begin();
    return Math.min(1, most);
  }

  #best(chance: number, most: number, recomputed: number): number {
    const alone = this.#costs.of(recomputed + 1);
    let [best, bestGain] = [0, 1 / alone];
    let [expected, share, again] = [1, 1, 0];
    for (let drafted = 1; drafted <= most; drafted++) {
      if (this.#computesAgain) again += share * (1 - chance) * drafted;
      share *= chance;
      expected += share;
      const cost = this.#costs.of(recomputed + drafted + 1);
      const gain = expected / (cost + (again * (cost - alone)) / drafted);
      if (gain > bestGain) [best, bestGain] = [drafted, gain];
    }
    return best;
  }

  /**
   * Notes how many of the tokens drafted behind a text of `matched` tokens were accepted, and how many are computed again for the
   * others' sake.
   */
  noteAccepted(
    matched: number,
    { drafted, accepted, recomputed = 0 }: { drafted: number; accepted: number; recomputed?: number },
  ): void {
    this.#computesAgain ||= recomputed > 0;
    const kind = kindOf(matched);
    for (let i = 0; i < Math.min(drafted, accepted + 1); i++)
      this.#chances[kind] = averageChance(this.#chances[kind]!, i < accepted);
    if (accepted > 0) this.#backoff.reset();
  }
}

function kindOf(matched: number): number {
  return FIRST_CHANCES.findIndex(([from]) => matched >= from);
}
