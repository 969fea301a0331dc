/** The best few of many token ids, by partitions as in quickselect: linear on average, and nothing is sorted. */

/**
 * Moves the fewest best of `ids[0 .. count-1]` to the front that reach `target`, at least one, and gives their number:
 * by their number, or by the sum of their scores. Of equal scores the lower id is the better.
 */
export function selectBest(
  ids: Int32Array,
  scores: Float64Array,
  count: number,
  target: { readonly count: number } | { readonly sum: number },
): number {
  // ids[0 .. low-1] are in the set and do not reach the target; ids[0 .. high-1] reach it or are all.
  let low = 0;
  let high = count;
  let reached = 0;
  while (high - low > 1) {
    const middle = partition(ids, scores, low, high);
    let more = 0;
    if ("count" in target) more = middle - low;
    else for (let i = low; i < middle; i++) more += scores[ids[i]!]!;
    if (reached + more >= ("count" in target ? target.count : target.sum)) high = middle;
    else {
      reached += more;
      low = middle;
    }
  }
  return high;
}

/** Hoare's partition: afterwards all before the returned place are better than all from it on, and neither is empty. */
function partition(ids: Int32Array, scores: Float64Array, low: number, high: number): number {
  const pivot = ids[(low + high - 1) >> 1]!;
  const score = scores[pivot]!;
  let i = low - 1;
  let j = high;
  for (;;) {
    do i++;
    while (scores[ids[i]!]! > score || (scores[ids[i]!]! === score && ids[i]! < pivot));
    do j--;
    while (scores[ids[j]!]! < score || (scores[ids[j]!]! === score && ids[j]! > pivot));
    if (i >= j) return j + 1;
    const id = ids[i]!;
    ids[i] = ids[j]!;
    ids[j] = id;
  }
}
