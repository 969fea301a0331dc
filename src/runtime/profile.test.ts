import { expect, it } from "vitest";
import type { Kernel } from "../kernels/contract.ts";
import { processMemory } from "../kernels/memory.ts";
import type { BoundCall } from "../ops/operator.ts";
import { Profile } from "./profile.ts";
import { RunList } from "./run-list.ts";

/** A call that does nothing but count. */
function call(operator: string, size: number, run: () => void): BoundCall {
  const kernel = { name: `${operator}_reference` } as Kernel<never>;
  const shapes = [[1, size], [size]];
  return { operator, kernel, shapes, indexCheck: null, scratchBytes: () => 0, bind: () => run, encode: () => null };
}

it("adds up the calls of all runs by operator, kernel and shapes", async () => {
  const profile = new Profile();
  let done = 0;
  const count = () => {
    done++;
  };
  const calls = [call("mul", 4, count), call("add", 4, count), call("mul", 4, count), call("mul", 8, count)];
  const list = new RunList(calls, processMemory(), 1, profile);
  for (let run = 0; run < 3; run++) await list.run(undefined);
  const entries = profile.entries();
  expect(entries.map(({ operator, shapes, calls }) => `${operator} ${shapes}: ${calls}`).sort()).toEqual([
    "add 1x4 → 4: 3",
    "mul 1x4 → 4: 6",
    "mul 1x8 → 8: 3",
  ]);
  expect(done).toBe(12);
  expect(entries.reduce((sum, { milliseconds }) => sum + milliseconds, 0)).toBeLessThanOrEqual(profile.milliseconds);
});

it("forgets on reset, and lists nothing of lists that did not run", async () => {
  const profile = new Profile();
  const list = new RunList([call("add", 1, () => {})], processMemory(), 1, profile);
  expect(profile.entries()).toEqual([]);
  await list.run(undefined);
  profile.reset();
  expect(profile.entries()).toEqual([]);
  expect(profile.milliseconds).toBe(0);
});
