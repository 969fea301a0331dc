/** Modules that the worker of pages loads when a model or call first needs them, from where the page says they are. */
import type { ModuleAddresses } from "./protocol.ts";

let addresses: ModuleAddresses = { answers: "", constraints: "", gguf: "" };

/** Says where the modules are. */
export function setModuleAddresses(given: ModuleAddresses): void {
  addresses = given;
}

/** Parsers of answers: thinking and calls of tools. */
export const loadAnswers = (): Promise<typeof import("../text/answer/index.ts")> =>
  import(/* @vite-ignore */ /* webpackIgnore: true */ addresses.answers);

/** Constraints of answers. */
export const loadConstraints = (): Promise<typeof import("../text/constraints/index.ts")> =>
  import(/* @vite-ignore */ /* webpackIgnore: true */ addresses.constraints);

/** What makes programs of GGUF files. */
export const loadGguf = (): Promise<typeof import("./gguf.ts")> =>
  import(/* @vite-ignore */ /* webpackIgnore: true */ addresses.gguf);
