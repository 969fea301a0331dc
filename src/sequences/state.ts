/** States of recurrent layers: of fixed size, shared by sequences and pages until a step writes its successor. */
import type { Block } from "./block-pool.ts";

/** What all recurrent layers keep of a sequence at one position. It never changes: a step writes another. */
export interface State {
  readonly block: Block;
  /** Sequences and pages that hold it. */
  holders: number;
}
