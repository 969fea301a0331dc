/**
 * Limits parsing and rendering of one template. Every operator and filter charges for its work by module functions with one
 * active budget, which suffices because rendering is synchronous.
 */
import { TemplateFault } from "./faults.ts";

/** Limits of one parse or one rendering of a chat template. */
export interface TemplateLimits {
  /** Steps: statements, loop iterations, calls, items made, and every 16 characters read or made. Default 10 million. */
  readonly steps: number;
  /** UTF-16 units of the output, of any intermediate string, and of the template's source. Default 16,777,216. */
  readonly characters: number;
  /** Levels of nesting of blocks and expressions, of macros and recursive loops, and of lists and objects. Default 200. */
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

/** Steps between two checks of the clock. */
const PORTION = 4096;
const CHARACTERS_PER_STEP = 16;

let limits = DEFAULT_LIMITS;
/** Steps until the next check of the clock. */
let fuel = 0;
/** Steps left after `fuel`. */
let reserve = 0;
let deadline = 0;
let depth = 0;

/** Runs `work` with a budget of its own, and restores the previous one. */
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

/** Charges for reading or making a string of this length. */
export function chargeText(length: number): void {
  if (length > limits.characters) exceeded("characters", limits.characters);
  charge(length / CHARACTERS_PER_STEP);
}

/** Checks the length of a concatenated string, which V8 makes without copying and which is not charged. */
export function checkLength(length: number): void {
  if (length > limits.characters) exceeded("characters", limits.characters);
}

/** Enters a level of nesting; the caller calls `leave()` afterwards. */
export function enter(): void {
  if (++depth > limits.depth) exceeded("depth", limits.depth);
}

export function leave(): void {
  depth--;
}

/** Checks how deeply a template's syntax, or a value, is nested. */
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
