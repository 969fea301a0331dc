/** AQLM's kernels, best first: native, WebAssembly, then the definition. */
import { type Kernel, nativeArguments, nativeKernels } from "lowbit/extension";
import { type AqlmArgs, aqlmFields } from "./arguments.ts";
import { aqlmReference } from "./reference.ts";
import { aqlmPanelsWasm } from "./wasm-panels.ts";
import { aqlmTablesWasm } from "./wasm-tables.ts";
import { aqlmWordsWasm } from "./wasm-words.ts";

export const aqlmKernels: readonly Kernel<AqlmArgs>[] = [
  ...nativeKernels("aqlm", nativeArguments("aqlm", aqlmFields)),
  aqlmWordsWasm,
  ...aqlmTablesWasm,
  aqlmPanelsWasm,
  aqlmReference,
];
