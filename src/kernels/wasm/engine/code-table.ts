/** The functions of an engine: generated on demand, a module at a time, and then called by table index. */
import { Module } from "../assembler/module.ts";
import type { KernelCode } from "../kernel-code.ts";
import { type MemoryKind, moduleMemory } from "./engine-memory.ts";
import { nowImport, runnerFunctions } from "./runner.ts";
import { type WasmModule, webAssembly } from "./web-assembly.ts";

export interface CodeModule {
  readonly module: WasmModule;
  /** Exports that take the next table indices, in order. */
  readonly names: readonly string[];
}

/** Compiled modules of this process by contents, so that loading a model again generates nothing. */
const compiled = new Map<string, WasmModule>();
const COMPILED_MAX = 256;

function compile(key: string, makeModule: () => Module): WasmModule {
  const known = compiled.get(key);
  if (known) return known;
  if (compiled.size >= COMPILED_MAX) compiled.clear();
  const module = new webAssembly!.Module(makeModule().encode());
  compiled.set(key, module);
  return module;
}

export class CodeTable {
  readonly #kind: MemoryKind;
  readonly #indices = new Map<string, number>();

  constructor(kind: MemoryKind) {
    this.#kind = kind;
  }

  /** The module with the plan loop. */
  runner(): WasmModule {
    const { isWide } = this.#kind;
    const options = { isWide, memory: moduleMemory(this.#kind), imports: [nowImport], hasTable: true };
    return compile(`${this.#prefix} runner`, () => new Module(options, runnerFunctions()));
  }

  /** A module with the codes that are not yet in the table, which get the next indices; null if there are none. */
  extend(codes: Iterable<KernelCode>): CodeModule | null {
    const missing = [...new Map([...codes].map((code) => [code.key, code])).values()].filter(
      ({ key }) => !this.#indices.has(key),
    );
    if (missing.length === 0) return null;
    const names = missing.map(({ key }) => key);
    for (const name of names) this.#indices.set(name, this.#indices.size);
    const options = { isWide: this.#kind.isWide, memory: moduleMemory(this.#kind), imports: [], hasTable: false };
    const module = compile(
      `${this.#prefix} ${names.join(" ")}`,
      () =>
        new Module(
          options,
          missing.flatMap((code) => code.build()),
        ),
    );
    return { module, names };
  }

  indexOf({ key }: KernelCode): number {
    return this.#indices.get(key)!;
  }

  get #prefix(): string {
    return `${this.#kind.isWide ? 64 : 32} ${this.#kind.isShared ? "shared" : "own"}`;
  }
}
