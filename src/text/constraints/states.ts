/** Texts that are followed by states, character by character. */
import type { Range } from "./code-points.ts";

/** Where a text is. Equal ones are one object, and from each an end can be reached. */
export interface State {
  /** Whether the text may end here. */
  readonly canEnd: boolean;
  /** The characters that may come next, each in one leaf at most. */
  readonly leaves: readonly StateLeaf[];
}

/** Some characters, and where each of them leads. */
export interface StateLeaf {
  readonly ranges: readonly Range[];
  readonly next: State;
}
