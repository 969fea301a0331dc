/**
 * Builds a family of kernels from one declaration: native kernels, WebAssembly kernels and the reference, with the same
 * arguments.
 */
import { type Kernel, referenceRow } from "./contract.ts";
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

/** Unit of work of a tile: one row, or many elements. */
type Division = "rows" | "elements";

/** Options of all families. */
interface Shared {
  /** Name of the C++ arguments, for families that share them with others; default: the family's name. */
  readonly args?: string;
}

export interface FamilyOptions<F extends Fields, C> extends Shared {
  /** Unit of work of native and WebAssembly tiles; the C++ function computes one of them. */
  readonly by: Division;
  /** Types in the names of its kernels; default f32. */
  readonly types?: string;
  /** Reference loop, which defines what all kernels compute. */
  reference(args: ArgumentsOf<F>): void;
  /** Generator of a tile's WebAssembly code. */
  readonly wasm: WasmCode<F, C>;
}

/** Options of a family whose kernels divide their work themselves. */
export interface OwnDivision<F extends Fields> extends Shared {
  /** WebAssembly kernels, best first. */
  readonly wasm: readonly Kernel<ArgumentsOf<F>>[];
  /** Reference kernel, which defines what all kernels compute. */
  readonly reference: Kernel<ArgumentsOf<F>>;
}

/** Kernels that compute the same, best first, with their declaration. */
export interface Family<F extends Fields = Fields> extends ReadonlyArray<Kernel<ArgumentsOf<F>>> {
  /** Name of the family, as in native code. */
  readonly family: string;
  readonly fields: F;
  /** Unit of work of a tile; absent for families that divide their work themselves. */
  readonly by?: Division;
  readonly args?: string;
}

/** A family of native kernels only, for which callers have another way in TypeScript. */
export interface NativeFamily<F extends Fields = Fields> extends Family<F> {
  argumentsOf(args: ArgumentsOf<F>): NativeArguments;
}

/** Declares a family of native kernels only. */
/* @__NO_SIDE_EFFECTS__ */
export function nativeFamily<const F extends Fields>(name: string, fields: F, shared: Shared = {}): NativeFamily<F> {
  const argumentsOf = nativeArguments(name, fields);
  return Object.assign(nativeKernels(name, argumentsOf), { family: name, fields, argumentsOf, ...shared });
}

/** Declares a family of a reference kernel only. */
/* @__NO_SIDE_EFFECTS__ */
export function plainFamily<A>(reference: Kernel<A>): readonly Kernel<A>[] {
  return [reference];
}

/** Declares a family by its name, arguments and code. Bundlers can drop unused families. */
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

/** The WebAssembly kernel and the reference of a declared family. */
function declaredRows<F extends Fields, C>(
  name: string,
  fields: F,
  { by, types = "f32", reference, wasm }: FamilyOptions<F, C>,
): Kernel<ArgumentsOf<F>>[] {
  const plain: Kernel<ArgumentsOf<F>> = {
    ...referenceRow,
    name: `${name}_${types}_1x1x1_reference`,
    bind(args) {
      checkArguments(name, plainFields(fields), plainValues(fields, args));
      return () => reference(args);
    },
  };
  return [wasmRow({ name, types, fields, by }, wasm), plain];
}
