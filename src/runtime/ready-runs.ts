/**
 * Ready methods of a session: one for all sizes that the same kernels serve, or one for each size where that is impossible, and
 * for the first size.
 */

import type { InterpreterContext } from "../executorch/interpreter.ts";
import type { KernelMemory } from "../kernels/contract.ts";
import type { BoundCall } from "../ops/operator.ts";
import type { Method } from "../program/program.ts";
import { isSameShape, type Tensor } from "../tensor.ts";
import type { MethodCalls } from "./calls/method-calls.ts";
import type { RunTimes } from "./calls/profile.ts";
import type { Holdings } from "./memory.ts";
import { type ReadyMethod, readyMethod } from "./method.ts";
import { type CallsOfSizes, callsAt, RunList, type RunPlace } from "./run-list.ts";
import { inputPattern, type MethodEnds, SizedMethod } from "./sized-method.ts";

/** Most single sizes for which methods are kept ready, beside those that are always kept. */
const READY_MAX = 6;

/** What making methods ready needs of the program. */
export interface RunsProgram extends InterpreterContext, RunPlace {
  /** Memory for constants, scratch and state. */
  readonly memory: KernelMemory;
  /** Bytes of the constants, by their indices in the program. */
  readonly constants: readonly Uint8Array[];
  /** Handle of the sequence table; null for a program without a paged KV cache. */
  readonly sequences: Tensor | null;
  /** The planned calls of a method. */
  callsOf(method: Method): MethodCalls;
  /** Scratch of a method, shared by all sessions. */
  scratchOf(method: Method): Uint8Array;
}

/** Calls that are ready, with their inputs and outputs at the present sizes. */
export interface ReadyRun {
  readonly calls: RunList;
  readonly ends: MethodEnds;
  readonly times: RunTimes | undefined;
}

interface KeptRun extends ReadyRun {
  ends: MethodEnds;
  times: RunTimes | undefined;
  /** Whether it is kept as long as the session lives. */
  readonly isKept: boolean;
  readonly free: () => void;
}

type InputSizes = readonly (readonly number[])[];

export class ReadyRuns {
  readonly #program: RunsProgram;
  readonly #state: Uint8Array;
  readonly #holdings: Holdings;
  /** Runs by input sizes, where each size is resolved by itself. */
  readonly #single = new Map<string, KeptRun>();
  /**
   * Methods by pattern of input sizes; null where each size is resolved by itself, undefined while only one size was seen: the
   * calls of a class take three times as long to make.
   */
  readonly #sized = new Map<string, SizedMethod | null | undefined>();
  /** Runs by class of sizes; null where each size is resolved by itself. */
  readonly #classes = new Map<string, KeptRun | null>();
  readonly #times = new Map<string, RunTimes>();
  /** The last request: decoding asks for the same sizes again and again. */
  #last: { readonly method: Method; readonly sizes: InputSizes; readonly run: ReadyRun } | null = null;

  constructor(program: RunsProgram, state: Uint8Array, holdings: Holdings) {
    this.#program = program;
    this.#state = state;
    this.#holdings = holdings;
  }

  /** A method's calls for inputs of these sizes, valid until other sizes are asked for. Errors name the file. */
  of(method: Method, inputs: readonly Tensor[]): ReadyRun {
    const last = this.#last;
    if (last?.method === method && inputs.every(({ shape }, i) => isSameShape(shape, last.sizes[i]!))) return last.run;
    this.#last = null;
    const sizes = inputs.map(({ shape }) => [...shape]);
    const run = this.#ofClass(method, sizes) ?? this.#ofSizes(method, sizes);
    this.#last = { method, sizes, run };
    return run;
  }

