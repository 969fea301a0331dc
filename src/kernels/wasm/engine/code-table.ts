/** The functions of an engine: generated when first asked for, a module at a time, and found by table index from then on. */
import { Module } from "../assembler/module.ts";
import type { KernelCode } from "../kernel-code.ts";
import { type MemoryKind, moduleMemory } from "./engine-memory.ts";
import { nowImport, runnerFunctions } from "./runner.ts";
import { type WasmModule, webAssembly } from "./web-assembly.ts";

export interface CodeModule {
  readonly module: WasmModule;
  /** Exports for the next indices of the table, in order. */
  readonly names: readonly string[];
}

/** Compiled modules of this process by what is in them, so that a model loaded again is not generated again. */
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

  /** The plan loop. */
  runner(): WasmModule {
    const { isWide } = this.#kind;
    const options = { isWide, memory: moduleMemory(this.#kind), imports: [nowImport], hasTable: true };
    return compile(`${this.#prefix} runner`, () => new Module(options, runnerFunctions()));
  }

  /** A module with the codes that the table has not got yet, which get the next indices; null when it has all. */
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
