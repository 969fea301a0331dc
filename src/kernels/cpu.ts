/** CPUs as sets of features: hypothetical ones, known ones, and that of this machine. */
import { checkString } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { logInfo } from "../log.ts";
import type { Cpu, CpuFeature } from "./contract.ts";
import { knownCpus } from "./known-cpus.ts";
import { missingAddon } from "./native/addon.ts";
import { featureBits } from "./native/interface.ts";
import { hasNative, nativeFeatures } from "./native/rows.ts";
import { wasmFeatureNames, wasmFeatures } from "./wasm/features.ts";

const features: readonly CpuFeature[] = [...wasmFeatureNames, ...featureBits];

/** A CPU without features, for reference kernels only. */
export const scalarCpu: Cpu = { name: "scalar", features: new Set() };

/**
 * A CPU from a name ("neoverse-v2"), a list of features ("neon,dotprod"), or both. InvalidArgumentError lists the known ones.
 */
export function cpuWith(list: string): Cpu {
  checkString("list", list);
  const found = new Set<CpuFeature>();
  for (const name of list.split(",").map((item) => item.trim())) {
    if (name === "" || name === scalarCpu.name) continue;
    const known = featuresOf(name);
    if (!known)
      throw new InvalidArgumentError(
        `CPU "${name}": expected features (${features.join(", ")}), the name of a CPU ` +
          `(${Object.keys(knownCpus).join(", ")}) or ${scalarCpu.name}`,
      );
    for (const feature of known) found.add(feature);
  }
  return { name: list || scalarCpu.name, features: found };
}

/**
 * Features by the name of a CPU or of one feature; undefined for an unknown name. x86 features include the baseline of every
 * such CPU.
 */
function featuresOf(name: string): readonly CpuFeature[] | undefined {
  const list = Object.hasOwn(knownCpus, name) ? knownCpus[name]! : features.filter((feature) => feature === name);
  if (list.length === 0) return undefined;
  return list.some((feature) => /^(avx|amx)/.test(feature)) ? ["sse2", ...list] : list;
}

/** WebAssembly's features, for machines without native code, unless LOWBIT_BACKEND selects the reference. */
function chosenWasmFeatures(): readonly CpuFeature[] {
  return globalThis.process?.env.LOWBIT_BACKEND === "reference" ? [] : wasmFeatures();
}

let isTold = false;

/**
 * Features for selecting kernels where there is an addon: native ones, except that on x86 without AVX2 WebAssembly's vectors
 * are faster than scalar native kernels and are used, unless LOWBIT_BACKEND says native. Logs this once, at info level.
 */
export function servingFeatures(
  native: readonly CpuFeature[],
  ofWasm: () => readonly CpuFeature[],
): readonly CpuFeature[] {
  if (!native.includes("sse2") || native.includes("avx2") || globalThis.process?.env.LOWBIT_BACKEND === "native")
    return native;
  const wasm = ofWasm();
  if (!wasm.includes("simd128")) return native;
  if (!isTold) logInfo(() => "this CPU has no AVX2: WebAssembly serves, which is faster here than native code");
  isTold = true;
  return wasm;
}

const backends = ["native", "wasm", "reference"];

function checkBackend(): void {
  const backend = globalThis.process?.env.LOWBIT_BACKEND;
  if (backend && !backends.includes(backend))
    throw new InvalidArgumentError(
      `environment variable LOWBIT_BACKEND: expected one of ${backends.join(", ")} but found "${backend}"`,
    );
  if (backend === "native" && !hasNative())
    throw new InvalidArgumentError(
      `environment variable LOWBIT_BACKEND: expected wasm or reference, as there is no native addon, but found "native": ${missingAddon()}`,
    );
}

/**
 * The CPU of this machine, with the features that there is code for; LOWBIT_CPU ("avx2", "skylake-x", "scalar", …) restricts
 * them. InvalidArgumentError if it is no known CPU, if LOWBIT_BACKEND is no backend, or if it is native without an addon. Empty
 * variables are ignored.
 */
export function hostCpu(): Cpu {
  checkBackend();
  const found = new Set(hasNative() ? servingFeatures(nativeFeatures(), wasmFeatures) : chosenWasmFeatures());
  const only = globalThis.process?.env.LOWBIT_CPU;
  if (!only) return { name: [...found].join(",") || scalarCpu.name, features: found };
  const { name, features: allowed } = cpuOfEnvironment(only);
  return { name, features: new Set([...found].filter((feature) => allowed.has(feature))) };
}

function cpuOfEnvironment(list: string): Cpu {
  try {
    return cpuWith(list);
  } catch (error) {
    throw new InvalidArgumentError(`environment variable LOWBIT_CPU: ${(error as Error).message}`);
  }
}
