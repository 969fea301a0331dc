/** Types of WebAssembly's JavaScript API, as far as engines use it: the type libraries of Node and browsers do not share it. */

export interface WasmMemory {
  readonly buffer: ArrayBuffer | SharedArrayBuffer;
  /** Grows by pages of 64 KiB; bigint for 64-bit addresses. RangeError when there is no memory. */
  grow(pages: number | bigint): number | bigint;
}

export interface WasmTable {
  readonly length: number;
  grow(count: number): number;
  set(index: number, value: unknown): void;
}

/** Compiled code; can be posted to workers. */
export type WasmModule = object;

export interface WasmInstance {
  readonly exports: Readonly<Record<string, (...args: (number | bigint)[]) => number>>;
}

interface MemoryDescriptor {
  readonly initial: number | bigint;
  readonly maximum: number | bigint;
  readonly shared: boolean;
  readonly address?: "i64";
}

interface WebAssemblyApi {
  validate(bytes: Uint8Array): boolean;
  readonly Module: new (bytes: Uint8Array) => WasmModule;
  readonly Instance: new (module: WasmModule, imports: Record<string, Record<string, unknown>>) => WasmInstance;
  readonly Memory: new (descriptor: MemoryDescriptor) => WasmMemory;
  readonly Table: new (descriptor: { element: "anyfunc"; initial: number }) => WasmTable;
}

/** The API; undefined in JavaScript engines without WebAssembly. */
export const webAssembly: WebAssemblyApi | undefined = (globalThis as unknown as { WebAssembly?: WebAssemblyApi })
  .WebAssembly;

export const PAGE_BYTES = 65536;
