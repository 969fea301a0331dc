/**
 * What parsing and rendering of one template may use. Work is charged where it is done, by module functions, since every
 * operator and filter charges: rendering is synchronous, so one budget is active at a time.
 */
import { TemplateFault } from "./faults.ts";

/** Limits of one parse or one rendering of a chat template. */
export interface TemplateLimits {
  /** Steps: statements, rounds of loops, calls, items made, and every 16 characters that are read or made. Default 10 million. */
  readonly steps: number;
  /** Characters (UTF-16) of the output, of any string on the way to it, and of the template's source. Default 16,777,216. */
  readonly characters: number;
  /** Levels of nesting: of blocks and expressions, of macros and recursive loops, and of lists and objects. Default 200. */
  readonly depth: number;
  /** Milliseconds of wall time. Default 2000. */
  readonly milliseconds: number;
}

export const DEFAULT_LIMITS: TemplateLimits = {
  steps: 10_000_000,
  characters: 2 ** 24,
  depth: 200,
  milliseconds: 2000,
};

/** Steps between two looks at the clock. */
const PORTION = 4096;
const CHARACTERS_PER_STEP = 16;

let limits = DEFAULT_LIMITS;
/** Steps until the clock is looked at. */
let fuel = 0;
/** Steps left after those. */
let reserve = 0;
let deadline = 0;
let depth = 0;

/** Runs `work` with a budget of its own; the one before, if any, goes on afterwards. */
export function withLimits<T>(own: TemplateLimits, work: () => T): T {
  const before = { limits, fuel, reserve, deadline, depth };
  limits = own;
  fuel = 0;
  reserve = own.steps;
  deadline = performance.now() + own.milliseconds;
  depth = 0;
  try {
    return work();
  } finally {
    ({ limits, fuel, reserve, deadline, depth } = before);
  }
}

/** Takes `steps` from the budget. */
export function charge(steps = 1): void {
  fuel -= steps;
  if (fuel < 0) refuel();
}

function refuel(): void {
  reserve += fuel;
  if (reserve < 0) exceeded("steps", limits.steps);
  if (performance.now() > deadline) exceeded("milliseconds", limits.milliseconds);
  fuel = Math.min(reserve, PORTION);
  reserve -= fuel;
}

/** Charges for a string of this length that is read through or about to be made. */
export function chargeText(length: number): void {
  if (length > limits.characters) exceeded("characters", limits.characters);
  charge(length / CHARACTERS_PER_STEP);
}

/** Checks the length of a string that costs nothing to make: two strings joined are not copied. */
export function checkLength(length: number): void {
  if (length > limits.characters) exceeded("characters", limits.characters);
}

/** Goes one level deeper; every call has a `leave()`. */
export function enter(): void {
  if (++depth > limits.depth) exceeded("depth", limits.depth);
}

export function leave(): void {
  depth--;
}

/** Levels that one template's syntax or one value may nest. */
export function checkNesting(levels: number): void {
  if (levels > limits.depth) exceeded("depth", limits.depth);
}

function exceeded(limit: keyof TemplateLimits, value: number): never {
  const what = {
    steps: `takes more than ${value} steps`,
    characters: `makes a text of more than ${value} characters`,
    depth: `nests deeper than ${value} levels`,
    milliseconds: `takes longer than ${value} ms`,
  };
  throw new TemplateFault("LimitError", `${what[limit]} (limit "${limit}")`);
}
