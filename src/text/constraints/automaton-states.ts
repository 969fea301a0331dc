/** Follows texts that an automaton accepts, within bounds of their length, state by state. */
import { type Automaton, successors } from "./automaton.ts";
import { Lengths } from "./automaton-lengths.ts";
import type { State, StateLeaf } from "./states.ts";

/** Bounds of a text's length in characters. */
export interface LengthBounds {
  readonly min: number;
  /** Infinity for no limit. */
  readonly max: number;
}

/** A set of states that the automaton may be in after one text, as the subset construction makes them. */
interface StateSet {
  readonly states: readonly number[];
  readonly canEnd: boolean;
  /** Null until first needed. */
  leaves: { readonly ranges: StateLeaf["ranges"]; readonly set: StateSet }[] | null;
}

/** Follows an automaton deterministically. Sets of states are made when they are reached. */
class AutomatonTexts {
  readonly #automaton: Automaton;
  readonly #bounds: LengthBounds;
  #lengths: Lengths | null = null;
  readonly #sets = new Map<string, StateSet>();
  readonly #states = new Map<StateSet, Map<number, State>>();

  constructor(automaton: Automaton, bounds: LengthBounds) {
    this.#automaton = automaton;
    this.#bounds = bounds;
  }

  start(): State | null {
    return this.#state(this.#set([...this.#automaton.starts].sort((a, b) => a - b)), 0);
  }

  /** The state of a text of `read` characters; null where no text of a permitted length can be completed from it. */
  #state(set: StateSet, read: number): State | null {
    const { min, max } = this.#bounds;
    const isBounded = max !== Number.POSITIVE_INFINITY;
    // Without a maximum, characters beyond the minimum need not be counted.
    const count = isBounded ? read : Math.min(read, min);
    const isFree = !isBounded && count >= min;
    if (!isFree) {
      this.#lengths ??= new Lengths(this.#automaton);
      if (!this.#lengths.has(set.states, Math.max(0, min - count), max - count)) return null;
    }
    const byCount = this.#states.get(set) ?? new Map<number, State>();
    this.#states.set(set, byCount);
    const known = byCount.get(count);
    if (known) return known;
    const leavesOf = () => this.#leaves(set, count);
    let leaves: StateLeaf[] | null = null;
    const state: State = {
      canEnd: set.canEnd && count >= min,
      get leaves() {
        leaves ??= leavesOf();
        return leaves;
      },
    };
    byCount.set(count, state);
    return state;
  }

  #leaves(set: StateSet, count: number): StateLeaf[] {
    set.leaves ??= successors(this.#automaton, set.states).map(({ ranges, to }) => ({ ranges, set: this.#set(to) }));
    return set.leaves.flatMap(({ ranges, set: to }) => {
      const next = this.#state(to, count + 1);
      return next ? [{ ranges, next }] : [];
    });
  }

  #set(states: readonly number[]): StateSet {
    const key = states.join();
    const known = this.#sets.get(key);
    if (known) return known;
    const canEnd = states.some((state) => this.#automaton.accepts[state]);
    const set: StateSet = { states, canEnd, leaves: null };
    this.#sets.set(key, set);
    return set;
  }
}

/** The start state of an automaton's texts within these lengths; null where there is no such text. */
export function automatonState(
  automaton: Automaton,
  bounds: LengthBounds = { min: 0, max: Number.POSITIVE_INFINITY },
): State | null {
  return automaton.starts.length === 0 ? null : new AutomatonTexts(automaton, bounds).start();
}
