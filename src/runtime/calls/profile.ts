/** Profile of a program: the time of each operator call, summed over runs. */
import { checkOptions } from "../../arguments.ts";
import type { BoundCall } from "../../ops/operator.ts";
import type { Method } from "../../program/program.ts";
import { type MemoryOccupancy, memoryOccupancy } from "./memory-occupancy.ts";
import { type Trace, type TraceRun, traceOf } from "./trace.ts";

/** The calls of one operator and kernel with the same shapes. */
export interface ProfileEntry {
  /** Full name of the operator. */
  readonly operator: string;
  /** Name of the kernel that served. */
  readonly kernel: string;
  /** Shapes of the first tensor and of the out tensor, such as "1x1x2048 → 1x1x8192". */
  readonly shapes: string;
  /** Number of calls. */
  readonly calls: number;
  /** Time of these calls, in milliseconds. */
  readonly milliseconds: number;
  /** Share of the time of all calls, 0 to 1. */
  readonly share: number;
  /** Bytes that the calls read and wrote: weights, activations, and the rows of caches and tables that they touched. */
  readonly bytes: number;
  /** Bandwidth in 10^9 bytes a second; 0 where the clock measured no time. */
  readonly gigabytesPerSecond: number;
}

/** Facts about a list of calls. */
export interface RunFacts {
  /** The method and the sizes of its inputs, as text. */
  readonly label: string;
  /** The method and the indices of the calls among its kernel calls; null if the calls are not one plan. */
  readonly planned: { readonly method: Method; readonly places: readonly number[] } | null;
}

/** Times of one list of calls, summed over runs. */
export class RunTimes {
  /** Calls of the run, in order. */
  readonly calls: readonly BoundCall[];
  /** The method and the sizes of its inputs, as text. */
  readonly label: string;
  /** Use of planned memory; null where nothing is planned. */
  readonly memory: MemoryOccupancy | null;
  /** Nanoseconds of each call, summed over runs. */
  readonly nanoseconds: Float64Array;
  /** Bytes that each call moved, summed over runs. */
  readonly bytes: Float64Array;
  /** Number of runs so far. */
  runs = 0;
  /** Milliseconds from start to end of runs, including the time between calls. */
  milliseconds = 0;
  /** The single runs, when a trace is kept; null otherwise. */
  readonly traced: TraceRun[] | null;
  /** `nanoseconds` as they were before the present run. */
  readonly #before: Float64Array;
  /** The parts of the present run: the first call of each, and when it began. */
  #starts: { readonly call: number; readonly at: number }[] = [];

  constructor(calls: readonly BoundCall[], { label, planned }: RunFacts, isTraced: boolean) {
    this.calls = calls;
    this.label = label;
    this.memory = planned && memoryOccupancy(planned.method, planned.places);
    this.nanoseconds = new Float64Array(calls.length);
    this.bytes = new Float64Array(calls.length);
    this.#before = new Float64Array(calls.length);
    this.traced = isTraced ? [] : null;
  }

  /** Notes that the calls from number `call` on begin now. */
  startPart(call: number): void {
    if (this.traced) this.#starts.push({ call, at: performance.now() });
  }

  /** Notes a run that began at `start`, by `performance.now()`, and ends now. */
  addRun(start: number): void {
    const end = performance.now();
    this.runs++;
    this.milliseconds += end - start;
    for (const [i, call] of this.calls.entries()) this.bytes[i]! += call.bytes();
    if (!this.traced) return;
    const milliseconds = Float64Array.from(this.nanoseconds, (now, i) => (now - this.#before[i]!) / 1e6);
    this.traced.push({ start, end, parts: this.#starts, milliseconds });
    this.#starts = [];
    this.#before.set(this.nanoseconds);
  }

  /** Forgets all runs so far. */
  reset(): void {
    for (const sums of [this.nanoseconds, this.bytes, this.#before]) sums.fill(0);
    this.runs = 0;
    this.milliseconds = 0;
    this.#starts = [];
    if (this.traced) this.traced.length = 0;
  }
}

/** Options of a `Profile`. */
export interface ProfileOptions {
  /** Keeps every call of every run for `trace()`, some 20 bytes a call, beside the sums. Default false. */
  readonly trace?: boolean | undefined;
}

/** Collects the times of operator calls. Give one to `loadProgram` as `profile`. */
export class Profile {
  readonly #times: RunTimes[] = [];
  readonly #isTraced: boolean;

  constructor(options: ProfileOptions = {}) {
    checkOptions(options);
    this.#isTraced = options.trace ?? false;
  }

  /** Makes the times of a list of calls that is about to be run any number of times. */
  track(calls: readonly BoundCall[], facts: RunFacts): RunTimes {
    const times = new RunTimes(calls, facts, this.#isTraced);
    this.#times.push(times);
    return times;
  }

  /** Forgets the times so far. */
  reset(): void {
    for (const times of this.#times) times.reset();
  }

  /** Milliseconds of whole runs: more than the sum of their calls. */
  get milliseconds(): number {
    return this.#times.reduce((sum, times) => sum + times.milliseconds, 0);
  }

  /** Use of planned memory by method, for methods that ran; a method is planned once for all sizes. */
  get memory(): ReadonlyMap<string, MemoryOccupancy> {
    const ran = this.#times.filter(({ runs }) => runs > 0).map(({ memory }) => memory);
    return new Map(ran.flatMap((memory) => (memory ? [[memory.method, memory] as const] : [])));
  }

  /** Gives the calls by operator, kernel and shapes, slowest first. */
  entries(): ProfileEntry[] {
    const entries = new Map<string, { -readonly [Field in keyof ProfileEntry]: ProfileEntry[Field] }>();
    for (const { calls, nanoseconds, bytes, runs } of this.#times) {
      if (runs === 0) continue;
      for (const [i, { operator, kernel, shapes }] of calls.entries()) {
        const text = shapesText(shapes);
        const key = `${operator} ${kernel.name} ${text}`;
        const known = entries.get(key);
        const none = { calls: 0, milliseconds: 0, share: 0, bytes: 0, gigabytesPerSecond: 0 };
        const entry = known ?? { operator, kernel: kernel.name, shapes: text, ...none };
        entry.calls += runs;
        entry.milliseconds += nanoseconds[i]! / 1e6;
        entry.bytes += bytes[i]!;
        entries.set(key, entry);
      }
    }
    const total = [...entries.values()].reduce((sum, { milliseconds }) => sum + milliseconds, 0);
    for (const entry of entries.values()) {
      entry.share = total > 0 ? entry.milliseconds / total : 0;
      entry.gigabytesPerSecond = entry.milliseconds > 0 ? entry.bytes / entry.milliseconds / 1e6 : 0;
    }
    return [...entries.values()].sort((a, b) => b.milliseconds - a.milliseconds);
  }

  /** Gives all runs since the last reset as a trace for Perfetto or chrome://tracing; empty unless `trace` was set. */
  trace(): Trace {
    return traceOf(this.#times);
  }
}

/** "1x1x2048 → 1x1x8192" */
function shapesText(shapes: readonly (readonly number[])[]): string {
  return shapes.map((shape) => shape.join("x")).join(" → ");
}
