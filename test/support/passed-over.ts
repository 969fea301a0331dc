/** Rows that selection passes over: on known CPUs, for rows that need less of them, and always. */
import type { CpuFeature, GroupLimit, Kernel } from "../../src/kernels/contract.ts";
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

/** Rows that are not chosen even on a CPU with just what they need, for the smallest call that they serve. */
export function neverChosen<A>(kernels: readonly Kernel<A>[]): string[] {
  const isChosen = (kernel: Kernel<A>) => {
    const { needs, mStep, groups = [{ m: mStep, longest: GROUPS[0]! }] } = kernel;
    const cpu = { name: kernel.name, features: new Set(needs) };
    const [{ m, longest: group }] = groups as [GroupLimit];
    const calls = (kernel.layouts ?? [null]).flatMap((layout) =>
      (kernel.bits ?? [null]).map((bits) => ({ layout, bits, m, group })),
    );
    return calls.some((query) => selectKernel(kernels, query, cpu) === kernel);
  };
  return kernels.filter((kernel) => !isChosen(kernel)).map(({ name }) => name);
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
