/** Sets of code points as ascending ranges. */

/** Code points from the first to the last, both included. */
export type Range = readonly [first: number, last: number];

const LAST = 0x10ffff;
/** Surrogates, which are no characters by themselves. */
const SURROGATES: Range = [0xd800, 0xdfff];

/** The set as ascending, disjoint, non-adjacent ranges, without surrogates. */
export function normalized(ranges: readonly Range[]): Range[] {
  const sorted = [...ranges].sort(([a], [b]) => a - b);
  const joined: [number, number][] = [];
  for (const [first, last] of sorted) {
    const before = joined.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else joined.push([first, last]);
  }
  return joined.flatMap(([first, last]): Range[] => {
    if (last < SURROGATES[0] || first > SURROGATES[1]) return [[first, last]];
    return [
      ...(first < SURROGATES[0] ? [[first, SURROGATES[0] - 1] as const] : []),
      ...(last > SURROGATES[1] ? [[SURROGATES[1] + 1, last] as const] : []),
    ];
  });
}

/** The code points outside the ranges, without surrogates. */
export function complement(ranges: readonly Range[]): Range[] {
  const rest: Range[] = [];
  let next = 0;
  for (const [first, last] of normalized([...ranges, SURROGATES])) {
    if (first > next) rest.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= LAST) rest.push([next, LAST]);
  return normalized(rest);
}

/** Intersection of two normalized sets, normalized itself. */
export function intersection(a: readonly Range[], b: readonly Range[]): Range[] {
  const both: Range[] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const [first, last] = [Math.max(a[i]![0], b[j]![0]), Math.min(a[i]![1], b[j]![1])];
    if (first <= last) both.push([first, last]);
    if (a[i]![1] < b[j]![1]) i++;
    else j++;
  }
  return both;
}

export function hasPoint(ranges: readonly Range[], point: number): boolean {
  return ranges.some(([first, last]) => first <= point && point <= last);
}

/** All characters. */
export const ANY: readonly Range[] = complement([]);