  /** The run for a class of sizes; null where each size must be resolved by itself. */
  #ofClass(method: Method, inputSizes: InputSizes): ReadyRun | null {
    const pattern = inputPattern(method, inputSizes);
    const { sizes } = pattern;
    if (sizes.length === 0) return null;
    const key = `${method.name} ${pattern.key}`;
    let sized = this.#sized.get(key);
    if (sized === undefined) {
      const isFirst = !this.#sized.has(key);
      if (isFirst) this.#sized.set(key, undefined);
      if (isFirst || this.#single.has(sizesKey(method, inputSizes))) return null;
      sized = SizedMethod.of(pattern, this.#program.cpu, (given) => this.#resolve(method, given));
      this.#sized.set(key, sized);
    }
    if (!sized) return null;
    const classKey = `${key} in ${sized.classKey(sizes)}`;
    const known = this.#classes.get(classKey);
    const run = known === undefined ? this.#makeClass(sized, sizes) : known;
    if (run && !isSameShape(run.calls.sizes, sizes)) {
      if (!run.calls.resize(sizes)) {
        run.free();
        this.#classes.set(classKey, null);
        return null;
      }
      run.ends = sized.ends(sizes);
    }
    this.#classes.set(classKey, run);
    if (run) run.times = this.#timesFor(method, inputSizes);
    return run;
  }

  #makeClass(sized: SizedMethod, sizes: readonly number[]): KeptRun | null {
    const calls = sized.classOf(sizes);
    if (!calls) return null;
    this.#program.noteKernels(callsAt(calls, sizes));
    return this.#keep(calls, sized.ends(calls.range.smallest), true);
  }

  #ofSizes(method: Method, inputSizes: InputSizes): ReadyRun {
    const key = sizesKey(method, inputSizes);
    const known = this.#single.get(key);
    if (known) return known;
    this.#forgetOldest();
    const ready = this.#resolve(method, inputSizes);
    this.#program.noteKernels(ready.calls);
    const run = this.#keep(ready.calls, ready, isKept(method, inputSizes));
    run.times = this.#timesFor(method, inputSizes, ready);
    this.#single.set(key, run);
    return run;
  }

  /** Frees the oldest run of a single size, when there are too many. */
  #forgetOldest(): void {
    const passing = [...this.#single].filter(([, { isKept }]) => !isKept);
    if (passing.length < READY_MAX) return;
    const [key, { free }] = passing[0]!;
    free();
    this.#single.delete(key);
  }

  #resolve(method: Method, inputSizes: InputSizes): ReadyMethod {
    const program = this.#program;
    const memory = {
      scratch: program.scratchOf(method),
      state: this.#state,
      sequences: program.sequences,
      constants: program.constants,
    };
    return readyMethod(program.callsOf(method), inputSizes, memory, program);
  }

  #keep(calls: readonly BoundCall[] | CallsOfSizes, { inputs, outputs, checks }: MethodEnds, isKept: boolean): KeptRun {
    const list = new RunList(calls, this.#program);
    const free = this.#holdings.add(list.release);
    return { isKept, calls: list, ends: { inputs, outputs, checks }, times: undefined, free };
  }

  /** Times of the calls for these sizes; undefined without a profile. */
  #timesFor(method: Method, inputSizes: InputSizes, ready?: ReadyMethod): RunTimes | undefined {
    const { profile } = this.#program;
    if (!profile) return undefined;
    const label = `${method.name} ${inputSizes.map((shape) => `[${shape.join(", ")}]`).join(" ")}`;
    const known = this.#times.get(label);
    if (known) return known;
    const { calls, places } = ready ?? this.#resolve(method, inputSizes);
    const times = profile.track(calls, { label, planned: { method, places } });
    this.#times.set(label, times);
    return times;
  }
}

const sizesKey = (method: Method, sizes: InputSizes) =>
  `${method.name} ${sizes.map((shape) => shape.join("x")).join(" ")}`;

/** Whether sizes are the largest that the method takes (whole chunks) or the smallest (decode). */
function isKept(method: Method, inputSizes: InputSizes): boolean {
  const all = (rule: (size: number, largest: number, isStatic: boolean) => boolean) =>
    method.inputs.every((index, i) => {
      const value = method.values[index]!;
      if (value.kind !== "tensor") return false;
      return value.sizes.every((largest, dim) => rule(inputSizes[i]![dim]!, largest, value.dynamism === "static"));
    });
  return all((size, largest) => size === largest) || all((size, _, isStatic) => isStatic || size === 1);
}
