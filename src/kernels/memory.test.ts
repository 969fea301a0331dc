/** Memory of the process: addresses that kernels see, and memory that goes back to the system. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { processMemory } from "./memory.ts";
import { nativeAddon } from "./native/addon.ts";

/** Bytes of this process that are in memory, of those at an address. */
function residentBytes(address: bigint): number {
  const sections = readFileSync("/proc/self/smaps", "utf8").split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/);
  const section = sections.find((text) => {
    const [from, to] = text
      .split(" ", 1)[0]!
      .split("-")
      .map((end) => BigInt(`0x${end}`));
    return from! <= address && address < to!;
  });
  return 1024 * Number(/^Rss: +(\d+) kB/m.exec(section!)![1]);
}

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
      const address = memory.addressOf(bytes);
      const before = residentBytes(address);
      memory.discard(bytes.subarray(4096 + 100, 4096 + 100 + (512 << 10)));
      expect(before - residentBytes(address)).toBeGreaterThanOrEqual((512 << 10) - 2 * (64 << 10));
      expect(bytes.subarray(0, 4096 + 100).every((byte) => byte === 7)).toBe(true);
      expect(bytes.subarray(4096 + 100 + (512 << 10)).every((byte) => byte === 7)).toBe(true);
      bytes.fill(9);
      expect(bytes.every((byte) => byte === 9)).toBe(true);
    },
  );

  it("leaves memory of others alone", () => {
    const bytes = new Uint8Array(1 << 16).fill(5);
    processMemory().discard(bytes);
    processMemory().discard(new Uint8Array(0));
    expect(bytes.every((byte) => byte === 5)).toBe(true);
  });
});
