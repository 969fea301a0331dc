/**
 * What a WASM kernel is made of: functions of one signature, specialised by their generator, and a block of arguments in
 * memory that they read. A call runs phases one after the other; the tiles of a phase run on any thread, in any order.
 */
import type { PagedCache, SequenceTable } from "../sequence-table.ts";
import type { Body, Expr, FunctionCode, Local } from "./assembler/expression.ts";
import { f32, f64, i32, ptr } from "./assembler/instructions.ts";
import { defineFunction, type Scope } from "./assembler/module.ts";

/** Every kernel function: its arguments' address, the tile, and the thread that runs it. */
export const kernelParams = { args: "ptr", tile: "i32", thread: "i32" } as const;

/** A generated function. Codes of one key are the same code. */
export interface KernelCode {
  /** Name that tells the code from others; code of one name is assembled once. */
  readonly key: string;
  /** The kernel function, and others that it calls. */
  build(): readonly FunctionCode[];
}

/** A part of a call whose tiles may run on any thread in any order; the next phase begins when all have ended. */
export interface WasmPhase {
  /** Function that computes one tile. */
  readonly code: KernelCode;
  /** Number of tiles. */
  readonly tiles: number;
  /** Bytes of the function's argument block. */
  readonly args: Uint8Array;
}

/** Where a kernel finds the addresses of the states of all slots: of those to read, and of those to write. */
interface StateAddresses {
  /** Address of what states are before a step. */
  readonly now: number;
  /** Address of what a step makes of them. */
  readonly next: number;
}

/** Gives kernels the addresses of what they read and write, and what they may use besides. */
export interface Placement {
  /** The address of an array that the kernel reads. */
  read(view: ArrayBufferView): number;
  /** The address of an array that the kernel writes, and may read. */
  write(view: ArrayBufferView): number;
  /** The address of a cache's table of pages, which the runs of the first `rows` rows read and write. */
  pages(cache: PagedCache, table: SequenceTable, rows: number): number;
  /** The addresses of a table's lists of states, which the runs of the first `rows` rows read and write. */
  states(table: SequenceTable, rows: number): StateAddresses;
  /** Address of the call's scratch, at a multiple of 64. */
  readonly scratch: number;
  /** Threads that share the tiles. */
  readonly threads: number;
}

/**
 * How the arguments of a linear layer's last phase grow, eight bytes a number, so that it multiplies some of the rows with
 * another matrix. Tiles of the phases before are rows.
 */
export interface RowProducts {
  /** Bytes at the start of the scratch that the phases before fill for all threads; behind them, each thread has its own. */
  readonly sharedBytes: number;
  /** What they grow by with each byte that the threads' own scratch begins further on. */
  readonly threadScratch: Uint8Array;
  /** What they grow by with each matrix of the same form that follows the call's own. */
  readonly matrix: Uint8Array;
  /** What they grow by with each row that the first one is further on. */
  readonly row: Uint8Array;
  /** What they grow by with each row that there is more; null where the code is for the call's number of rows alone. */
  readonly rows: Uint8Array | null;
}

/** A call ready to run. */
export interface WasmStep {
  /** What runs one after the other; all threads meet in between. */
  readonly phases: readonly WasmPhase[];
  /** How arguments grow, of linear layers that can multiply the rows of experts; it is absent for other calls. */
  readonly products?: RowProducts;
}

type FieldType = "ptr" | "i32" | "f32" | "f64";
const SLOT_BYTES = 8;

/** An address, or another whole number below 2^53, in eight bytes. */
export function setAddress(view: DataView, at: number, address: number): void {
  view.setUint32(at, address % 2 ** 32, true);
  view.setUint32(at + 4, Math.floor(address / 2 ** 32), true);
}

/** Arguments of kernel functions as they lie in memory: eight bytes each. */
export class ArgumentBlock<F extends Readonly<Record<string, FieldType>>> {
  /** Types of the fields by their names, in the order in memory. */
  readonly fields: F;
  readonly #names: readonly (keyof F & string)[];
  readonly #types: readonly FieldType[];

  constructor(fields: F) {
    this.fields = fields;
    this.#names = Object.keys(fields);
    this.#types = Object.values(fields);
  }

  /** Makes the bytes of values, at the width of the engine's addresses or wider: addresses are below 2^53. */
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

  /** Makes the bytes of values of which most are 0: by how much each field is more for one more of something. */
  slopes(values: { readonly [N in keyof F]?: number }): Uint8Array {
    return this.encode(values as { readonly [N in keyof F]: number });
  }

  /** Makes variables for all fields, and the statements that read them. */
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

/** Variables of a kernel function's arguments. */
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

/** A kernel function over an argument block. */
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
