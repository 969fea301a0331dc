import { expect, it } from "vitest";
import type { Kernel } from "../../kernels/contract.ts";
import { processMemory } from "../../kernels/memory.ts";
import type { BoundCall } from "../../ops/operator.ts";
import type { Method } from "../../program/program.ts";
import { RunList } from "../run-list.ts";
import { memoryOccupancy } from "./memory-occupancy.ts";
import { Profile } from "./profile.ts";
import type { Trace } from "./trace.ts";

/** A call that does nothing but count. */
function call(operator: string, size: number, run: () => void): BoundCall {
  const kernel = { name: `${operator}_reference` } as Kernel<never>;
  const chosen = { candidates: [kernel], query: { layout: null, bits: null, m: 1 }, args: null };
  const shapes = [[1, size], [size]];
  const bytes = () => 8 * size;
  return {
    operator,
    kernel,
    ...chosen,
    shapes,
    indexCheck: null,
    multiplications: 0,
    bytes,
    scratchBytes: () => 0,
    bind: () => run,
    encode: () => null,
  };
}

const place = { memory: processMemory(), threads: 1, kernelScratch: (length: number) => new Uint8Array(length) };
const facts = { label: "forward [1, 4]", planned: null };

it("adds up the calls of all runs by operator, kernel and shapes", async () => {
  const profile = new Profile();
  let done = 0;
  const count = () => {
    done++;
  };
  const calls = [call("mul", 4, count), call("add", 4, count), call("mul", 4, count), call("mul", 8, count)];
  const times = profile.track(calls, facts);
  const list = new RunList(calls, place);
  for (let run = 0; run < 3; run++) await list.run(undefined, times);
  const entries = profile.entries();
  expect(entries.map(({ operator, shapes, calls }) => `${operator} ${shapes}: ${calls}`).sort()).toEqual([
    "add 1x4 → 4: 3",
    "mul 1x4 → 4: 6",
    "mul 1x8 → 8: 3",
  ]);
  expect(done).toBe(12);
  expect(entries.map(({ bytes }) => bytes).sort((a, b) => a - b)).toEqual([96, 192, 192]);
  expect(entries.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(1, 9);
  for (const { bytes, milliseconds, gigabytesPerSecond } of entries)
    if (milliseconds > 0) expect(gigabytesPerSecond).toBeCloseTo(bytes / milliseconds / 1e6, 9);
  expect(entries.reduce((sum, { milliseconds }) => sum + milliseconds, 0)).toBeLessThanOrEqual(profile.milliseconds);
});

it("forgets on reset, and lists nothing of lists that did not run", async () => {
  const profile = new Profile();
  const calls = [call("add", 1, () => {})];
  const times = profile.track(calls, facts);
  const list = new RunList(calls, place);
  expect(profile.entries()).toEqual([]);
  await list.run(undefined, times);
  profile.reset();
  expect(profile.entries()).toEqual([]);
  expect(profile.milliseconds).toBe(0);
});

it("traces every call of every run, in order and within the run", async () => {
  const profile = new Profile({ trace: true });
  const wait = () => {
    const start = performance.now();
    while (performance.now() - start < 0.2);
  };
  const calls = [call("mul", 4, wait), call("add", 4, wait)];
  const times = profile.track(calls, facts);
  const list = new RunList(calls, place);
  await list.run(undefined, times);
  profile.reset();
  for (let run = 0; run < 3; run++) await list.run(undefined, times);
  const { traceEvents } = JSON.parse(JSON.stringify(profile.trace())) as Trace;
  const timed = traceEvents.filter(({ ph }) => ph === "X");
  const one = ["forward [1, 4]", "mul", "add"];
  expect(timed.map(({ name }) => name)).toEqual([...one, ...one, ...one]);
  let whole = timed[0]!;
  let at = 0;
  for (const event of timed) {
    // Sums of microseconds in another order differ in their last bits.
    expect(event.ts!).toBeGreaterThanOrEqual(at - 1e-6);
    if (event.cat === "method") whole = event;
    else {
      expect(event.dur!).toBeGreaterThanOrEqual(200);
      expect(event.ts! + event.dur!).toBeLessThanOrEqual(whole.ts! + whole.dur! + 1);
    }
    at = event.cat === "method" ? event.ts! : event.ts! + event.dur!;
  }
});

it("counts the planned memory that is in use", () => {
  const value = (offset: number, size: number) => ({
    kind: "tensor" as const,
    dtype: "f32" as const,
    sizes: [size],
    dimOrder: [0],
    dynamism: "static" as const,
    constant: null,
    allocation: { memoryId: 1, offset },
    name: null,
  });
  // 0 → 1 at another place; 1 → 2 in place of 0; 2 → 3 in place of itself.
  const method: Method = {
    name: "forward",
    values: [value(0, 4), value(16, 8), value(0, 4), value(0, 2)],
    inputs: [0],
    outputs: [3],
    operators: [{ name: "f", overload: "out" }],
    instructions: [
      [0, 1],
      [1, 2],
      [2, 3],
    ].map((args) => ({ kind: "kernel", operator: 0, args })),
    delegates: [],
    memorySizes: [0, 64, 100],
  };
  expect(memoryOccupancy(method, [0, 2]).live).toEqual([48, 16]);
  // The list has value 1, so that the last call needs it, too.
  const values = [...method.values, { kind: "tensorList" as const, items: [1] }];
  const kernel = { kind: "kernel" as const, operator: 0, args: [2, 3, 4] };
  const listed = { ...method, values, instructions: [...method.instructions.slice(0, 2), kernel] };
  expect(memoryOccupancy(listed, [0, 2]).live).toEqual([48, 48]);
  expect(memoryOccupancy(method, [0, 1, 2])).toEqual({
    method: "forward",
    scratchBytes: 64,
    stateBytes: 100,
    live: [48, 48, 16],
    peakBytes: 48,
    meanBytes: 112 / 3,
  });
});
