/** Rows that selection passes over: on known CPUs, for rows that need less of them, and always. */
import { readFileSync } from "node:fs";
import type { Cpu, CpuFeature, GroupLimit, Kernel } from "../../src/kernels/contract.ts";
import { cpuWith } from "../../src/kernels/cpu.ts";
import { knownCpus } from "../../src/kernels/known-cpus.ts";
import { kernelRefusal, selectKernel } from "../../src/kernels/select.ts";

const ROWS_MAX = 256;
const ROWS = [1, 2, 3, 7, 8, 15, 16, 31, 32, 127, 128, ROWS_MAX, 4096];
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

/** Names of all rows that are chosen on a CPU, for calls of all kinds. */
export function chosenOn<A>(kernels: readonly Kernel<A>[], cpu: Cpu): Set<string> {
  const layouts = new Set(kernels.flatMap((kernel): (string | null)[] => [...(kernel.layouts ?? [null])]));
  const bits = new Set(kernels.flatMap((kernel): (number | null)[] => [...(kernel.bits ?? [null])]));
  const queries = [...layouts].flatMap((layout) =>
    [...bits].flatMap((bits) =>
      GROUPS.flatMap((group) =>
        [false, true].flatMap((hasMinima) => ROWS.map((m) => ({ layout, bits, m, group, hasMinima }))),
      ),
    ),
  );
  const able = queries.filter((query) => kernels.some((kernel) => kernelRefusal(kernel, query, cpu) === null));
  return new Set(able.map((query) => selectKernel(kernels, query, cpu).name));
}

/** Names of the rows that a file of native/ declares, for x64. */
export function rowsOfFile(file: string): string[] {
  const text = readFileSync(new URL(`../../native/${file}`, import.meta.url), "utf8");
  const shared = readFileSync(new URL("../../native/families/vector_rows.h", import.meta.url), "utf8");
  const own = [...text.matchAll(/"(\w+_\d+x\d+x\d+_\w*)"( LOWBIT_FLOATS_TARGET)?/g)];
  const ofMacros = [...text.matchAll(/(LOWBIT_\w+_ROWS)\(\w+, "?(\w+)"?, "(\d+)"/g)].flatMap(
    ([, macro, target, lanes]) => {
      const body = new RegExp(`#define ${macro}\\(.*\\\\\n(?:.*\\\\\n)*.*`).exec(shared)![0];
      const ends = target === "LOWBIT_FLOATS_TARGET" ? "sse2" : target;
      return [...body.matchAll(/LOWBIT_FLOAT_ROW\("(\w+)"/g)].map(([, name]) => `${name}_f32_1x1x${lanes}_${ends}`);
    },
  );
  return [...own.map(([, name, baseline]) => (baseline ? `${name}sse2` : name!)), ...ofMacros];
}
