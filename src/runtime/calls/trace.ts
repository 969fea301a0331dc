/** Runs as events of the Trace Event Format, for Perfetto (ui.perfetto.dev) and chrome://tracing. */
import type { BoundCall } from "../../ops/operator.ts";
import type { MemoryOccupancy } from "./memory-occupancy.ts";

/** One run of a list of calls; times in milliseconds of `performance.now()`. */
export interface TraceRun {
  /** Start of the run, in milliseconds of `performance.now()`. */
  readonly start: number;
  /** End of the run, in milliseconds of `performance.now()`. */
  readonly end: number;
  /** Start `at` of call number `call`, which the calls after it follow without a pause. */
  readonly parts: readonly { readonly call: number; readonly at: number }[];
  /** Milliseconds that each call took. */
  readonly milliseconds: Float64Array;
}

/** A trace event: "X" has a duration, "C" is a counter, "M" names a process or thread. Times in microseconds. */
export interface TraceEvent {
  /** Name that the viewer shows. */
  readonly name: string;
  /** Kind of the event: a span of time, values of a counter, or metadata. */
  readonly ph: "X" | "C" | "M";
  /** Process that the event belongs to. */
  readonly pid: number;
  /** Row of the viewer that the event belongs to. */
  readonly tid: number;
  /** Category by which the viewer filters. */
  readonly cat?: string;
  /** Time of the start in microseconds. */
  readonly ts?: number;
  /** Duration in microseconds. */
  readonly dur?: number;
  /** Values that the viewer shows beside the event. */
  readonly args?: Readonly<Record<string, unknown>>;
}

/** A trace in the Trace Event Format, which Perfetto and chrome://tracing open. */
export interface Trace {
  /** Events of the trace, as the format of chrome://tracing has them. */
  readonly traceEvents: readonly TraceEvent[];
  /** Unit that the viewer shows times in. */
  readonly displayTimeUnit: "ms";
}

interface TracedTimes {
  readonly calls: readonly BoundCall[];
  readonly label: string;
  readonly memory: MemoryOccupancy | null;
  readonly traced: readonly TraceRun[] | null;
}

const PROCESS = { pid: 1, tid: 1 } as const;

/**
 * The runs in order of time. Plans off the JavaScript thread tell each call's duration but not its start, so their calls
 * are laid one after the other from the start of the plan.
 */
export function traceOf(times: readonly TracedTimes[]): Trace {
  const runs = times.flatMap((list) => (list.traced ?? []).map((run) => ({ list, run })));
  runs.sort((a, b) => a.run.start - b.run.start);
  const origin = runs[0]?.run.start ?? 0;
  const events: TraceEvent[] = [
    { name: "process_name", ph: "M", ...PROCESS, args: { name: "lowbit" } },
    { name: "thread_name", ph: "M", ...PROCESS, args: { name: "operator calls" } },
  ];
  for (const { list, run } of runs) addRun(events, list, run, origin);
  return { traceEvents: events, displayTimeUnit: "ms" };
}

function addRun(events: TraceEvent[], { calls, label, memory }: TracedTimes, run: TraceRun, origin: number): void {
  const microseconds = (at: number) => 1000 * (at - origin);
  const whole = { ts: microseconds(run.start), dur: 1000 * (run.end - run.start) };
  events.push({ name: label, cat: "method", ph: "X", ...PROCESS, ...whole });
  let at = run.start;
  let part = 0;
  for (const [i, call] of calls.entries()) {
    if (run.parts[part]?.call === i) at = Math.max(at, run.parts[part++]!.at);
    const milliseconds = run.milliseconds[i]!;
    const time = { ts: microseconds(at), dur: 1000 * milliseconds };
    const args = { kernel: call.kernel.name, shapes: call.shapes };
    events.push({ name: call.operator, cat: "operator", ph: "X", ...PROCESS, ...time, args });
    const bytes = memory?.live[i];
    if (bytes !== undefined) events.push({ name: "scratch in use", ph: "C", ...PROCESS, ts: time.ts, args: { bytes } });
    at += milliseconds;
  }
}
