/** The engine that says which tokens may come next: xgrammar, loaded when it is first needed. */
import type * as Xgrammar from "@mlc-ai/web-xgrammar";
import { UnsupportedError } from "../../errors.ts";
import { nodeBuiltin } from "../../node-builtin.ts";

export type Engine = typeof Xgrammar;

/** What Node's modules of the older kind have beside their types. */
interface Compiling {
  filename: string;
  _compile(source: string, file: string, format: string): void;
}

let loading: Promise<Engine> | null = null;

/** The engine. UnsupportedError where the package is missing. */
export function loadEngine(): Promise<Engine> {
  loading ??= load().catch((cause) => {
    loading = null;
    throw new UnsupportedError("constraints: need the package @mlc-ai/web-xgrammar beside lowbit", { cause });
  });
  return loading;
}

/** Another engine the next time: one that has failed cannot be used any more. */
export function dropEngine(): void {
  loading = null;
}

/** The package calls itself a module and is a script of the older kind: in Node it is run as that. */
async function load(): Promise<Engine> {
  const nodeModule = nodeBuiltin<typeof import("node:module")>("node:module");
  if (!nodeModule) {
    await import("@mlc-ai/web-xgrammar");
    return (globalThis as unknown as { xgrammar: Engine }).xgrammar;
  }
  const file = nodeModule.createRequire(import.meta.url).resolve("@mlc-ai/web-xgrammar");
  const source = await nodeBuiltin<typeof import("node:fs/promises")>("node:fs/promises")!.readFile(file, "utf8");
  const module = new nodeModule.Module(file) as InstanceType<typeof nodeModule.Module> & Compiling;
  module.filename = file;
  module._compile(source, file, "commonjs");
  return module.exports as Engine;
}
