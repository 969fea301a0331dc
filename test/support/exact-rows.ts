/** CPUs on which rows have the same results, bit for bit, however many are computed at once. */
import type { Cpu, CpuFeature } from "../../src/kernels/contract.ts";
import { hostCpu } from "../../src/kernels/cpu.ts";

/** AMX's tiles and Arm's bf16 compute many rows in another way than few: the exceptions of docs/sequences.md. */
const isException = (feature: CpuFeature) => feature.startsWith("amx") || feature === "bf16";

/** A CPU without what is an exception. */
export function exactRows({ name, features }: Cpu): Cpu {
  const kept = [...features].filter((feature) => !isException(feature));
  return kept.length === features.size
    ? { name, features }
    : { name: `${name} with exact rows`, features: new Set(kept) };
}

/** This CPU without what is an exception. */
export const exactHost = (): Cpu => exactRows(hostCpu());

/** Whether this CPU has what is an exception. */
export const hostHasExceptions = [...hostCpu().features].some(isException);
