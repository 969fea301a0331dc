/** Memory of the process: addresses that kernels see, and memory that goes back to the system. */
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { canRoundNatively, type RoundingArgs, roundNatively } from "./families/packing/quantizer.ts";
import { processMemory } from "./memory.ts";
import { nativeAddon } from "./native/addon.ts";

const hasNative = nativeAddon() !== null;

describe.skipIf(!hasNative)("process memory with the native addon", () => {
  it("gives the address of any of its bytes", () => {
    const memory = processMemory();
    const bytes = memory.allocate(1000);
    const start = memory.addressOf(bytes);
    expect(start).toBeGreaterThan(0n);
    expect(memory.addressOf(bytes.subarray(100, 200))).toBe(start + 100n);
  });

  it.skipIf(process.platform !== "linux")(
    "gives whole pages of discarded bytes back to the system, and no others",
    () => {
      const memory = processMemory();
      const bytes = memory.allocate(1 << 20).fill(7);
      const [start, length] = [4096 + 100, 512 << 10];
      memory.discard(bytes.subarray(start, start + length));
      // Linux has zeros where pages were given back. What is resident changes for other reasons, too.
      const [first, last] = [bytes.indexOf(0), bytes.lastIndexOf(0)];
      expect(first).toBeGreaterThanOrEqual(start);
      expect(last).toBeLessThan(start + length);
      expect([first % 4096, (last + 1) % 4096]).toEqual([0, 0]);
      // All but parts of pages, which have 64 KiB at most.
      expect(last + 1 - first).toBeGreaterThanOrEqual(length - 2 * (64 << 10));
      expect(bytes.subarray(first, last + 1).every((byte) => byte === 0)).toBe(true);
      expect(bytes.subarray(0, first).every((byte) => byte === 7)).toBe(true);
      expect(bytes.subarray(last + 1).every((byte) => byte === 7)).toBe(true);
      bytes.fill(9);
      expect(bytes.every((byte) => byte === 9)).toBe(true);
    },
  );

  it.skipIf(!canRoundNatively("f32"))("ends no thread that a run still needs when the last keeper goes", async () => {
    const scheme = { mappingType: "symmetric", algorithm: "affine", scaleType: "f32" } as const;
    const args: RoundingArgs = {
      ...{ ...scheme, n: 256, k: 256, bits: 4, groupSize: 32, oddZero: 0, dtype: "f32" },
      ...{ weights: new Float32Array(1 << 16).fill(1), importance: new Float32Array(0), trials: new Float32Array(16) },
      ...{ levels: new Int8Array(0), zeros: new Int8Array(0), superScales: new Float32Array(0) },
      ...{ qvals: new Int8Array(1 << 16), scales: new Float32Array(1 << 11) },
    };
    for (let round = 0; round < 20; round++) {
      const keeper = processMemory(2);
      expect(await roundNatively(args)).toBe(true);
      // Threads that have nothing to do sleep by now, and wake after the release below.
      await delay(5);
      const run = roundNatively(args);
      await keeper.dispose?.();
      expect(await run).toBe(true);
    }
  });

  it("leaves memory of others alone", () => {
    const bytes = new Uint8Array(1 << 16).fill(5);
    processMemory().discard(bytes);
    processMemory().discard(new Uint8Array(0));
    expect(bytes.every((byte) => byte === 5)).toBe(true);
  });
});
