/** Engines: the same results on any number of threads and kind of memory, errors instead of crashes, nothing left behind. */
import { setTimeout as pause } from "node:timers/promises";
import type { WorkerOptions } from "node:worker_threads";
import { afterEach, describe, expect, it, vi } from "vitest";
import { heap, run } from "../../../../test/support/conformance.ts";
import { Random, randomWeights } from "../../../../test/support/random.ts";
import { expectSame } from "../../../../test/support/same.ts";
import { UnsupportedError } from "../../../errors.ts";
import type { CallPlan } from "../../contract.ts";
import { linearA8 } from "../../families/index.ts";
import type { PackedLinearArgs } from "../../families/linear/fields.ts";
import { layoutNamed, openPacked, packWeights } from "../../layout/packed.ts";
import { type EngineOptions, WasmEngine } from "./engine.ts";
import { hasWideMemory, needsWide } from "./engine-memory.ts";

const random = new Random(7);
const weights = randomWeights(random, { n: 200, k: 96, bits: 4, groupSize: 32, exactScales: true });
const packed = packWeights(weights, null, layoutNamed("panel16"));
const reference = linearA8.at(-1)!;
const kernel = linearA8.find(({ name }) => name === "linear_a8_wx_1x16x32_wasm_simd")!;

/** A call with its arrays in an engine's memory. */
function place(engine: WasmEngine, x: Float32Array): PackedLinearArgs {
  const put = (bytes: Uint8Array) => {
    const target = engine.allocate(bytes.length);
    target.set(bytes);
    return target;
  };
  const floats = (bytes: Uint8Array) => new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const m = x.length / weights.k;
  return {
    m,
    x: floats(put(new Uint8Array(x.buffer))),
    weights: openPacked(put(packed), weights),
    y: floats(engine.allocate(4 * m * weights.n)),
  };
}

/** Ten calls in one plan, run three times, each result compared. */
async function runPlan(options: Omit<EngineOptions, "bytes">, times?: Float64Array): Promise<void> {
  const engine = new WasmEngine({ bytes: 1 << 20, ...options });
  try {
    const calls = Array.from({ length: 10 }, () => place(engine, random.floats(2 * weights.k, 3)));
    const scratch = engine.allocate(kernel.scratchBytes!(calls[0]!, engine.threads));
    const plan = engine.planCalls(calls.map((args) => kernel.encode!(args, scratch)));
    for (let i = 0; i < 3; i++) {
      for (const { y } of calls) y.fill(Number.NaN);
      await plan.run(engine.abort, times);
      for (const args of calls) {
        const expected = { ...args, y: new Float32Array(args.y.length) };
        run(reference, expected, { memory: heap, threads: 1 });
        let distance = 0;
        for (const [j, value] of expected.y.entries()) distance = Math.max(distance, Math.abs(value - args.y[j]!));
        expect(distance).toBeLessThan(1e-2);
      }
    }
    plan.dispose();
  } finally {
    await engine.dispose();
  }
}

describe("a plan gives what the reference gives", () => {
  it.each([1, 2, 3, 8])("on %i threads", (threads) => runPlan({ threads }));

  it("on the caller's thread", () => runPlan({ threads: 1, isShared: false }));

  const skipped = hasWideMemory() ? "" : " (skipped: not in this engine)";
  it.skipIf(!hasWideMemory())(`with 64-bit addresses${skipped}`, async () => {
    await runPlan({ threads: 2, isWide: true });
    await runPlan({ threads: 1, isWide: true, isShared: false });
  });

  it("and tells what each call took", async () => {
    const times = new Float64Array(10);
    await runPlan({ threads: 2 }, times);
    expect(times.some((time) => time > 0)).toBe(true);
  });
});

it("threads give bit for bit what one gives", async () => {
  const x = random.floats(5 * weights.k, 3);
  const results: Float32Array[] = [];
  for (const threads of [1, 4]) {
    const engine = new WasmEngine({ bytes: 1 << 20, threads });
    const args = place(engine, x);
    const call = kernel.encode!(args, engine.allocate(kernel.scratchBytes!(args, threads)));
    await engine.planCalls([call]).run(engine.abort);
    results.push(new Float32Array(args.y));
    await engine.dispose();
  }
  expectSame(results[1]!, results[0]!);
});

