/** CPUs as sets of features: invented ones, and the one of this machine. */
import { InvalidArgumentError } from "../errors.ts";
import type { Cpu, CpuFeature } from "./contract.ts";
import { nativeFeatures } from "./native/rows.ts";

const features: readonly CpuFeature[] = [
  "simd128",
  "relaxed_dot",
  "avx2",
  "avx_vnni",
  "avx512",
  "avx512_vnni",
  "avx512_vbmi",
  "avx512_bf16",
  "amx_int8",
  "amx_bf16",
  "neon",
  "dotprod",
  "i8mm",
  "bf16",
];

/** A CPU without any feature: what the reference kernels need. */
export const scalarCpu: Cpu = { name: "scalar", features: new Set() };

/** A CPU from a comma-separated list of features ("neon,dotprod"); InvalidArgumentError names the known ones. */
export function cpuWith(list: string): Cpu {
  const names = list.split(",").filter((name) => name !== "" && name !== "scalar");
  for (const name of names)
    if (!features.includes(name as CpuFeature))
      throw new InvalidArgumentError(`CPU feature "${name}": expected some of ${features.join(", ")} or scalar`);
  return { name: list || "scalar", features: new Set(names as CpuFeature[]) };
}

/** This machine, as far as there is code for it here; LOWBIT_CPU ("avx2", "scalar", …) leaves only some features. */
export function hostCpu(): Cpu {
  const found = new Set(nativeFeatures());
  const only = globalThis.process?.env.LOWBIT_CPU;
  if (only === undefined) return { name: [...found].join(",") || "scalar", features: found };
  const { name, features: allowed } = cpuWith(only);
  return { name, features: new Set([...found].filter((feature) => allowed.has(feature))) };
}
