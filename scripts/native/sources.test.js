/** Kernel files that the build does not optimize for a CPU have no kernel that selection chooses there. */
import { describe, expect, it } from "vitest";
import { cpuWith } from "../../src/kernels/cpu.ts";
import * as table from "../../src/kernels/families/index.ts";
import { gptqRound, gptqSweep, quantizeAffine } from "../../src/kernels/families/packing/kernels.ts";
import { knownCpus } from "../../src/kernels/known-cpus.ts";
import { knownRows } from "../../src/kernels/native/known-rows.ts";
import { chosenOn, rowsOfFile } from "../../test/support/passed-over.ts";
import { passedOver } from "./sources.js";

const families = [...Object.values(table), quantizeAffine, gptqRound, gptqSweep];

/** Rows of quantizers, which no program names, so that only an addon knows them. */
const isQuantizer = (name) => /^(quantize|gptq)_/.test(name);

describe.each(Object.entries(passedOver))("rows of native/%s", (file, features) => {
  const rows = rowsOfFile(file);

  it("are known", () => {
    const known = knownRows.x64.map(({ name }) => name);
    expect(rows.length).toBeGreaterThan(0);
    expect(rows.filter((name) => !known.includes(name) && !isQuantizer(name))).toEqual([]);
  });

  it("are chosen for no call by CPUs that have better ones", () => {
    const names = features.map((bit) =>
      bit
        .slice(1)
        .replace(/(?<=\w)(?=[A-Z])/g, "_")
        .toLowerCase(),
    );
    const cpus = Object.entries(knownCpus).filter(([, has]) => names.some((name) => has.includes(name)));
    expect(cpus.length).toBeGreaterThan(0);
    for (const [cpu] of cpus)
      for (const kernels of families) {
        // An addon that was built for a lesser CPU has no better quantizers.
        const hasBetter = kernels.some(({ needs }) => names.some((name) => needs.includes(name)));
        if (kernels.some(({ name }) => isQuantizer(name)) && !hasBetter) continue;
        const chosen = chosenOn(kernels, cpuWith(cpu));
        expect([cpu, ...rows.filter((name) => chosen.has(name))]).toEqual([cpu]);
      }
  });
});
