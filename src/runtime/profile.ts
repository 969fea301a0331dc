/** Where the time of a program goes: what each operator call takes, added up over runs. Measures; judges nothing. */
import type { BoundCall } from "../ops/operator.ts";

/** Calls that are alike: the same operator and kernel on the same shapes. */
export interface ProfileEntry {
  readonly operator: string;
  readonly kernel: string;
  /** Shapes of the first tensor and of the out tensor: "1x1x2048 → 1x1x8192". */
  readonly shapes: string;
  readonly calls: number;
  readonly milliseconds: number;
}

/** Times of one list of calls. */
export class RunTimes {
  readonly calls: readonly BoundCall[];
  /** One element a call, all runs together. */
  readonly nanoseconds: Float64Array;
  runs = 0;
  /** From the start to the end of runs: calls, and the ways between them. */
  milliseconds = 0;

  constructor(calls: readonly BoundCall[]) {
    this.calls = calls;
    this.nanoseconds = new Float64Array(calls.length);
  }

  addRun(milliseconds: number): void {
    this.runs++;
    this.milliseconds += milliseconds;
  }

  reset(): void {
    this.nanoseconds.fill(0);
    this.runs = 0;
    this.milliseconds = 0;
  }
}

/** Give one to `loadProgram`; it collects from then on. */
export class Profile {
  readonly #times: RunTimes[] = [];

  /** Times for a list of calls that is about to be run any number of times. */
  track(calls: readonly BoundCall[]): RunTimes {
    const times = new RunTimes(calls);
    this.#times.push(times);
    return times;
  }

  /** Forgets the times so far. */
  reset(): void {
    for (const times of this.#times) times.reset();
  }

  /** Time of whole runs, more than that of their calls together. */
  get milliseconds(): number {
    return this.#times.reduce((sum, times) => sum + times.milliseconds, 0);
  }

  /** Slowest first. */
  entries(): ProfileEntry[] {
    const entries = new Map<string, { -readonly [Field in keyof ProfileEntry]: ProfileEntry[Field] }>();
    for (const { calls, nanoseconds, runs } of this.#times) {
      if (runs === 0) continue;
      for (const [i, { operator, kernel, shapes }] of calls.entries()) {
        const text = shapes.map((shape) => shape.join("x")).join(" → ");
        const key = `${operator} ${kernel.name} ${text}`;
        const entry = entries.get(key) ?? { operator, kernel: kernel.name, shapes: text, calls: 0, milliseconds: 0 };
        entry.calls += runs;
        entry.milliseconds += nanoseconds[i]! / 1e6;
        entries.set(key, entry);
      }
    }
    return [...entries.values()].sort((a, b) => b.milliseconds - a.milliseconds);
  }
}
