/**
 * The routing of rows to experts as one int32 array. Rows are ordered by expert into places. In order: `starts`, the first
 * place of each expert, and at the end the number of places; `sources`, the row at each place; `places`, the place of each row
 * for each of its experts, best first; `weights`, likewise the weight, as float32 bits.
 */

/** Views of the parts of a routing. */
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

/** Number of int32 values of a routing. */
export function routingLength(rows: number, experts: number, topK: number): number {
  return experts + 1 + 3 * rows * topK;
}

/** Makes views of the parts. */
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

/** The range of places of one expert. */
export interface ExpertRun {
  readonly expert: number;
  readonly first: number;
  readonly count: number;
}

/** Experts that have rows, in order. A program may have written invalid values: ranges are limited to the existing places. */
export function* expertRuns(routing: Int32Array, experts: number, places: number): Generator<ExpertRun> {
  let first = 0;
  for (let expert = 0; expert < experts; expert++) {
    const end = Math.min(routing[expert + 1]!, places);
    if (end > first) yield { expert, first, count: end - first };
    first = Math.max(first, end);
  }
}
