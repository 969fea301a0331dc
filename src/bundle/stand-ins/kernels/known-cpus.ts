/** Bundles run on the CPU that they are on. */
import type * as original from "../../../kernels/known-cpus.ts";

export const knownCpus: typeof original.knownCpus = {};
