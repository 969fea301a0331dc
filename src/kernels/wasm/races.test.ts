/** Threads of every row leave each other's bytes alone, whoever takes which tiles. `npm run stress` tries more threads. */
import { describe, expect, it } from "vitest";
import { RaceFinder, raceFaults } from "../../../test/support/wasm-races.ts";
import { sampleCalls } from "../families/sample-calls.ts";
import { i32, int } from "./assembler/instructions.ts";
import { wasmFeatures } from "./features.ts";
import { elementAt } from "./generate/loops.ts";
import { ArgumentBlock, kernelFunction } from "./kernel-code.ts";

const features = new Set<string>(wasmFeatures());
const usable = sampleCalls().filter(({ needs }) => needs.every((need) => features.has(need)));

describe.skipIf(usable.length === 0)("no threads race", () => {
  it("in any row", () => {
    expect(usable.flatMap((call) => raceFaults(call, 3, 3))).toEqual([]);
  });

  it.each([2, 3, 4])("in matrices of experts, whose tiles %s threads take from a counter", (threads) => {
    const calls = usable.filter(({ kernel }) => kernel.startsWith("expert_linear"));
    const seeds = Array.from({ length: 12 }, (_, seed) => seed);
    expect(calls).toHaveLength(2);
    expect(calls.flatMap((call) => seeds.flatMap((seed) => raceFaults(call, threads, seed)))).toEqual([]);
  });
});

const block = new ArgumentBlock({ at: "ptr" });

it.each([
  ["the same bytes", 0, 1],
  ["bytes of each", 4, 0],
])("finds them where tiles write %s", (_, stride, races) => {
  const finder = new RaceFinder(1 << 16, 2, 1);
  const code = {
    key: `write_${stride}`,
    build: () => [
      kernelFunction(`write_${stride}`, block, ({ at }, { tile }, scope) => {
        const i = scope.local("i32", "i");
        return [i.set(i32.mul(tile, int(stride))), at.set(elementAt(at, i, 1)), i32.store(at, int(7))];
      }),
    ],
  };
  const args = block.encode({ at: finder.allocate(64).byteOffset });
  expect(finder.run([{ code, tiles: 8, args }])).toHaveLength(races);
});
