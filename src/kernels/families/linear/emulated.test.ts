/** On an emulated CPU (scripts/arm/test.js): its features are found, and the rows chosen are those of such a CPU. */
import { describe, expect, it } from "vitest";
import { cpuWith, hostCpu } from "../../cpu.ts";
import { selectKernel } from "../../select.ts";
import { linearA8, linearWeightOnly } from "../index.ts";

const name = process.env.LOWBIT_EMULATED_CPU;

describe.skipIf(name === undefined)("an emulated CPU", () => {
  it("has the features of its kind", () => {
    expect([...hostCpu().features].sort()).toEqual([...cpuWith(name!).features].sort());
  });

  it("is served by the rows for its kind", () => {
    for (const rows of [linearA8, linearWeightOnly])
      for (const layout of ["panel16", "panel32", "torchao_universal"])
        for (const bits of [1, 4, 8])
          for (const m of [1, 2, 7, 64]) {
            const query = { layout, bits, m };
            const chosen = selectKernel(rows, query, hostCpu());
            expect(chosen.name).toBe(selectKernel(rows, query, cpuWith(name!)).name);
            expect(chosen.target, `${layout}, ${bits} bits, m ${m}`).toBe("native");
          }
  });
});
