/**
 * Parts of a WebAssembly kernel: generated functions of one signature, and a block of arguments in memory that they read. A
 * call runs phases one after the other; the tiles of a phase run on any thread, in any order.
 */
import type { PagedCache, SequenceTable } from "../sequence-table.ts";
import type { Body, Expr, FunctionCode, Local } from "./assembler/expression.ts";
import { f32, f64, i32, ptr } from "./assembler/instructions.ts";
import { defineFunction, type Scope } from "./assembler/module.ts";

/** Parameters of every kernel function: the address of its arguments, the tile, and the thread that runs it. */
export const kernelParams = { args: "ptr", tile: "i32", thread: "i32" } as const;

/** A generated function. Equal keys mean equal code. */
export interface KernelCode {
  /** Key of the code; code with one key is assembled once. */
  readonly key: string;
  /** Generates the kernel function, and others that it calls. */
  build(): readonly FunctionCode[];
}

/** A phase of a call: its tiles may run on any thread in any order, and the next phase begins when all have ended. */
export interface WasmPhase {
  /** Function that computes one tile. */
  readonly code: KernelCode;
  /** Number of tiles. */
  readonly tiles: number;
  /** Bytes of the function's argument block. */
  readonly args: Uint8Array;
}

/** Addresses of the arrays with the state addresses of all slots. */
interface StateAddresses {
  /** Address of the array of states to read. */
  readonly now: number;
  /** Address of the array of states to write. */
  readonly next: number;
}

/** Provides the addresses of a call's arrays, scratch memory and sequences. */
export interface Placement {
  /** The address of an array that the kernel reads. */
  read(view: ArrayBufferView): number;
  /** The address of an array that the kernel writes, and may read. */
  write(view: ArrayBufferView): number;
  /** The address of a cache's page table, whose pages the runs of the first `rows` rows read and write. */
  pages(cache: PagedCache, table: SequenceTable, rows: number): number;
  /** The addresses of a table's state arrays, whose states the runs of the first `rows` rows read and write. */
  states(table: SequenceTable, rows: number): StateAddresses;
  /** Address of the call's scratch memory, a multiple of 64. */
  readonly scratch: number;
  /** Number of threads that share the tiles. */
  readonly threads: number;
}

/**
 * Slopes of the arguments of a linear layer's last phase, eight bytes per argument, by which it can multiply some of the rows
 * by another matrix. Tiles of the phases before are rows.
 */
export interface RowProducts {
  /** Bytes at the start of the scratch memory that earlier phases fill for all threads; each thread's own scratch follows. */
  readonly sharedBytes: number;
  /** Increase per byte that the threads' own scratch moves up. */
  readonly threadScratch: Uint8Array;
  /** Increase per matrix of the same form that follows the call's own. */
  readonly matrix: Uint8Array;
  /** Increase per row that the first row moves up. */
  readonly row: Uint8Array;
  /** Increase per additional row; null if the code is for one number of rows only. */
  readonly rows: Uint8Array | null;
}

/** A call ready to run. */
export interface WasmStep {
  /** Phases in order, with a barrier between them. */
  readonly phases: readonly WasmPhase[];
  /** Slopes of the arguments, for linear layers that can multiply the rows of experts; absent for other calls. */
  readonly products?: RowProducts;
}

type FieldType = "ptr" | "i32" | "f32" | "f64";
const SLOT_BYTES = 8;

/** Writes an address, or another integer below 2^53, as eight bytes. */
export function setAddress(view: DataView, at: number, address: number): void {
  view.setUint32(at, address % 2 ** 32, true);
  view.setUint32(at + 4, Math.floor(address / 2 ** 32), true);
}

/** Layout of a kernel function's arguments in memory: eight bytes each. */
export class ArgumentBlock<F extends Readonly<Record<string, FieldType>>> {
  /** Types of the fields by name, in memory order. */
  readonly fields: F;
  readonly #names: readonly (keyof F & string)[];
  readonly #types: readonly FieldType[];

  constructor(fields: F) {
    this.fields = fields;
    this.#names = Object.keys(fields);
    this.#types = Object.values(fields);
  }

  /** Encodes values; addresses take eight bytes, whatever the engine's width, and are below 2^53. */
  encode(values: { readonly [N in keyof F]: number }): Uint8Array {
    const view = new DataView(new ArrayBuffer(SLOT_BYTES * this.#names.length));
    for (let i = 0; i < this.#names.length; i++) {
      const value = values[this.#names[i]!] ?? 0;
      const type = this.#types[i]!;
      const at = SLOT_BYTES * i;
      if (type === "ptr") setAddress(view, at, value);
      else if (type === "i32") view.setInt32(at, value, true);
      else if (type === "f32") view.setFloat32(at, value, true);
      else view.setFloat64(at, value, true);
    }
    return new Uint8Array(view.buffer);
  }

  /** Encodes slopes, most of which are 0: the increase of each field when something grows by one. */
  slopes(values: { readonly [N in keyof F]?: number }): Uint8Array {
    return this.encode(values as { readonly [N in keyof F]: number });
  }

  /** Makes locals for all fields, and the statements that load them. */
  load(scope: Scope, args: Expr<"ptr">): { fields: { readonly [N in keyof F]: Local<F[N]> }; statements: Body } {
    const entries = this.#names.map((name, i) => {
      const type = this.#types[i]!;
      const offset = SLOT_BYTES * i;
      const local = scope.local(type, name);
      return { name, local, statement: assign(local, args, offset) };
    });
    return {
      fields: Object.fromEntries(entries.map(({ name, local }) => [name, local])) as never,
      statements: entries.map(({ statement }) => statement),
    };
  }
}

function assign(local: Local<FieldType>, args: Expr<"ptr">, offset: number): Body[number] {
  const loads = { ptr: ptr.load, i32: i32.load, f32: f32.load, f64: f64.load };
  return local.set(loads[local.type](args, offset) as Expr<FieldType>);
}

/** Locals with a kernel function's arguments. */
export type FieldsOf<B> = B extends ArgumentBlock<infer F> ? { readonly [N in keyof F]: Local<F[N]> } : never;

/** The parameters of a kernel function. */
export interface KernelParams {
  /** Address of the argument block. */
  readonly args: Local<"ptr">;
  /** Index of the tile to compute. */
  readonly tile: Local<"i32">;
  /** Index of the thread that computes it. */
  readonly thread: Local<"i32">;
}

/** Defines a kernel function with an argument block. */
export function kernelFunction<F extends Readonly<Record<string, FieldType>>>(
  name: string,
  block: ArgumentBlock<F>,
  build: (fields: FieldsOf<ArgumentBlock<F>>, params: KernelParams, scope: Scope) => Body,
): FunctionCode {
  return defineFunction(name, kernelParams, (params, scope) => {
    const { fields, statements } = block.load(scope, params.args);
    return [statements, build(fields as FieldsOf<ArgumentBlock<F>>, params, scope)];
  });
}
