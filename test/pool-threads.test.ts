/** Threads of programs end with the last one that wanted them: those of the native pool, which all share, and WebAssembly's. */
import { readdirSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { MethodSource } from "../src/compile/capture.ts";
import { compile } from "../src/compile/compile.ts";
import { cpuWith, hostCpu } from "../src/kernels/cpu.ts";
import { nativeAddon } from "../src/kernels/native/addon.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { Ops } from "../src/ops/ops.ts";
import { operators } from "../src/registry/operators.ts";
import { LoadedProgram } from "../src/runtime/program.ts";
import type { Tensor } from "../src/tensor.ts";

/** A sum of many rows, which is shared by as many threads. */
const shape = [1, 256, 512];
const forward: MethodSource = {
  name: "forward",
  inputs: [{ name: "x", spec: { dtype: "f32", shape }, smallest: shape }],
  build(builder, [x]) {
    const ops = new Ops(builder);
    return [ops.call("lowbit::rms_norm.out", x!, ops.literal("scale", new Float32Array(512).fill(1)), 1e-5) as never];
  },
};
const input: Tensor = { dtype: "f32", shape, data: new Float32Array(256 * 512).fill(2) };

const threadsNow = () => readdirSync("/proc/self/task").length;

/** Waits until this process has at most so many threads. */
async function atMost(count: number): Promise<number> {
  for (let tries = 0; threadsNow() > count && tries < 500; tries++) await delay(20);
  return threadsNow();
}

async function run(program: LoadedProgram): Promise<void> {
  const [y] = await program.createSession().run("forward", [input]);
  expect(y!.data[5]).toBeCloseTo(1, 4);
}

const noTasks = process.platform !== "linux" ? "needs Linux' /proc" : null;
const cpus = [
  ["native", nativeAddon() && !hostCpu().features.has("simd128") ? hostCpu() : null],
  ["WebAssembly", wasmFeatures().includes("simd128") ? cpuWith(wasmFeatures().join(",")) : null],
] as const;

describe.each(cpus)(`threads of programs, %s${noTasks ? ` (skipped: ${noTasks})` : ""}`, (name, cpu) => {
  const load = (threads: number) =>
    LoadedProgram.load(compile([forward], { registry: operators, cpu: cpu! }), { cpu: cpu!, threads });
  const skipped = noTasks !== null || cpu === null;
  const most = name === "native" ? 12 : 6;

  it.skipIf(skipped)("end with the last program that wanted them, and come again", async () => {
    const small = await load(2);
    await run(small);
    const before = threadsNow();
    for (let round = 0; round < 2; round++) {
      const [one, other] = [await load(most), await load(most)];
      await run(one);
      await run(other);
      expect(threadsNow()).toBeGreaterThanOrEqual(before + most - 2);
      await one.dispose();
      await one.dispose();
      await run(other);
      await delay(50);
      // The other one wants as many still.
      expect(threadsNow()).toBeGreaterThanOrEqual(before + most - 2);
      await other.dispose();
      expect(await atMost(before + 1)).toBeLessThanOrEqual(before + 1);
      await run(small);
    }
    await small.dispose();
  });

  it.skipIf(skipped)(
    "do not add up over many programs",
    async () => {
      const first = await load(3);
      await run(first);
      const before = threadsNow();
      for (let round = 0; round < (name === "native" ? 200 : 40); round++) {
        const program = await load(round % 2 ? 3 : 5);
        await run(program);
        await program.dispose();
      }
      expect(await atMost(before + 1)).toBeLessThanOrEqual(before + 1);
      await first.dispose();
    },
    120_000,
  );
});
