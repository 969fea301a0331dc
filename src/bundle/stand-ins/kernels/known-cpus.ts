/** Stand-in without other CPUs: a bundle runs on the CPU that it is on. */
import type * as original from "../../../kernels/known-cpus.ts";

export const knownCpus: typeof original.knownCpus = {};
