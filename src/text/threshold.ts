/** Selects the k largest scores of a list by bucketing the scores, so that no long list is sorted. */

/** Least score of the selection: all ids with higher scores are selected, and of this score the lowest ids. */
export interface Threshold {
  readonly score: number;
  /** Ids with this score that are not selected. */
  readonly left: Int32Array;
}

const BUCKETS = 256;
/** Longest list that is sorted. */
const SORTED_MAX = 32;

/** Scratch memory for selecting among up to `tokens` ids. */
export class ThresholdRoom {
  /** Ids still to be divided. */
  readonly ids: Int32Array;
  /** Bucket of each id of the list. */
  readonly buckets: Uint8Array;
  /** Number of ids in each bucket. */
  readonly counts = new Int32Array(BUCKETS);

  constructor(tokens: number) {
    this.ids = new Int32Array(tokens);
    this.buckets = new Uint8Array(tokens);
  }
}

/**
 * The threshold of the `count` largest scores, or of all where there are fewer ids. Ids ascend; their scores are finite, and
 * among equal scores the lower id wins.
 */
export function findThreshold(ids: Int32Array, scores: Float32Array, count: number, room: ThresholdRoom): Threshold {
  let list = ids;
  let missing = Math.min(count, ids.length);
  while (list.length > SORTED_MAX) {
    const { lowest, highest } = rangeOf(list, scores);
    if (lowest === highest) break;
    fillBuckets(list, scores, { lowest, highest }, room);
    let bucket = 0;
    while (room.counts[bucket]! < missing) missing -= room.counts[bucket++]!;
    let kept = 0;
    for (let i = 0; i < list.length; i++) if (room.buckets[i] === bucket) room.ids[kept++] = list[i]!;
    list = room.ids.subarray(0, kept);
  }
  const order = list.length > SORTED_MAX ? list : sorted(list, scores);
  const score = scores[order[missing - 1]!]!;
  return { score, left: order.subarray(missing).filter((id) => scores[id] === score) };
}

interface Range {
  readonly lowest: number;
  readonly highest: number;
}

/**
 * Divides ids into buckets by score. The highest score is in the first bucket and the lowest in another, so that each has fewer
 * than all.
 */
function fillBuckets(ids: Int32Array, scores: Float32Array, { lowest, highest }: Range, room: ThresholdRoom): void {
  const { buckets, counts } = room;
  const perScore = (BUCKETS - 1) / (highest - lowest);
  counts.fill(0);
  for (let i = 0; i < ids.length; i++) {
    const bucket = ((highest - scores[ids[i]!]!) * perScore) | 0;
    buckets[i] = bucket;
    counts[bucket]!++;
  }
}

/** The ids by descending score. */
export function sorted(ids: Int32Array, scores: Float32Array): Int32Array {
  return ids.slice().sort((a, b) => scores[b]! - scores[a]! || a - b);
}

function rangeOf(ids: Int32Array, scores: Float32Array): Range {
  let lowest = Number.POSITIVE_INFINITY;
  let highest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < ids.length; i++) {
    const score = scores[ids[i]!]!;
    if (score < lowest) lowest = score;
    if (score > highest) highest = score;
  }
  return { lowest, highest };
}