it("an abort ends a plan, and the next run is whole again", async () => {
  const engine = new WasmEngine({ bytes: 1 << 20, threads: 2 });
  const calls = Array.from({ length: 50 }, () => place(engine, random.floats(weights.k)));
  const scratch = engine.allocate(kernel.scratchBytes!(calls[0]!, 2));
  const plan = engine.planCalls(calls.map((args) => kernel.encode!(args, scratch)));
  engine.abort[0] = 1;
  await plan.run(engine.abort);
  expect(calls.at(-1)!.y.every((value) => value === 0)).toBe(true);
  engine.abort[0] = 0;
  await plan.run(engine.abort);
  expect(calls.at(-1)!.y.some((value) => value !== 0)).toBe(true);
  await engine.dispose();
});

it("runs after aborted ones are whole, however late a thread hears of the abort", async () => {
  const engine = new WasmEngine({ bytes: 1 << 20, threads: 4 });
  const [aborted, whole] = [30, 20].map((count) =>
    Array.from({ length: count }, () => place(engine, random.floats(weights.k))),
  ) as [PackedLinearArgs[], PackedLinearArgs[]];
  const scratch = engine.allocate(kernel.scratchBytes!(whole[0]!, 4));
  const [first, second] = [aborted, whole].map((calls) =>
    engine.planCalls(calls.map((args) => kernel.encode!(args, scratch))),
  ) as [CallPlan, CallPlan];
  await second.run(engine.abort);
  const expected = whole.map(({ y }) => y.slice());
  for (let i = 0; i < 100; i++) {
    const running = first.run(engine.abort);
    engine.abort[0] = 1;
    await running;
    engine.abort[0] = 0;
    for (const { y } of [...aborted, ...whole]) y.fill(Number.NaN);
    await second.run(engine.abort);
    expect(whole.map(({ y }) => y)).toEqual(expected);
    expect(aborted.every(({ y }) => y.every(Number.isNaN))).toBe(true);
  }
  await engine.dispose();
});

describe("memory", () => {
  it("that cannot be had is an error with its size", () => {
    expect(() => new WasmEngine({ bytes: 2 ** 45, threads: 1 })).toThrow(UnsupportedError);
    expect(() => new WasmEngine({ bytes: 2 ** 45, threads: 1 })).toThrow(/needs 35184372\d+ bytes of memory/);
    expect(needsWide(2 ** 32 - 1024)).toBe(false);
    for (const bytes of [2 ** 32 - 1023, 2 ** 32])
      if (hasWideMemory()) expect(needsWide(bytes)).toBe(true);
      else expect(() => needsWide(bytes)).toThrow(/WebAssembly gives at most 4294967296 here/);
    expect(() => needsWide(2 ** 34 - 1023)).toThrow(/WebAssembly gives at most \d+ here/);
  });

  it("grows where it is shared, and is an error where it cannot", async () => {
    const shared = new WasmEngine({ bytes: 1 << 20, threads: 1 });
    const before = shared.allocate(64).fill(5);
    expect(shared.allocate(1 << 26)[(1 << 26) - 1]).toBe(0);
    expect(before[0]).toBe(5);
    const { byteLength } = shared;
    expect(() => shared.allocate(2 ** 33)).toThrow(UnsupportedError);
    expect(() => shared.allocate(2 ** 33)).toThrow(
      /needs 86\d+ bytes of memory: its memory has addresses for 4294967296/,
    );
    expect(shared.byteLength).toBe(byteLength);
    await shared.dispose();
    const own = new WasmEngine({ bytes: 1 << 20, threads: 1, isShared: false });
    expect(() => own.allocate(2 ** 21)).toThrow(UnsupportedError);
    expect(() => own.allocate(2 ** 21)).toThrow(/2097152 bytes more: its memory of 1114112 bytes cannot grow/);
    await own.dispose();
  });

  it("is used again after free, zeroed", async () => {
    const engine = new WasmEngine({ bytes: 1 << 20, threads: 1, isShared: false });
    const first = engine.allocate(1000).fill(9);
    engine.free(first);
    const second = engine.allocate(1000);
    expect(second.byteOffset).toBe(first.byteOffset);
    expect(second.every((byte) => byte === 0)).toBe(true);
    await engine.dispose();
  });

  it("stays flat over fifty engines", async () => {
    const bytes = 1 << 25;
    let before = 0;
    for (let i = 0; i < 50; i++) {
      const engine = new WasmEngine({ bytes, threads: 2 });
      engine.allocate(bytes).fill(1);
      await engine.dispose();
      if (i === 4) before = process.memoryUsage().rss;
    }
    expect(process.memoryUsage().rss - before).toBeLessThan(8 * bytes);
  });

  it("of a large program is not kept by a small one", async () => {
    for (const isShared of [true, false]) {
      const options = { threads: 1, isShared };
      const engines = [1 << 28, 1 << 25, 1 << 26].map((bytes) => new WasmEngine({ bytes, ...options }));
      const lengths = engines.map(({ byteLength }) => byteLength);
      for (const engine of engines) await engine.dispose();
      const again = [1 << 20, 1 << 26].map((bytes) => new WasmEngine({ bytes, ...options }));
      expect(again[0]!.byteLength).toBeLessThanOrEqual(lengths[1]!);
      expect(again[1]!.byteLength).toBe(lengths[2]);
      for (const engine of again) await engine.dispose();
    }
  });
});

