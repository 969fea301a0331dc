/** CPUs as sets of features: invented ones, known ones, and the one of this machine. */
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

/** A CPU without any feature: what the reference kernels need. */
export const scalarCpu: Cpu = { name: "scalar", features: new Set() };

/**
 * A CPU by name ("neoverse-v2"), from a list of features ("neon,dotprod"), or from both; InvalidArgumentError lists the
 * known ones.
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
 * Features of a CPU, or a feature alone; undefined where neither has that name. x86 features come with what every such
 * CPU has.
 */
function featuresOf(name: string): readonly CpuFeature[] | undefined {
  const list = Object.hasOwn(knownCpus, name) ? knownCpus[name]! : features.filter((feature) => feature === name);
  if (list.length === 0) return undefined;
  return list.some((feature) => /^(avx|amx)/.test(feature)) ? ["sse2", ...list] : list;
}

/** WebAssembly serves where there is no native code, unless LOWBIT_BACKEND asks for the reference. */
function chosenWasmFeatures(): readonly CpuFeature[] {
  return globalThis.process?.env.LOWBIT_BACKEND === "reference" ? [] : wasmFeatures();
}

let isTold = false;

/**
 * Features to choose kernels by where there is native code: its own, but on x86 without AVX2 those of WebAssembly, whose
 * vectors are faster there than native kernels without any, unless LOWBIT_BACKEND says native. Says so once, at info level.
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
 * This machine, as far as there is code for it here; LOWBIT_CPU ("avx2", "skylake-x", "scalar", …) leaves only some
 * features. InvalidArgumentError where that is no CPU, or where LOWBIT_BACKEND is no backend, or native without an addon. Empty variables say nothing.
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
