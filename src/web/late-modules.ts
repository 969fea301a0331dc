/** Modules that the worker of pages loads when a model or call first needs them, from where the page says they are. */
import type { LateModules } from "../language/late-modules.ts";
import type { ModuleAddresses } from "./protocol.ts";

/** Modules at addresses, as no bundler sees them. */
const load = (address: string) => import(/* @vite-ignore */ /* webpackIgnore: true */ address);

/** Those of a model, and what makes programs of GGUF files. */
export interface WorkerModules extends LateModules {
  gguf(): Promise<typeof import("./gguf.ts")>;
}

/** The modules at the addresses that a page gives. */
export function modulesAt({ answers, constraints, gguf }: ModuleAddresses): WorkerModules {
  return { answers: () => load(answers), constraints: () => load(constraints), gguf: () => load(gguf) };
}
