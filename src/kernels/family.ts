/**
 * A family of kernels from one declaration: native rows, a row of WebAssembly and the reference, which take the same arguments
 * and check their sizes alike.
 */
import type { Kernel } from "./contract.ts";
import { type ArgumentsOf, checkArguments, type Fields, nativeOrder, numbersOf } from "./declaration.ts";
import type { NativeArguments } from "./native/families.ts";
import { nativeKernels } from "./native/rows.ts";
import { type WasmCode, wasmRow } from "./wasm/declared.ts";

/** How the work of a call is divided: into rows, or into elements, of which a tile has many. */
type Division = "rows" | "elements";

export interface FamilyOptions<F extends Fields, C> {
  /** What a tile of the native kernels and of WebAssembly is made of; C++ has a function for one of them. */
  readonly by: Division;
  /** The types in the names of its kernels; f32 when absent. */
  readonly types?: string;
  /** A plain loop, which defines what all kernels compute. */
  reference(args: ArgumentsOf<F>): void;
  /** The code of a tile in WebAssembly. */
  readonly wasm: WasmCode<F, C>;
}

/** Kernels that compute the same, best first, with what they were declared by. */
export interface Family<F extends Fields = Fields> extends ReadonlyArray<Kernel<ArgumentsOf<F>>> {
  /** Name of the family, as native kernels have it. */
  readonly family: string;
  readonly fields: F;
  readonly by: Division;
}

const noFloats = new Float32Array(0);

/** The kernels of a family that is not declared: native ones, which take numbers and arrays, before others. */
/* @__NO_SIDE_EFFECTS__ */
export function listed<A>(
  name: string,
  argumentsOf: (args: A) => NativeArguments,
  others: readonly (Kernel<A> | readonly Kernel<A>[])[],
): readonly Kernel<A>[] {
  return [...nativeKernels(name, argumentsOf), ...others.flat()] as Kernel<A>[];
}

/** Declares a family: its name, its arguments and its code. Bundlers leave out those that nothing calls. */
/* @__NO_SIDE_EFFECTS__ */
export function family<const F extends Fields, C = unknown>(
  name: string,
  fields: F,
  { by, types = "f32", reference, wasm }: FamilyOptions<F, C>,
): Family<F> {
  const order = nativeOrder(fields);
  const native = (args: ArgumentsOf<F>): NativeArguments => {
    checkArguments(name, fields, args);
    const numbers = numbersOf(fields, args);
    const arrays = args as Readonly<Record<string, ArrayBufferView | null>>;
    return {
      scalars: order.scalars.map((scalar) => numbers[scalar]!),
      buffers: order.buffers.map((buffer) => arrays[buffer] ?? noFloats),
    };
  };
  const plain: Kernel<ArgumentsOf<F>> = {
    ...{ target: "reference", layouts: null, bits: null, needs: [], mStep: 1, nStep: 1 },
    name: `${name}_${types}_1x1x1_reference`,
    bind(args) {
      checkArguments(name, fields, args);
      return () => reference(args);
    },
  };
  const rows = [...nativeKernels(name, native), wasmRow({ name, types, fields, by }, wasm), plain];
  return Object.assign(rows, { family: name, fields, by });
}
