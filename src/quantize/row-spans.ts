/** Divides the rows of a table into spans of neighbours that are used about equally often. */

/** Rows from `first` on, before `end`. */
export interface RowSpan {
  readonly first: number;
  readonly end: number;
  /** Their part of all uses. */
  readonly part: number;
}

/** Most blocks of rows between which ends are sought. */
const BLOCKS_MAX = 256;
/** Part of all uses that counts as spread evenly: that of rows which the text lacks. */
const EVEN_PART = 0.01;

/**
 * Divides rows with these shares of all uses into at most `count` spans whose ends are multiples of `step` rows, so that bits can
 * be spent best. The error of a row falls to a fourth with each bit, and counts as often as the row is used; with the best
 * bits for each span it is then, for the same bytes, proportional to the geometric mean over all rows of their span's mean
 * share, which is the least for these spans. By dynamic programming.
 */
export function usedSpans(shares: Float64Array, count: number, step: number): RowSpan[] {
  const rows = step * Math.max(1, Math.ceil(shares.length / step / BLOCKS_MAX));
  const blocks = Math.ceil(shares.length / rows);
  const endOf = (block: number) => Math.min(block * rows, shares.length);
  const total = shares.reduce((sum, share) => sum + share, 0);
  const even = (EVEN_PART * total) / shares.length;
  const before = new Float64Array(blocks + 1);
  for (let block = 0; block < blocks; block++) {
    let sum = 0;
    for (let row = endOf(block); row < endOf(block + 1); row++) sum += (1 - EVEN_PART) * shares[row]! + even;
    before[block + 1] = before[block]! + sum;
  }
  /** Sum of the logarithms of the mean share, for the blocks from `first` on, before `end`, as one span. */
  const cost = (first: number, end: number) => {
    const size = endOf(end) - endOf(first);
    return size * Math.log((before[end]! - before[first]!) / size);
  };
  // best[end]: of the blocks before `end`, in as many spans as rounds so far; starts[round][end]: where the last of them begins.
  let best = Float64Array.from({ length: blocks + 1 }, (_, end) =>
    end === 0 ? Number.POSITIVE_INFINITY : cost(0, end),
  );
  const starts: Int32Array[] = [];
  for (let round = 1; round < Math.min(count, blocks); round++) {
    const next = new Float64Array(blocks + 1).fill(Number.POSITIVE_INFINITY);
    const start = new Int32Array(blocks + 1);
    for (let end = round + 1; end <= blocks; end++)
      for (let first = round; first < end; first++) {
        const found = best[first]! + cost(first, end);
        if (found < next[end]!) [next[end], start[end]] = [found, first];
      }
    starts.push(start);
    best = next;
  }
  const ends = [blocks];
  for (const start of starts.toReversed()) ends.unshift(start[ends[0]!]!);
  return ends.map((end, i) => {
    const first = i === 0 ? 0 : ends[i - 1]!;
    return { first: endOf(first), end: endOf(end), part: (before[end]! - before[first]!) / total };
  });
}
