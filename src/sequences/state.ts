/** States of recurrent layers: of fixed size, shared by sequences and pages. */
import type { Block } from "./block-pool.ts";

/** State of all recurrent layers of a sequence at one position. It never changes: a step writes a new one. */
export interface State {
  readonly block: Block;
  /** Number of sequences and pages that hold it. */
  holders: number;
}