it("threads take no processor time while there is nothing to do", async () => {
  const engine = new WasmEngine({ bytes: 1 << 20, threads: 4 });
  const args = place(engine, random.floats(weights.k));
  const plan = engine.planCalls([kernel.encode!(args, engine.allocate(kernel.scratchBytes!(args, 4)))]);
  await plan.run(engine.abort);
  await pause(200);
  const before = process.cpuUsage();
  await pause(1000);
  const { user, system } = process.cpuUsage(before);
  expect(user + system).toBeLessThan(100_000);
  await plan.run(engine.abort);
  await engine.dispose();
});

it("a plan of a disposed engine is an error", async () => {
  const engine = new WasmEngine({ bytes: 1 << 20, threads: 2 });
  const args = place(engine, random.floats(weights.k));
  const plan = engine.planCalls([kernel.encode!(args, engine.allocate(kernel.scratchBytes!(args, 2)))]);
  await engine.dispose();
  await expect(plan.run(engine.abort)).rejects.toThrow(/disposed/);
});

/** Runs a call on an engine whose threads cannot be started, and gives the warnings. */
async function warningsOf(options: Omit<EngineOptions, "bytes">): Promise<string[]> {
  const warnings: string[] = [];
  const emit = vi.spyOn(process, "emitWarning").mockImplementation((text) => void warnings.push(String(text)));
  const engine = new WasmEngine({ bytes: 1 << 20, ...options });
  const x = random.floats(5 * weights.k, 3);
  // The second plan is made before anyone knows of the threads, the third afterwards.
  const calls = [0, 1, 2].map(() => place(engine, x));
  const planOf = (args: PackedLinearArgs) =>
    engine.planCalls([kernel.encode!(args, engine.allocate(kernel.scratchBytes!(args, engine.threads)))]);
  const plans = calls.slice(0, 2).map(planOf);
  await Promise.all(plans.map((plan) => plan.run(engine.abort)));
  await planOf(calls[2]!).run(engine.abort);
  const expected = { ...calls[0]!, y: new Float32Array(calls[0]!.y.length) };
  run(kernel, expected, { memory: heap, threads: 1 });
  for (const { y } of calls) expectSame(new Float32Array(y), expected.y);
  await engine.dispose();
  emit.mockRestore();
  return warnings;
}

describe("threads that cannot be started leave one, and none behind", () => {
  const threads = process.getBuiltinModule("node:worker_threads");
  const { Worker } = threads;
  afterEach(() => {
    Object.assign(threads, { Worker });
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  });

  it("where the system gives fewer", async () => {
    const running = new Set<object>();
    class FewWorkers {
      constructor() {
        if (running.size === 2) throw new Error("EAGAIN");
        running.add(this);
      }
      on() {}
      postMessage() {}
      ref() {}
      unref() {}
      async terminate() {
        running.delete(this);
      }
    }
    Object.assign(threads, { Worker: FewWorkers });
    expect(await warningsOf({ threads: 4 })).toEqual([
      "lowbit: WebAssembly threads: expected 4 but this system gave 2: EAGAIN; the model runs on one thread",
    ]);
    expect(running.size).toBe(0);
  });

  it("where one ends before it is ready", async () => {
    let started = 0;
    class DyingWorker extends Worker {
      constructor(code: string, options: WorkerOptions) {
        super(++started === 2 ? "throw new ReferenceError('__name is not defined')" : code, options);
      }
    }
    Object.assign(threads, { Worker: DyingWorker });
    expect(await warningsOf({ threads: 3 })).toEqual([
      "lowbit: WebAssembly threads: __name is not defined; the model runs on one thread",
    ]);
  });

  it("where a page's policy forbids them", async () => {
    class ForbiddenWorker {
      onerror: ((event: object) => void) | null = null;
      constructor() {
        queueMicrotask(() => this.onerror?.({}));
      }
      postMessage() {}
      terminate() {}
    }
    vi.stubGlobal("Worker", ForbiddenWorker);
    vi.spyOn(process, "getBuiltinModule").mockReturnValue(undefined as never);
    expect(await warningsOf({ threads: 2, isShared: true })).toEqual([
      "lowbit: WebAssembly threads: cannot be started; a page's policy must allow worker-src blob:; the model runs on one thread",
    ]);
  });
});
