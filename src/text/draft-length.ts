/**
 * Chooses how many tokens to draft in a step: as many as pay for the tokens they add to it, by the measured time of steps of
 * each size and by how often drafts were accepted in this text.
 */
import type { Match } from "./draft-lookup.ts";
import { averageChance, type StepCosts } from "./step-costs.ts";

/** Kinds of drafted tokens, by what matched before them, with the chance that one is accepted before any was seen. */
const FIRST_CHANCES = { long: 0.9, middle: 0.7, short: 0.4, single: 0.2, resumed: 0.5, changed: 0.2 };
type Kind = keyof typeof FIRST_CHANCES;

/** Kind of a token that is drafted `after` others behind a match. */
function kindOf({ length, isResumed }: Match, after = 0): Kind | null {
  const all = length + after;
  if (all >= 8) return "long";
  if (isResumed && all < 4) return all === 0 ? "changed" : "resumed";
  return all >= 4 ? "middle" : all >= 2 ? "short" : all === 1 ? "single" : null;
}

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
  readonly #chances = { ...FIRST_CHANCES };
  /** Steps without drafts of each kind. */
  readonly #backoffs = new Map<Kind, Backoff>();
  #unmeasured = 0;
  /** Whether accepted tokens must be computed again with the next step when others of their step were rejected. */
  #computesAgain = false;

  constructor(costs: StepCosts) {
    this.#costs = costs;
  }

  /** Probability that a token drafted behind a match is accepted. */
  chance(match: Match): number {
    return this.#chanceOf(kindOf(match));
  }

  #chanceOf(kind: Kind | null): number {
    return kind === null ? 0 : this.#chances[kind];
  }

  /** Number of tokens, at most `most`, to draft behind a match, in a step that recomputes `recomputed` tokens. */
  next(match: Match, most: number, recomputed = 0): number {
    const kind = kindOf(match);
    if (kind === null) return 0;
    const backoff = this.#backoffs.get(kind) ?? new Backoff();
    this.#backoffs.set(kind, backoff);
    if (backoff.skips()) return 0;
    if (!this.#costs.knows(1) && this.#unmeasured++ >= UNMEASURED_MAX) return 0;
    const best = this.#best(match, most, recomputed);
    if (best > 0) return best;
    // One token is tried now and then, since a text's predictability changes.
    backoff.begin();
    return Math.min(1, most);
  }

  #best(match: Match, most: number, recomputed: number): number {
    const alone = this.#costs.of(recomputed + 1);
    let [best, bestGain] = [0, 1 / alone];
    let [expected, share, again] = [1, 1, 0];
    for (let drafted = 1; drafted <= most; drafted++) {
      const chance = this.#chanceOf(kindOf(match, drafted - 1));
      if (this.#computesAgain) again += share * (1 - chance) * drafted;
      share *= chance;
      expected += share;
      const cost = this.#costs.of(recomputed + drafted + 1);
      const gain = expected / (cost + (again * (cost - alone)) / drafted);
      if (gain > bestGain) [best, bestGain] = [drafted, gain];
    }
    return best;
  }

  /** Records how many tokens drafted behind a match were accepted, and how many must be recomputed because others were rejected. */
  noteAccepted(
    match: Match,
    { drafted, accepted, recomputed = 0 }: { drafted: number; accepted: number; recomputed?: number },
  ): void {
    this.#computesAgain ||= recomputed > 0;
    for (let i = 0; i < Math.min(drafted, accepted + 1); i++) {
      const kind = kindOf(match, i)!;
      this.#chances[kind] = averageChance(this.#chances[kind], i < accepted);
    }
    if (accepted > 0) this.#backoffs.get(kindOf(match)!)?.reset();
  }
}
