/** Modules that the worker loads lazily, from the addresses that the page gives. */
import type { LateModules } from "../language/late-modules.ts";
import type { ModuleAddresses } from "./protocol.ts";

/** Imports a module by its address, hidden from bundlers. */
const load = (address: string) => import(/* @vite-ignore */ /* webpackIgnore: true */ address);

/** The lazily loaded modules of a model, and the converter of GGUF files. */
export interface WorkerModules extends LateModules {
  gguf(): Promise<typeof import("./gguf.ts")>;
}

/** Loaders for the modules at the page's addresses. */
export function modulesAt({ answers, constraints, gguf }: ModuleAddresses): WorkerModules {
  return { answers: () => load(answers), constraints: () => load(constraints), gguf: () => load(gguf) };
}
