/**
 * Bound calls as a list to run: stretches of native or WebAssembly calls become plans that run off the JavaScript
 * thread, the rest runs here, call by call, with turns for the event loop.
 */
import { takeTurn, turnHappened } from "../event-loop.ts";
import type { CallPlan, EncodedCall, KernelMemory } from "../kernels/contract.ts";
import type { BoundCall } from "../ops/operator.ts";
import type { RunTimes } from "./profile.ts";

/**
 * A trip to the native threads and back costs about as much as some small kernels. WebAssembly always goes: a call
 * alone would take its arguments to another memory.
 */
const PLAN_MIN_CALLS = { native: 2, wasm: 1 } as const;

/**
 * Plans that took less the last time run on this thread, where they can: the way to other threads and back takes some
 * 0.2 ms, and nobody misses the event loop for so short a time.
 */
const SHORT_PLAN_MS = 1;

/** `first`: the first of its calls; `times`: the part's place in the run times, when they are kept. */
type Part = ({ readonly steps: readonly (() => void)[] } | TimedPlan) & {
  readonly first: number;
  readonly times: Float64Array | undefined;
};

interface TimedPlan {
  readonly plan: CallPlan;
  /** What its last run took; Infinity before the first. */
  milliseconds: number;
}

/** Where calls run: with which memory and threads, and the scratch of kernels, which all runs of a program share. */
export interface RunPlace {
  /** Memory for constants, scratch and state. */
  readonly memory: KernelMemory;
  /** Threads of the kernels. */
  readonly threads: number;
  /** Memory of this many bytes that kernels may write while they run. */
  kernelScratch(byteLength: number): Uint8Array;
}

export class RunList {
  readonly #parts: readonly Part[];
  readonly #abort: Int32Array;
  readonly #times: RunTimes | undefined;

  readonly #release: () => void;

  constructor(calls: readonly BoundCall[], place: RunPlace, times?: RunTimes) {
    const { memory, threads } = place;
    this.#abort = memory.abort;
    this.#times = times;
    const scratch = place.kernelScratch(calls.reduce((most, call) => Math.max(most, call.scratchBytes(threads)), 0));
    const parts: Part[] = [];
    let first = 0;
    for (const stretch of stretches(calls, scratch)) {
      const place = { first, times: times?.nanoseconds.subarray(first, first + stretch.calls.length) };
      first += stretch.calls.length;
      const { encoded } = stretch;
      if (encoded.length > 0 && encoded.length >= PLAN_MIN_CALLS[encoded[0]!.target])
        parts.push({ plan: memory.planCalls(encoded, threads), milliseconds: Number.POSITIVE_INFINITY, ...place });
      else parts.push({ steps: stretch.calls.map((call) => call.bind(scratch, threads)), ...place });
    }
    this.#parts = parts;
    this.#release = () => {
      for (const part of parts) if ("plan" in part) part.plan.dispose();
    };
  }

  /** What frees its memory; refers to the list's parts, not to the list. */
  get release(): () => void {
    return this.#release;
  }

  /** Runs all calls in order. An abort is seen between kernels and throws the signal's reason. */
  async run(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    this.#abort[0] = 0;
    const start = this.#times ? performance.now() : 0;
    const onAbort = () => {
      this.#abort[0] = 1;
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      for (const part of this.#parts) {
        this.#times?.startPart(part.first);
        if ("plan" in part) await this.#runPlan(part, signal);
        else await runSteps(part.steps, signal, part.times);
        signal?.throwIfAborted();
      }
      this.#times?.addRun(start);
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  async #runPlan(part: TimedPlan & Pick<Part, "times">, signal: AbortSignal | undefined): Promise<void> {
    const { plan, times } = part;
    const start = performance.now();
    if (plan.runHere && part.milliseconds < SHORT_PLAN_MS) {
      plan.runHere(times);
      part.milliseconds = performance.now() - start;
      await takeTurn(signal);
    } else {
      await plan.run(this.#abort, times);
      turnHappened();
      part.milliseconds = performance.now() - start;
    }
  }
}

async function runSteps(
  steps: readonly (() => void)[],
  signal: AbortSignal | undefined,
  times: Float64Array | undefined,
): Promise<void> {
  for (let i = 0; i < steps.length; i++) {
    const start = times ? performance.now() : 0;
    steps[i]!();
    if (times) times[i]! += 1e6 * (performance.now() - start);
    await takeTurn(signal);
  }
}

interface Stretch {
  readonly calls: BoundCall[];
  /** Empty for calls that run on the JavaScript thread. */
  readonly encoded: EncodedCall[];
}

/** Neighbouring calls of one sort. */
function stretches(calls: readonly BoundCall[], scratch: Uint8Array): Stretch[] {
  const found: Stretch[] = [];
  for (const call of calls) {
    const encoded = call.encode(scratch);
    let last = found.at(-1);
    if (!last || last.encoded[0]?.target !== encoded?.target) {
      last = { calls: [], encoded: [] };
      found.push(last);
    }
    last.calls.push(call);
    if (encoded) last.encoded.push(encoded);
  }
  return found;
}
