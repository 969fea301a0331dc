/**
 * Runs a list of bound calls: stretches of native or WebAssembly calls become plans that run off the JavaScript thread, the
 * others run here one by one, giving turns to the event loop.
 */
import { takeTurn, turnHappened } from "../event-loop.ts";
import type { SizeRange, Sizes } from "../kernels/affine.ts";
import type { CallPlan, EncodedCall, KernelMemory } from "../kernels/contract.ts";
import type { KernelCall } from "../ops/operator.ts";
import type { RunTimes } from "./calls/profile.ts";

/**
 * Least calls of a plan. Going to the native threads and back costs about as much as some small kernels. WebAssembly calls
 * always form plans, since a single call would copy its arguments to another memory.
 */
const PLAN_MIN_CALLS = { native: 2, wasm: 1 } as const;

/**
 * Plans that took less the last time run on this thread, where they can: switching to other threads and back takes some 0.2
 * ms, and the event loop can wait that long.
 */
const SHORT_PLAN_MS = 1;

/**
 * Longer native plans run in pieces of about this time, between which plans of other programs get their turn on the
 * threads, in order of arrival. WebAssembly programs have threads of their own.
 */
const PIECE_MS = 15;
const PIECES_MAX = 32;

/**
 * When a plan of this process last ended. Native plans run one after the other, so the next one began then at the earliest.
 */
let lastEnd = 0;

/** Part of the list: `count` calls from number `first` on. */
type Part = (BoundSteps | TimedPlan) & { readonly first: number; readonly count: number };

interface BoundSteps {
  steps: readonly (() => void)[];
}

interface TimedPlan {
  readonly count: number;
  readonly plan: CallPlan;
  /**
   * Milliseconds of its last run without waiting for other programs, or an estimate for the present sizes; Infinity before
   * the first run.
   */
  milliseconds: number;
  /** Makes a plan of the calls `from` to `to`; null where dividing is of no use. */
  readonly divide: ((from: number, to: number) => CallPlan) | null;
  pieces: Pieces | null;
}

/** A plan divided into pieces, for some sizes. */
interface Pieces {
  readonly plans: readonly { readonly plan: CallPlan; readonly from: number; readonly to: number }[];
  sizes: Sizes;
}

/** Where calls run: memory, threads, and the kernel scratch that all runs of a program share. */
export interface RunPlace {
  /** Memory for constants, scratch and state. */
  readonly memory: KernelMemory;
  /** Threads of the kernels. */
  readonly threads: number;
  /** Scratch of at least this many bytes for kernels. */
  kernelScratch(byteLength: number): Uint8Array;
}

/** Calls for all sizes of a range. */
export interface CallsOfSizes {
  readonly range: SizeRange;
  /** Number of calls; their kernels are the same for all sizes. */
  readonly count: number;
  callAt(index: number, sizes: Sizes): KernelCall;
}

/** The calls for given sizes. */
export function callsAt({ count, callAt }: CallsOfSizes, sizes: Sizes): KernelCall[] {
  return Array.from({ length: count }, (_, index) => callAt(index, sizes));
}

export class RunList {
  readonly #parts: readonly Part[];
  readonly #memory: KernelMemory;
  readonly #threads: number;
  readonly #scratch: Uint8Array;
  readonly #release: () => void;
  readonly #sized: CallsOfSizes | undefined;
  #sizes: Sizes;

  /** Makes a run of fixed calls, or of calls for the smallest sizes of a range, which `resize` changes. */
  constructor(calls: readonly KernelCall[] | CallsOfSizes, place: RunPlace) {
    // The closure that frees the list outlives the program, so it must not refer to `place`, which may be the program.
    const { memory, threads } = place;
    const sized = "range" in calls ? calls : undefined;
    const first = "range" in calls ? callsAt(calls, calls.range.smallest) : calls;
    const largest = sized ? callsAt(sized, sized.range.largest) : [];
    const bytes = [...first, ...largest].reduce((most, call) => Math.max(most, call.scratchBytes(threads)), 0);
    this.#memory = memory;
    this.#threads = threads;
    this.#scratch = place.kernelScratch(bytes);
    this.#sized = sized;
    this.#sizes = sized?.range.smallest ?? [];
    const parts = stretches(first, this.#scratch).map((stretch) => this.#part(stretch));
    this.#parts = parts;
    this.#release = () => {
      for (const part of parts)
        if ("plan" in part) for (const { plan } of [part, ...(part.pieces?.plans ?? [])]) plan.dispose();
    };
  }

  /** Frees its memory; does not refer to the program. */
  get release(): () => void {
    return this.#release;
  }

  /** Present sizes of its calls. */
  get sizes(): Sizes {
    return this.#sizes;
  }

