/**
 * Known CPUs and the features that kernels may use on them, for exporting to another machine and for asking which kernels it
 * would use.
 */
import type { CpuFeature } from "./contract.ts";

const avx512 = ["avx2", "avx512"] as const;
const iceLake = [...avx512, "avx512_vnni", "avx512_vbmi"] as const;
const sapphireRapids = [...iceLake, "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16"] as const;
const armv82 = ["neon", "dotprod"] as const;
const armv86 = [...armv82, "i8mm", "bf16"] as const;

/** Features by CPU name; `cpuWith` makes a `Cpu` of them. */
export const knownCpus: Readonly<Record<string, readonly CpuFeature[]>> = {
  haswell: ["avx2"],
  skylake: ["avx2"],
  "skylake-x": avx512,
  "cascade-lake": [...avx512, "avx512_vnni"],
  "ice-lake": iceLake,
  "alder-lake": ["avx2", "avx_vnni"],
  "sapphire-rapids": sapphireRapids,
  "granite-rapids": sapphireRapids,
  zen2: ["avx2"],
  zen3: ["avx2"],
  zen4: [...iceLake, "avx512_bf16"],
  zen5: [...iceLake, "avx_vnni", "avx512_bf16"],
  "cortex-a53": ["neon"],
  "cortex-a72": ["neon"],
  "cortex-a76": armv82,
  "neoverse-n1": armv82,
  "neoverse-n2": armv86,
  "neoverse-v1": armv86,
  "neoverse-v2": armv86,
  "apple-m1": armv82,
  "apple-m2": armv86,
  "apple-m4": armv86,
};
