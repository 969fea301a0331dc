/** States for following a text character by character. */
import type { Range } from "./code-points.ts";

/** State of a text. Equal states are one object, and from each the text can be completed. */
export interface State {
  /** Whether the text may end here. */
  readonly canEnd: boolean;
  /** Characters that may come next; each is in at most one leaf. */
  readonly leaves: readonly StateLeaf[];
}

/** A set of characters, and the state after any of them. */
export interface StateLeaf {
  readonly ranges: readonly Range[];
  readonly next: State;
}
