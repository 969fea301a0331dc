/**
 * Which rows go to which experts, as int32 values: for each expert the place of its first row, and behind the last one the
 * number of places; for each place, in the order of experts, the row that is there; for each row and each of its experts, the
 * best first, the place; and likewise the weight, as the bits of a float32.
 */

/** Where the parts of a routing of so many rows begin. */
export interface RoutingParts {
  /** [experts + 1] */
  readonly starts: Int32Array;
  /** [rows * topK] */
  readonly sources: Int32Array;
  /** [rows, topK] */
  readonly places: Int32Array;
  /** [rows, topK] */
  readonly weights: Float32Array;
}

/** Values of a routing. */
export function routingLength(rows: number, experts: number, topK: number): number {
  return experts + 1 + 3 * rows * topK;
}

/** Views of the parts. */
export function routingParts(routing: Int32Array, { rows, experts, topK }: RoutingSizes): RoutingParts {
  const count = rows * topK;
  const first = experts + 1;
  return {
    starts: routing.subarray(0, first),
    sources: routing.subarray(first, first + count),
    places: routing.subarray(first + count, first + 2 * count),
    weights: new Float32Array(routing.buffer, routing.byteOffset + 4 * (first + 2 * count), count),
  };
}

interface RoutingSizes {
  readonly rows: number;
  readonly experts: number;
  readonly topK: number;
}

/** A range of places that is one expert's. */
export interface ExpertRun {
  readonly expert: number;
  readonly first: number;
  readonly count: number;
}

/** Experts that have rows, in order. What a program may have written there instead is taken as far as it is one. */
export function* expertRuns(routing: Int32Array, experts: number, places: number): Generator<ExpertRun> {
  let first = 0;
  for (let expert = 0; expert < experts; expert++) {
    const end = Math.min(routing[expert + 1]!, places);
    if (end > first) yield { expert, first, count: end - first };
    first = Math.max(first, end);
  }
}
