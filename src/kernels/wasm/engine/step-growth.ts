/**
 * What of a call's steps grows evenly with sizes, such as the number of rows: it is set without making the step again.
 */
import { grownNumber, growthOf, type SizeRange, type Sizes } from "../../growth.ts";
import type { WasmStep } from "../kernel-code.ts";
import type { StepPlan } from "./step-plan.ts";

/** A number of a phase: its tiles, or one of its arguments. */
interface Growing {
  readonly phase: number;
  /** Byte of the arguments; null for tiles. */
  readonly at: number | null;
  readonly value: number;
  readonly growth: readonly number[];
}

/** Sets a step of a plan to what it is for sizes. */
export type StepGrowth = (plan: StepPlan, sizes: Sizes) => void;

/** Numbers of arguments beyond are parts of float64 values. */
const HIGH_MAX = 2 ** 21;

/**
 * Growth of the steps of one call over the points of a range; null where they differ in more than numbers that grow
 * evenly.
 */
export function stepGrowth(range: SizeRange, index: number, steps: readonly WasmStep[]): StepGrowth | null {
  const growing: Growing[] = [];
  for (const [phase, { code, args }] of steps[0]!.phases.entries()) {
    const others = steps.map(({ phases }) => phases[phase]);
    if (!others.every((other) => other?.code.key === code.key && other.args.length === args.length)) return null;
    const numbers = [{ at: null, values: others.map((other) => other!.tiles) }, ...changedArguments(others)];
    for (const { at, values } of numbers) {
      const growth = growthOf(range, values);
      if (!growth || !values.every(Number.isSafeInteger)) return null;
      if (growth.some((step) => step > 0)) growing.push({ phase, at, value: values[0]!, growth });
    }
  }
  if (steps.some(({ phases }) => phases.length !== steps[0]!.phases.length)) return null;
  return (plan, sizes) => {
    for (const { phase, at, value, growth } of growing) {
      const now = grownNumber(range, value, growth, sizes);
      if (at === null) plan.setTiles(index, phase, now);
      else plan.setArgument(index, phase, at, now);
    }
  };
}

function changedArguments(phases: readonly ({ readonly args: Uint8Array } | undefined)[]) {
  const views = phases.map((phase) => new DataView(phase!.args.buffer, phase!.args.byteOffset, phase!.args.length));
  const changed: { readonly at: number; readonly values: readonly number[] }[] = [];
  for (let at = 0; at < views[0]!.byteLength; at += 8) {
    const words = views.map((view) => [view.getUint32(at, true), view.getUint32(at + 4, true)] as const);
    const [low, high] = words[0]!;
    if (words.every((word) => word[0] === low && word[1] === high)) continue;
    const values = words.map((word) => (word[1] < HIGH_MAX ? word[0] + 2 ** 32 * word[1] : Number.NaN));
    changed.push({ at, values });
  }
  return changed;
}
