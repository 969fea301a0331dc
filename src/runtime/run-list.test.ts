/** Lists of bound calls on plans of the test's own: what an abort leaves behind. */
import { expect, it, vi } from "vitest";
import type { SizeRange } from "../kernels/affine.ts";
import type { CallPlan, EncodedCall, KernelMemory, NativeCall, SizedCalls } from "../kernels/contract.ts";
import { processMemory } from "../kernels/memory.ts";
import type { BoundCall } from "../ops/operator.ts";
import { type CallsOfSizes, RunList } from "./run-list.ts";

const encoded: NativeCall = { target: "native", kernel: 0, scalars: [], buffers: [] };
const call = { scratchBytes: () => 0, encode: () => encoded } as unknown as BoundCall;

it("runs again after an abort, which the next run does not see", async () => {
  const controller = new AbortController();
  const seen: number[] = [];
  const plan: CallPlan = {
    async run(abort) {
      seen.push(abort[0]!);
      if (seen.length === 1) controller.abort(new Error("enough"));
      seen.push(abort[0]!);
    },
    dispose() {},
  };
  const memory: KernelMemory = { ...processMemory(), planCalls: () => plan };
  const list = new RunList([call, call], { memory, threads: 1, kernelScratch: (length) => new Uint8Array(length) });
  await expect(list.run(controller.signal)).rejects.toThrow("enough");
  await list.run(undefined);
  expect(seen).toEqual([0, 1, 0, 0]);
});

it("runs a plan that takes long in pieces of its calls, for the sizes of now, and times them in their places", async () => {
  const ran: { calls: number; sizes: readonly number[] }[] = [];
  let disposed = 0;
  let ms = 50;
  const planCalls = (calls: readonly EncodedCall[], _threads: number, sized?: SizedCalls): CallPlan => {
    let sizes = sized!.range.smallest;
    return {
      async run(_abort, times) {
        ran.push({ calls: calls.length, sizes });
        times?.forEach((_, i) => {
          times[i]! += i + 1;
        });
        await new Promise((resolve) => setTimeout(resolve, (ms * calls.length) / 7));
      },
      resize(to) {
        sizes = to;
        return true;
      },
      dispose: () => void disposed++,
    };
  };
  const memory: KernelMemory = { ...processMemory(), planCalls };
  const range = { smallest: [1], largest: [8] } as SizeRange;
  const calls = { range, count: 7, callAt: () => call } as unknown as CallsOfSizes;
  const list = new RunList(calls, { memory, threads: 1, kernelScratch: (length) => new Uint8Array(length) });
  await list.run(undefined);
  expect(ran).toEqual([{ calls: 7, sizes: [1] }]);
  list.resize([8]);
  await list.run(undefined);
  const pieces = ran.slice(1);
  expect(pieces.length).toBeGreaterThan(1);
  expect(pieces.reduce((sum, one) => sum + one.calls, 0)).toBe(7);
  expect(pieces.every(({ sizes }) => sizes[0] === 8)).toBe(true);
  // Short again: as a whole.
  ms = 0;
  await list.run(undefined);
  ran.length = 0;
  list.resize([1]);
  await list.run(undefined);
  expect(ran).toEqual([{ calls: 7, sizes: [1] }]);
  list.release();
  expect(disposed).toBe(1 + pieces.length);
});

it("divides a plan by its own time, not by that of others for which it waits", async () => {
  let pool = Promise.resolve();
  const counts: number[][] = [[], []];
  const listOf = (number: number, milliseconds: number) => {
    const planCalls = (calls: readonly EncodedCall[]): CallPlan => ({
      run() {
        counts[number]!.push(calls.length);
        const own = (milliseconds * calls.length) / 8;
        pool = pool.then(() => new Promise((resolve) => setTimeout(resolve, own)));
        return pool;
      },
      dispose() {},
    });
    const memory: KernelMemory = { ...processMemory(), planCalls };
    const calls = Array.from({ length: 8 }, () => call);
    return new RunList(calls, { memory, threads: 1, kernelScratch: (length) => new Uint8Array(length) });
  };
  const [short, long] = [listOf(0, 1), listOf(1, 160)];
  const many = async (list: RunList, times: number) => {
    for (let i = 0; i < times; i++) await list.run(undefined);
  };
  vi.useFakeTimers();
  try {
    const both = Promise.all([many(short, 6), many(long, 2)]);
    await vi.runAllTimersAsync();
    await both;
  } finally {
    vi.useRealTimers();
  }
  expect(counts[0]).toEqual([8, 8, 8, 8, 8, 8]);
  expect(counts[1]).toEqual([8, 1, 1, 1, 1, 1, 1, 1, 1]);
});

it("sees an abort between two pieces", async () => {
  const controller = new AbortController();
  let runs = 0;
  const plan: CallPlan = {
    async run() {
      runs++;
      await new Promise((resolve) => setTimeout(resolve, 40));
      if (runs === 2) controller.abort(new Error("enough"));
    },
    dispose() {},
  };
  const memory: KernelMemory = { ...processMemory(), planCalls: () => plan };
  const calls = Array.from({ length: 4 }, () => call);
  const list = new RunList(calls, { memory, threads: 1, kernelScratch: (length) => new Uint8Array(length) });
  await list.run(undefined);
  await expect(list.run(controller.signal)).rejects.toThrow("enough");
  expect(runs).toBe(2);
});

it("runs plans of WebAssembly whole, whose programs have threads of their own", async () => {
  const counts: number[] = [];
  const planCalls = (calls: readonly EncodedCall[]): CallPlan => ({
    async run() {
      counts.push(calls.length);
      await new Promise((resolve) => setTimeout(resolve, 40));
    },
    dispose() {},
  });
  const memory: KernelMemory = { ...processMemory(), planCalls };
  const encoded = { target: "wasm" } as EncodedCall;
  const calls = Array.from({ length: 4 }, () => ({ ...call, encode: () => encoded }) as unknown as BoundCall);
  const list = new RunList(calls, { memory, threads: 1, kernelScratch: (length) => new Uint8Array(length) });
  for (let i = 0; i < 3; i++) await list.run(undefined);
  expect(counts).toEqual([4, 4, 4]);
});
