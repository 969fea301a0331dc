/** AQLM's kernels, best first: native, WebAssembly, then the definition. */
import { type Kernel, loadKernelsBesideAddon, nativeArguments, nativeKernels } from "lowbit/extension";
import { type AqlmArgs, aqlmFields } from "./arguments.ts";
import { knownRows } from "./known-rows.ts";
import { aqlmReference } from "./reference.ts";
import { aqlmPanelsWasm } from "./wasm-panels.ts";
import { aqlmTablesWasm } from "./wasm-tables.ts";
import { aqlmWordsWasm } from "./wasm-words.ts";

loadKernelsBesideAddon("aqlm");

export const aqlmKernels: readonly Kernel<AqlmArgs>[] = [
  ...nativeKernels("aqlm", nativeArguments("aqlm", aqlmFields), knownRows),
  aqlmWordsWasm,
  ...aqlmTablesWasm,
  aqlmPanelsWasm,
  aqlmReference,
];
