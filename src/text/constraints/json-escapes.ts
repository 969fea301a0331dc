/** States of texts as they are written in JSON strings: characters as they are or, where that is usual, as escapes. */
import { complement, hasPoint, intersection, type Range } from "./code-points.ts";
import { RAW } from "./json-text.ts";
import type { State, StateLeaf } from "./states.ts";

/** Letters of the short escapes, and the code points that they stand for. */
const SHORT: Readonly<Record<string, number>> = {
  ...{ '"': 0x22, "\\": 0x5c, b: 8, f: 12, n: 10, r: 13, t: 9 },
};

/** Characters that may be written as escapes: all except plain ASCII. */
export const ESCAPABLE: readonly Range[] = complement([
  [0x20, 0x21],
  [0x23, 0x5b],
  [0x5d, 0x7e],
]);

const BACKSLASH: readonly Range[] = [[0x5c, 0x5c]];
const HIGH: Range = [0xd800, 0xdbff];
const LOW: Range = [0xdc00, 0xdfff];

const known = new WeakMap<State, State>();

/** The state whose texts are those of `state`, written within a JSON string. Equal states give one object. */
export function inJson(state: State): State {
  const made = known.get(state) ?? lazyState(state.canEnd, () => leavesInJson(state));
  known.set(state, made);
  return made;
}

function lazyState(canEnd: boolean, leavesOf: () => StateLeaf[]): State {
  let leaves: StateLeaf[] | null = null;
  return {
    canEnd,
    get leaves() {
      leaves ??= leavesOf();
      return leaves;
    },
  };
}

function leavesInJson(state: State): StateLeaf[] {
  const found = state.leaves.flatMap(({ ranges, next }): StateLeaf[] => {
    const raw = intersection(ranges, RAW);
    return raw.length > 0 ? [{ ranges: raw, next: inJson(next) }] : [];
  });
  const escapes = escapesOf(state);
  if (escapes.length > 0) found.push({ ranges: BACKSLASH, next: lazyState(false, () => escapes) });
  return found;
}

/** Leaves for what may follow a backslash. */
function escapesOf(state: State): StateLeaf[] {
  const found = Object.entries(SHORT).flatMap(([letter, point]): StateLeaf[] => {
    const next = after(state, point);
    return next ? [{ ranges: only(letter.charCodeAt(0)), next: inJson(next) }] : [];
  });
  if (state.leaves.some(({ ranges }) => intersection(ranges, ESCAPABLE).length > 0))
    found.push({ ranges: only(0x75), next: hexState(state, null, 0, 4) });
  return found;
}

function after(state: State, point: number): State | null {
  return state.leaves.find(({ ranges }) => hasPoint(ranges, point))?.next ?? null;
}

const only = (point: number): Range[] => [[point, point]];

/**
 * State within the digits of a `\u` escape: `left` digits to come, `value` so far; `high` is the first half of a surrogate
 * pair.
 */
function hexState(state: State, high: number | null, value: number, left: number): State {
  return lazyState(false, () =>
    Array.from({ length: 16 }, (_, digit) => digit).flatMap((digit): StateLeaf[] => {
      const own = 16 * value + digit;
      const size = 16 ** (left - 1);
      const next = hexAfter(state, high, own, left - 1, [own * size, (own + 1) * size - 1]);
      if (!next) return [];
      const letter = 0x37 + digit;
      const ranges: Range[] = digit < 10 ? only(0x30 + digit) : [...only(letter), ...only(letter + 0x20)];
      return [{ ranges, next }];
    }),
  );
}

/**
 * State after a hex digit, when UTF-16 units of the range `units` are still possible; null where no character has one of them.
 */
function hexAfter(state: State, high: number | null, value: number, left: number, units: Range): State | null {
  const isPossible = state.leaves.some(({ ranges }) => {
    if (high !== null) return intersection(ranges, pointsOf([high, high], within(units, LOW))).length > 0;
    if (intersection(intersection(ranges, ESCAPABLE), [units]).length > 0) return true;
    return intersection(ranges, pointsOf(within(units, HIGH), LOW)).length > 0;
  });
  if (!isPossible) return null;
  if (left > 0) return hexState(state, high, value, left);
  if (high !== null) return inJson(after(state, pointsOf([high, high], units)[0]![0])!);
  if (value < HIGH[0] || value > HIGH[1]) return inJson(after(state, value)!);
  const second = lazyState(false, () => [{ ranges: only(0x75), next: hexState(state, value, 0, 4) }]);
  return lazyState(false, () => [{ ranges: BACKSLASH, next: second }]);
}

function within([first, last]: Range, [least, most]: Range): Range {
  return [Math.max(first, least), Math.min(last, most)];
}

/** Code points of surrogate pairs, for a range of high surrogates and one of low surrogates. */
function pointsOf(high: Range, low: Range): Range[] {
  if (high[0] > high[1] || low[0] > low[1]) return [];
  const point = (first: number, second: number) => 0x10000 + ((first - HIGH[0]) << 10) + (second - LOW[0]);
  return [[point(high[0], low[0]), point(high[1], low[1])]];
}
