/**
 * Chooses how many tokens to draft in a step: as many as pay for the tokens they add to it, by the measured time of steps of
 * each size and by how often drafts were accepted in this text.
 */
import { averageChance, type StepCosts } from "./step-costs.ts";

/** Initial acceptance probabilities of a drafted token, by the number of tokens that matched before it. */
const FIRST_CHANCES: readonly (readonly [from: number, chance: number])[] = [
  [8, 0.8],
  [4, 0.6],
  [2, 0.4],
];
/** Steps until drafts that did not pay are tried again, doubled each time that they fail. */
const BACKOFF_STEPS = 16;
const BACKOFF_STEPS_MAX = 256;
/** Drafts before a step of one token is measured, whose time tells whether they pay. */
const UNMEASURED_MAX = 4;

/** Counts steps without drafts after drafts that did not pay. */
export class Backoff {
  #left = 0;
  #steps = BACKOFF_STEPS;

  /** Whether this step is to have no drafts. */
  skips(): boolean {
    if (this.#left === 0) return false;
    this.#left--;
    return true;
  }

  begin(): void {
    this.#left = this.#steps;
    this.#steps = Math.min(2 * this.#steps, BACKOFF_STEPS_MAX);
  }

  /** The next pause is as short as the first. */
  reset(): void {
    this.#steps = BACKOFF_STEPS;
  }
}

export class DraftLength {
  readonly #costs: StepCosts;
  readonly #chances = FIRST_CHANCES.map(([, chance]) => chance);
  readonly #backoff = new Backoff();
  #unmeasured = 0;
  /** Whether accepted tokens must be computed again with the next step when others of their step were rejected. */
  #computesAgain = false;

  constructor(costs: StepCosts) {
    this.#costs = costs;
  }

  /** Probability that a token drafted after `matched` matching tokens is accepted. */
  chance(matched: number): number {
    return this.#chances[kindOf(matched)] ?? 0;
  }

  /**
   * Number of tokens, at most `most`, to draft after `matched` matching tokens, in a step that recomputes `recomputed` tokens.
   */
  next(matched: number, most: number, recomputed = 0): number {
    const chance = this.chance(matched);
    if (kindOf(matched) < 0 || this.#backoff.skips()) return 0;
    if (!this.#costs.knows(1) && this.#unmeasured++ >= UNMEASURED_MAX) return 0;
    const best = this.#best(chance, most, recomputed);
    if (best > 0) return best;
    // One token is tried now and then, since a text's predictability changes.
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
   * Records how many tokens drafted after `matched` matching tokens were accepted, and how many must be recomputed because
   * others were rejected.
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
