/**
 * A method for inputs of many sizes: its calls are resolved at a few sizes, from which those for the others follow as
 * affine functions. Sizes that are equal vary together (tokens and their positions); 1 and the largest sizes stay fixed.
 */

import { type AtSizes, affineAt, fitted, pointsOf, type SizeRange, type Sizes, slopesOf } from "../kernels/affine.ts";
import type { Cpu, Kernel } from "../kernels/contract.ts";
import { selectKernel } from "../kernels/select.ts";
import type { BoundCall, IndexCheck } from "../ops/operator.ts";
import { kernelCall } from "../ops/operator.ts";
import type { Method } from "../program/program.ts";
import type { Tensor } from "../tensor.ts";
import { fusedPlaces, type ReadyMethod } from "./method.ts";
import type { CallsOfSizes } from "./run-list.ts";

/** Fewer sizes are resolved one by one in the same time. */
const SIZES_MIN = 3;

/** Sizes of a method's inputs, some of which vary. */
export interface InputPattern {
  /** Key of the pattern among those of the method. */
  readonly key: string;
  readonly sizes: Sizes;
  /** Range of the varying sizes. */
  readonly range: SizeRange;
  /** Sizes of all inputs, given the varying ones. */
  inputsOf(sizes: Sizes): readonly (readonly number[])[];
}

/** The pattern that inputs of these sizes belong to. */
export function inputPattern(method: Method, inputSizes: readonly (readonly number[])[]): InputPattern {
  const sizes: number[] = [];
  const largest: number[] = [];
  const places = method.inputs.map((index, i) => {
    const value = method.values[index]!;
    return inputSizes[i]!.map((size, dim) => {
      const most = value.kind === "tensor" && value.dynamism !== "static" ? value.sizes[dim]! : size;
      if (size <= 1 || size >= most || most <= SIZES_MIN) return { size, variable: -1 };
      const known = sizes.indexOf(size);
      const variable = known < 0 ? sizes.push(size) - 1 : known;
      largest[variable] = Math.min(most - 1, largest[variable] ?? Number.POSITIVE_INFINITY);
      return { size, variable };
    });
  });
  return {
    key: places
      .map((dims) => dims.map(({ size, variable }) => (variable < 0 ? size : `#${variable}`)).join("x"))
      .join(" "),
    sizes,
    range: { smallest: sizes.map(() => 2), largest },
    inputsOf: (now) => places.map((dims) => dims.map(({ size, variable }) => (variable < 0 ? size : now[variable]!))),
  };
}

/** A call as an affine function of a pattern's sizes. */
interface AffineCall {
  readonly operator: string;
  readonly candidates: readonly Kernel<never>[];
  readonly query: AtSizes<BoundCall["query"]>;
  readonly args: AtSizes<unknown>;
}

/** A call of the method, and its fusion with the one before. */
interface AffineStep {
  readonly call: AffineCall;
  readonly fused: AffineCall | null;
}

/** Calls for a class of sizes, which the same kernels serve. */
export interface SizeClass extends CallsOfSizes {
  /** Key of the class among those of the method. */
  readonly key: string;
}

/** Inputs, outputs and checks of a method. */
export interface MethodEnds {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly checks: readonly IndexCheck[];
}

export class SizedMethod {
  readonly ends: AtSizes<MethodEnds>;
  readonly #pattern: InputPattern;
  readonly #steps: readonly AffineStep[];
  readonly #cpu: Cpu;
  /** For each varying size, the sizes from which on other kernels may serve. */
  readonly #bounds: readonly (readonly number[])[];

  private constructor(
    pattern: InputPattern,
    cpu: Cpu,
    parts: { readonly ends: AtSizes<MethodEnds>; readonly steps: readonly AffineStep[] },
  ) {
    this.ends = parts.ends;
    this.#pattern = pattern;
    this.#steps = parts.steps;
    this.#cpu = cpu;
    const calls = this.#steps.flatMap(({ call, fused }) => (fused ? [call, fused] : [call]));
    this.#bounds = pattern.sizes.map((_, variable) => boundsOf(calls, pattern.range, variable, cpu));
  }

  /**
   * Fits the method's calls for all sizes of a pattern. Null where they are not affine in the sizes, or cannot be resolved
   * at some: each size is then resolved by itself.
   */
  static of(
    pattern: InputPattern,
    cpu: Cpu,
    resolve: (inputSizes: readonly (readonly number[])[]) => ReadyMethod,
  ): SizedMethod | null {
    const { range } = pattern;
    if (pattern.sizes.length === 0) return null;
    const ready: ReadyMethod[] = [];
    try {
      for (const point of pointsOf(range)) ready.push(resolve(pattern.inputsOf(point)));
    } catch {
      // The sizes at hand may differ from the failing ones; their own errors come when they are resolved.
      return null;
    }
    const ends = endsAt(range, ready);
    const steps = ready[0]!.steps.map((_, i) => {
      const call = affineCall(
        range,
        ready.map(({ steps }) => steps[i]!.call),
      );
      const fused = ready.map(({ steps }) => steps[i]!.fused);
      const isUsed = fused.some((one) => one !== null && one.kernel.target !== "reference");
      const both = fused.every((one) => one !== null) ? affineCall(range, fused) : null;
      return call && (both || !isUsed) ? { call, fused: both } : null;
    });
    if (!ends || !steps.every((step) => step !== null)) return null;
    return new SizedMethod(pattern, cpu, { ends, steps });
  }

