/**
 * Steps of a call as affine functions of the sizes: for other sizes, only numbers of the plan are set, and no step is remade.
 */
import { affineAt, type SizeRange, type Sizes, slopesOf } from "../../affine.ts";
import type { WasmStep } from "../kernel-code.ts";
import type { StepPlan } from "./step-plan.ts";

/** A number of a phase, its tiles or an argument, as an affine function of the sizes. */
interface AffineNumber {
  readonly phase: number;
  /** Byte offset in the arguments; null for tiles. */
  readonly at: number | null;
  readonly value: number;
  readonly slopes: readonly number[];
}

/** Sets a plan's step for these sizes. */
export type SetStep = (plan: StepPlan, sizes: Sizes) => void;

/** High words above this belong to float64 arguments rather than integers. */
const HIGH_MAX = 2 ** 21;

/**
 * Makes a function that sets one call's steps, from its steps at the sample points of the range; null where they differ in more
 * than affine numbers.
 */
export function affineSteps(range: SizeRange, index: number, steps: readonly WasmStep[]): SetStep | null {
  const changing: AffineNumber[] = [];
  for (const [phase, { code, args }] of steps[0]!.phases.entries()) {
    const others = steps.map(({ phases }) => phases[phase]);
    if (!others.every((other) => other?.code.key === code.key && other.args.length === args.length)) return null;
    const numbers = [{ at: null, values: others.map((other) => other!.tiles) }, ...changedArguments(others)];
    for (const { at, values } of numbers) {
      const slopes = slopesOf(range, values);
      if (!slopes || !values.every(Number.isSafeInteger)) return null;
      if (slopes.some((step) => step > 0)) changing.push({ phase, at, value: values[0]!, slopes });
    }
  }
  if (steps.some(({ phases }) => phases.length !== steps[0]!.phases.length)) return null;
  return (plan, sizes) => {
    for (const { phase, at, value, slopes } of changing) {
      const now = affineAt(range, value, slopes, sizes);
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
