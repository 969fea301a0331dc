/**
 * A family of kernels from one declaration: native rows, rows of WebAssembly and the reference, which take the same arguments.
 */
import type { Kernel } from "./contract.ts";
import {
  type ArgumentsOf,
  checkArguments,
  type Fields,
  type NativeArguments,
  nativeArguments,
  plainFields,
  plainValues,
} from "./declaration.ts";
import { nativeKernels } from "./native/rows.ts";
import { type WasmCode, wasmRow } from "./wasm/declared.ts";

/** How the work of a call is divided: into rows, or into elements, of which a tile has many. */
type Division = "rows" | "elements";

/** What all families have. */
interface Shared {
  /** The name of the arguments in C++, of families that share them with others: that of the family when absent. */
  readonly args?: string;
}

export interface FamilyOptions<F extends Fields, C> extends Shared {
  /** What a tile of the native kernels and of WebAssembly is made of; C++ has a function for one of them. */
  readonly by: Division;
  /** The types in the names of its kernels; f32 when absent. */
  readonly types?: string;
  /** A plain loop, which defines what all kernels compute. */
  reference(args: ArgumentsOf<F>): void;
  /** The code of a tile in WebAssembly. */
  readonly wasm: WasmCode<F, C>;
}

/** A family whose kernels divide their work themselves. */
export interface OwnDivision<F extends Fields> extends Shared {
  /** Rows of WebAssembly, best first. */
  readonly wasm: readonly Kernel<ArgumentsOf<F>>[];
  /** Plain loops, which define what all kernels compute. */
  readonly reference: Kernel<ArgumentsOf<F>>;
}

/** Kernels that compute the same, best first, with what they were declared by. */
export interface Family<F extends Fields = Fields> extends ReadonlyArray<Kernel<ArgumentsOf<F>>> {
  /** Name of the family, as native kernels have it. */
  readonly family: string;
  readonly fields: F;
  /** Absent for families that divide their work themselves. */
  readonly by?: Division;
  readonly args?: string;
}

/** A family of native kernels alone: TypeScript that is no kernel serves where there are none. */
export interface NativeFamily<F extends Fields = Fields> extends Family<F> {
  argumentsOf(args: ArgumentsOf<F>): NativeArguments;
}

/** Declares a family of native kernels alone. */
/* @__NO_SIDE_EFFECTS__ */
export function nativeFamily<const F extends Fields>(name: string, fields: F, shared: Shared = {}): NativeFamily<F> {
  const argumentsOf = nativeArguments(name, fields);
  return Object.assign(nativeKernels(name, argumentsOf), { family: name, fields, argumentsOf, ...shared });
}

/** A family of a plain loop alone. */
/* @__NO_SIDE_EFFECTS__ */
export function plainFamily<A>(reference: Kernel<A>): readonly Kernel<A>[] {
  return [reference];
}

/** Declares a family: its name, its arguments and its code. Bundlers leave out those that nothing calls. */
/* @__NO_SIDE_EFFECTS__ */
export function family<const F extends Fields, C = unknown>(
  name: string,
  fields: F,
  options: FamilyOptions<F, C> | OwnDivision<F>,
): Family<F> {
  const native = nativeKernels(name, nativeArguments(name, fields)) as Kernel<ArgumentsOf<F>>[];
  const others = "by" in options ? declaredRows(name, fields, options) : [...options.wasm, options.reference];
  const { by, args } = options as { by?: Division } & Shared;
  return Object.assign([...native, ...others], { family: name, fields, ...(by && { by }), ...(args && { args }) });
}

/** The row of WebAssembly, and the reference. */
function declaredRows<F extends Fields, C>(
  name: string,
  fields: F,
  { by, types = "f32", reference, wasm }: FamilyOptions<F, C>,
): Kernel<ArgumentsOf<F>>[] {
  const plain: Kernel<ArgumentsOf<F>> = {
    ...{ target: "reference", layouts: null, bits: null, needs: [], mStep: 1, nStep: 1 },
    name: `${name}_${types}_1x1x1_reference`,
    bind(args) {
      checkArguments(name, plainFields(fields), plainValues(fields, args));
      return () => reference(args);
    },
  };
  return [wasmRow({ name, types, fields, by }, wasm), plain];
}