  /**
   * Changes the calls to other sizes of the range; not during a run. False where a kernel needs more scratch than for the
   * largest sizes, after which the list cannot be used.
   */
  resize(sizes: Sizes): boolean {
    for (const part of this.#parts) {
      if (!("plan" in part ? part.plan.resize!(sizes) : this.#bindAgain(part, sizes))) return false;
      if ("plan" in part) part.milliseconds *= sumOf(sizes) / sumOf(this.#sizes);
    }
    this.#sizes = sizes;
    return true;
  }

  #part({ calls, encoded, first }: Stretch): Part {
    const [memory, threads] = [this.#memory, this.#threads];
    const place = { first, count: calls.length };
    if (encoded.length === 0 || encoded.length < PLAN_MIN_CALLS[encoded[0]!.target])
      return { steps: calls.map((call) => call.bind(this.#scratch, threads)), ...place };
    const divide = (from: number, to: number) => {
      const at = (index: number, sizes: Sizes) =>
        this.#callAt(first + from + index, sizes)?.encode(this.#scratch) ?? null;
      return memory.planCalls(encoded.slice(from, to), threads, this.#sized && { range: this.#sized.range, at });
    };
    const unknown = { milliseconds: Number.POSITIVE_INFINITY, pieces: null };
    const isShared = encoded[0]!.target === "native";
    return { plan: divide(0, encoded.length), divide: isShared ? divide : null, ...unknown, ...place };
  }

  /** The call for these sizes; null where its scratch is too small. */
  #callAt(index: number, sizes: Sizes): KernelCall | null {
    const call = this.#sized!.callAt(index, sizes);
    return call.scratchBytes(this.#threads) > this.#scratch.length ? null : call;
  }

  #bindAgain(part: BoundSteps & Part, sizes: Sizes): boolean {
    const calls = Array.from({ length: part.count }, (_, i) => this.#callAt(part.first + i, sizes));
    if (!calls.every((call) => call !== null)) return false;
    part.steps = calls.map((call) => call.bind(this.#scratch, this.#threads));
    return true;
  }

  /**
   * Runs all calls in order. An abort takes effect between kernels and throws the signal's reason. `times` collects these
   * calls'.
   */
  async run(signal: AbortSignal | undefined, times?: RunTimes): Promise<void> {
    const { abort } = this.#memory;
    signal?.throwIfAborted();
    abort[0] = 0;
    const start = times ? performance.now() : 0;
    const onAbort = () => {
      abort[0] = 1;
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      for (const part of this.#parts) {
        times?.startPart(part.first);
        const nanoseconds = times?.nanoseconds.subarray(part.first, part.first + part.count);
        if ("plan" in part) await this.#runPlan(part, signal, nanoseconds);
        else await runSteps(part.steps, signal, nanoseconds);
        signal?.throwIfAborted();
      }
      times?.addRun(start);
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** The plan of a part, or its pieces where it takes long. */
  #piecesOf(part: TimedPlan): Pieces["plans"] {
    const whole = [{ plan: part.plan, from: 0, to: part.count }];
    const { milliseconds, count, divide } = part;
    if (!divide || milliseconds < 2 * PIECE_MS || milliseconds === Number.POSITIVE_INFINITY) return whole;
    const wanted = Math.min(Math.ceil(milliseconds / PIECE_MS), PIECES_MAX, count);
    let { pieces } = part;
    if (!pieces || wanted > 2 * pieces.plans.length) {
      for (const { plan } of pieces?.plans ?? []) plan.dispose();
      pieces = { plans: dividedPlans(divide, count, wanted), sizes: this.#sized?.range.smallest ?? this.#sizes };
      part.pieces = pieces;
    }
    if (pieces.sizes !== this.#sizes && !pieces.plans.every(({ plan }) => plan.resize!(this.#sizes))) return whole;
    pieces.sizes = this.#sizes;
    return pieces.plans;
  }

  async #runPlan(part: TimedPlan, signal: AbortSignal | undefined, times: Float64Array | undefined): Promise<void> {
    const { plan } = part;
    if (plan.runHere && part.milliseconds < SHORT_PLAN_MS) {
      const start = performance.now();
      plan.runHere(times);
      part.milliseconds = performance.now() - start;
      await takeTurn(signal);
    } else {
      let milliseconds = 0;
      for (const piece of this.#piecesOf(part)) {
        const asked = performance.now();
        await piece.plan.run(this.#memory.abort, times?.subarray(piece.from, piece.to));
        const end = performance.now();
        milliseconds += end - Math.max(asked, lastEnd);
        lastEnd = end;
        turnHappened();
        if (signal?.aborted) break;
      }
      part.milliseconds = milliseconds;
    }
  }
}

/** Divides calls into pieces of about equal numbers. */
function dividedPlans(divide: NonNullable<TimedPlan["divide"]>, count: number, pieces: number): Pieces["plans"] {
  const ends = Array.from({ length: pieces + 1 }, (_, i) => Math.round((i * count) / pieces));
  return ends.slice(1).map((to, i) => ({ plan: divide(ends[i]!, to), from: ends[i]!, to }));
}

function sumOf(sizes: Sizes): number {
  return sizes.reduce((sum, size) => sum + size, 0);
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
  readonly first: number;
  readonly calls: KernelCall[];
  /** Encoded calls of a plan; empty for calls that run on the JavaScript thread. */
  readonly encoded: EncodedCall[];
}

/** Divides calls into stretches of one kind: native, WebAssembly or JavaScript. */
function stretches(calls: readonly KernelCall[], scratch: Uint8Array): Stretch[] {
  const found: Stretch[] = [];
  for (const [first, call] of calls.entries()) {
    const encoded = call.encode(scratch);
    let last = found.at(-1);
    if (!last || last.encoded[0]?.target !== encoded?.target) {
      last = { first, calls: [], encoded: [] };
      found.push(last);
    }
    last.calls.push(call);
    if (encoded) last.encoded.push(encoded);
  }
  return found;
}
