/** The caller's thread as the only thread of an engine. */
import type { CodeModule } from "./code-table.ts";
import type { EngineMemory } from "./engine-memory.ts";
import type { PlacedPlan } from "./runner.ts";
import { type WasmInstance, type WasmModule, type WasmTable, webAssembly } from "./web-assembly.ts";

export class LocalThread {
  readonly #env: { readonly memory: EngineMemory["memory"]; readonly table: WasmTable; now(): number };
  readonly #isWide: boolean;
  readonly #run: WasmInstance["exports"][string];

  constructor({ memory, isWide }: EngineMemory, runner: WasmModule) {
    this.#isWide = isWide;
    this.#env = {
      memory,
      table: new webAssembly!.Table({ element: "anyfunc", initial: 0 }),
      now: () => performance.now(),
    };
    this.#run = this.#instantiate(runner).run!;
  }

  load({ module, names }: CodeModule): void {
    const exports = this.#instantiate(module);
    const first = this.#env.table.grow(names.length);
    names.forEach((name, i) => {
      this.#env.table.set(first + i, exports[name]);
    });
  }

  run({ address, phases, times }: PlacedPlan): void {
    const pointer = (value: number) => (this.#isWide ? BigInt(value) : value);
    this.#run(pointer(address), phases, 0, 1, pointer(times));
  }

  #instantiate(module: WasmModule): WasmInstance["exports"] {
    return new webAssembly!.Instance(module, { env: { ...this.#env } }).exports;
  }
}