  /** The class of given sizes; null where different kernels serve its smallest and largest sizes. */
  classOf(sizes: Sizes): SizeClass | null {
    const { range } = this.#pattern;
    const places = sizes.map((size, i) => this.#bounds[i]!.findLastIndex((bound) => size >= bound));
    const smallest = places.map((place, i) => (place < 0 ? range.smallest[i]! : this.#bounds[i]![place]!));
    const largest = places.map((place, i) => (this.#bounds[i]![place + 1] ?? range.largest[i]! + 1) - 1);
    const first = this.#callsAt(smallest);
    const last = this.#callsAt(largest);
    const isSame = first.every(({ call, kernel }, i) => last[i]?.call === call && last[i].kernel === kernel);
    if (!isSame || first.length !== last.length) return null;
    return {
      key: places.join(" "),
      range: { smallest, largest },
      count: first.length,
      callAt(index, now) {
        const { call, kernel } = first[index]!;
        return kernelCall(call.operator, kernel, call.args(now) as never);
      },
    };
  }

  /** Key of the class of given sizes. */
  classKey(sizes: Sizes): string {
    return sizes.map((size, i) => this.#bounds[i]!.findLastIndex((bound) => size >= bound)).join(" ");
  }

  #callsAt(sizes: Sizes): { readonly call: AffineCall; readonly kernel: Kernel<never> }[] {
    const choose = (call: AffineCall) => selectKernel(call.candidates, call.query(sizes), this.#cpu);
    const fused = this.#steps.map((step) => (step.fused ? choose(step.fused) : undefined));
    return fusedPlaces(fused).map(({ place, isFused }) => {
      const { call, fused: both } = this.#steps[place]!;
      return isFused ? { call: both!, kernel: fused[place]! } : { call, kernel: choose(call) };
    });
  }
}

function endsAt(range: SizeRange, ready: readonly ReadyMethod[]): AtSizes<MethodEnds> | null {
  const tensors = fitted(
    range,
    ready.map(({ inputs, outputs }) => ({ inputs, outputs })),
  );
  const { inputs, checks } = ready[0]!;
  const limits = checks.map(({ tensor, where }, i) => {
    const input = inputs.indexOf(tensor);
    const isSame = ready.every((one) => one.checks[i]?.where === where && one.inputs[input] === one.checks[i].tensor);
    // Limits of positions leave room for the tokens after them, so they fall as tokens grow.
    const values = ready.map((one) => one.checks[i]?.limit ?? Number.NaN);
    const slopes = isSame ? slopesOf(range, values, Number.NEGATIVE_INFINITY) : null;
    return slopes && { input, where, at: (sizes: Sizes) => affineAt(range, values[0]!, slopes, sizes) };
  });
  const isEven = limits.every((limit) => limit !== null) && ready.every((one) => one.checks.length === checks.length);
  if (!tensors || !isEven) return null;
  return (sizes) => {
    const { inputs, outputs } = tensors(sizes);
    const now = limits.map(({ input, where, at }) => ({ tensor: inputs[input]!, limit: at(sizes), where }));
    return { inputs, outputs, checks: now };
  };
}

function affineCall(range: SizeRange, calls: readonly BoundCall[]): AffineCall | null {
  const { operator, candidates } = calls[0]!;
  const query = fitted(
    range,
    calls.map((call) => call.query),
  );
  const args = fitted(
    range,
    calls.map((call) => call.args),
  );
  const isSame = calls.every((call) => call.operator === operator && call.candidates === candidates);
  return isSame && query && args ? { operator, candidates, query, args } : null;
}

/** Sizes, in order, from which on other kernels may serve a call. */
function boundsOf(
  calls: readonly AffineCall[],
  { smallest, largest }: SizeRange,
  variable: number,
  cpu: Cpu,
): number[] {
  const first = smallest[variable]!;
  const bounds = new Set<number>();
  for (const { candidates, query } of calls) {
    const m = query(smallest).m;
    const slope = query(smallest.with(variable, first + 1)).m - m;
    if (slope === 0) continue;
    for (const { needs, mStep, groups = [] } of candidates) {
      if (needs.some((feature) => !cpu.features.has(feature))) continue;
      for (const least of [mStep, ...groups.map((limit) => limit.m)])
        bounds.add(first + Math.ceil((least - m) / slope));
    }
  }
  return [...bounds].filter((bound) => bound > first && bound <= largest[variable]!).sort((a, b) => a - b);
}
