/** Rows that selection passes over, on every known CPU, for rows that need less of it. */
import type { CpuFeature, Kernel } from "../../src/kernels/contract.ts";
import { cpuWith } from "../../src/kernels/cpu.ts";
import { knownCpus } from "../../src/kernels/known-cpus.ts";
import { kernelRefusal, selectKernel } from "../../src/kernels/select.ts";

const ROWS_MAX = 256;
const GROUPS = [32, 64, 128, 256, 4096];

/** Every CPU of an architecture has these. */
const base = new Set<CpuFeature>(["sse2", "neon"]);

/** Whether the second needs all that the first needs, and more. */
function needsMore<A>(first: Kernel<A>, second: Kernel<A>): boolean {
  const own = first.needs.filter((feature) => !base.has(feature));
  const others = second.needs.filter((feature) => !base.has(feature));
  return others.length > own.length && own.every((feature) => others.includes(feature));
}

/** "<chosen> for <passed over>", each pair once. */
export function passedOver<A>(kernels: readonly Kernel<A>[]): Set<string> {
  const found = new Set<string>();
  const layouts = new Set(kernels.flatMap((kernel): (string | null)[] => [...(kernel.layouts ?? [null])]));
  for (const cpu of Object.keys(knownCpus).map(cpuWith))
    for (const layout of layouts)
      for (const group of GROUPS)
        for (let m = 1; m <= ROWS_MAX; m++) {
          const query = { layout, bits: null, group, m };
          const able = kernels.filter((kernel) => kernelRefusal(kernel, query, cpu) === null);
          if (able.length === 0) continue;
          const chosen = selectKernel(kernels, query, cpu);
          for (const kernel of able) if (needsMore(chosen, kernel)) found.add(`${chosen.name} for ${kernel.name}`);
        }
  return found;
}
