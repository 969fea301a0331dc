/** How many bytes of a method's planned memory hold values that are still needed, call by call. */
import { byteSize } from "../../dtype.ts";
import { isTensorList, type Method, SCRATCH_MEMORY, STATE_MEMORY } from "../../program/program.ts";
import { elementCount } from "../../tensor.ts";

/** Use of a method's planned memory: bytes planned, and bytes in use at each call. */
export interface MemoryOccupancy {
  /** Name of the method. */
  readonly method: string;
  /** Planned bytes of scratch, whose values live during a run only. */
  readonly scratchBytes: number;
  /** Planned bytes of state that outlives runs, such as keys and values. */
  readonly stateBytes: number;
  /** Bytes of scratch in use at each call: of values computed by then and still needed. */
  readonly live: readonly number[];
  /** Most bytes of scratch in use at one call. */
  readonly peakBytes: number;
  /** Mean bytes of scratch in use over all calls. */
  readonly meanBytes: number;
}

interface Lifetime {
  readonly start: number;
  readonly end: number;
  first: number;
  last: number;
}

/**
 * Computes the use of planned memory with the planned (largest) sizes; values that share bytes count once. `places`:
 * indices of the kernel calls to report.
 */
export function memoryOccupancy(method: Method, places: readonly number[]): MemoryOccupancy {
  const calls = method.instructions.flatMap((step) => (step.kind === "kernel" ? [step.args] : []));
  const lifetimes = [...lifetimesOf(method, calls).values()];
  const live = places.map((i) => coveredBytes(lifetimes.filter(({ first, last }) => first <= i && i <= last)));
  return {
    method: method.name,
    scratchBytes: method.memorySizes[SCRATCH_MEMORY] ?? 0,
    stateBytes: method.memorySizes[STATE_MEMORY] ?? 0,
    live,
    peakBytes: live.reduce((peak, bytes) => Math.max(peak, bytes), 0),
    meanBytes: live.length > 0 ? live.reduce((sum, bytes) => sum + bytes, 0) / live.length : 0,
  };
}

/** First and last call of each value in scratch; inputs live from the first call, outputs to the last. */
function lifetimesOf(method: Method, calls: readonly (readonly number[])[]): ReadonlyMap<number, Lifetime> {
  const lifetimes = new Map<number, Lifetime>();
  const use = (index: number, call: number) => {
    const value = method.values[index];
    if (value && isTensorList(value)) for (const item of value.items) use(item, call);
    if (value?.kind !== "tensor" || value.allocation?.memoryId !== SCRATCH_MEMORY) return;
    const { offset: start } = value.allocation;
    const end = start + elementCount(value.sizes) * byteSize(value.dtype);
    const known = lifetimes.get(index) ?? { start, end, first: call, last: call };
    known.last = Math.max(known.last, call);
    lifetimes.set(index, known);
  };
  for (const index of method.inputs) use(index, 0);
  for (const [i, args] of calls.entries()) for (const index of args) use(index, i);
  for (const index of method.outputs) use(index, calls.length - 1);
  return lifetimes;
}

/** Bytes of the union of byte ranges. */
function coveredBytes(ranges: readonly Lifetime[]): number {
  let covered = 0;
  let reached = 0;
  for (const { start, end } of [...ranges].sort((a, b) => a.start - b.start)) {
    covered += Math.max(0, end - Math.max(start, reached));
    reached = Math.max(reached, end);
  }
  return covered;
}
