/** WebAssembly kernels of declared families: their argument block, and what their tiles are. */

import type { Kernel } from "../contract.ts";
import {
  type ArgumentsOf,
  checkArguments,
  type Fields,
  numbersOf,
  type PlainFields,
  plainFields,
  plainValues,
  sizeNames,
} from "../declaration.ts";
import type { Body, Local } from "./assembler/expression.ts";
import { when } from "./assembler/expression.ts";
import { f32x4, i32, int } from "./assembler/instructions.ts";
import type { Scope } from "./assembler/module.ts";
import { forLanes, type Lanes } from "./generate/lanes.ts";
import { elementAt } from "./generate/loops.ts";
import { VectorConstants } from "./generate/weight-fields.ts";
import { plainRow, wasmKernel } from "./kernel.ts";
import { ArgumentBlock, type KernelCode, kernelFunction } from "./kernel-code.ts";

/** Locals with a call's arguments: addresses of arrays, and numbers. */
type Variables<F extends Fields> = {
  readonly [N in keyof F]: F[N] extends { kind: "array" }
    ? Local<"ptr">
    : F[N] extends { kind: "number"; type: "size_t" }
      ? Local<"ptr">
      : F[N] extends { kind: "number"; type: "float" | "double" }
        ? Local<"f32">
        : Local<"i32">;
} & { readonly [S in Exclude<keyof ArgumentsOf<F>, keyof F>]: Local<"i32"> };

/** What the generator of a tile's code gets. `C` is what the code is specialised for. */
export interface TileScope<C> {
  /** Locals of the function. */
  readonly scope: Scope;
  /** Vector constants, made once per tile. */
  readonly constants: VectorConstants;
  /** Index of the tile's row, for families by rows. */
  readonly tile: Local<"i32">;
  /** Result of `WasmCode.specialise`. */
  readonly special: C;
}

/** Generator of a family's WebAssembly code. */
export interface WasmCode<F extends Fields, C> {
  /** Values of a row computed together, as in the kernel's name; default 4. */
  readonly lanes?: 1 | 4;
  /** Arguments that code is specialised for: words and numbers, which become part of its key. */
  specialise?(args: ArgumentsOf<F>): C;
  /** Makes the statements of one tile. */
  body(variables: Variables<F>, tile: TileScope<C>): Body;
}

interface Declared<F extends Fields> {
  readonly name: string;
  readonly types: string;
  readonly fields: F;
  readonly by: "rows" | "elements";
}

/** Elements of a tile, for families by elements: enough that the overhead of taking a tile is small. */
const TILE_VALUES = 4096;

/** The WebAssembly kernel of a family. */
export function wasmRow<F extends Fields, C>(
  { name, types, fields, by }: Declared<F>,
  code: WasmCode<F, C>,
): Kernel<ArgumentsOf<F>> {
  const plain = plainFields(fields);
  const sizes = sizeNames(plain);
  const block = blockOf(plain);
  const codeFor = (special: C): KernelCode => {
    const key = [name, ...Object.values(special ?? {})].join("_");
    const build = () => [
      kernelFunction(key, block, (variables, { tile }, scope) => {
        const constants = new VectorConstants(scope);
        const given = { scope, constants, tile, special };
        return [constants.prepare, code.body(variables as unknown as Variables<F>, given)];
      }),
    ];
    return { key, build };
  };
  return wasmKernel<ArgumentsOf<F>>({
    ...plainRow,
    name: `${name}_${types}_1x1x${code.lanes ?? 4}_wasm_simd`,
    step(args, place) {
      const given = plainValues(fields, args);
      checkArguments(name, plain, given);
      const values = numbersOf(plain, sizes, given);
      for (const [field, declared] of Object.entries(plain)) {
        if (declared.kind !== "array") continue;
        const view = given[field] as ArrayBufferView | null;
        values[field] = view ? place[declared.access === "read" ? "read" : "write"](view) : 0;
      }
      const { rows, count } = values;
      const tiles = by === "rows" ? rows! : Math.ceil(count! / TILE_VALUES);
      const special = code.specialise?.(args) as C;
      return { phases: [{ code: codeFor(special), tiles, args: block.encode(values) }] };
    },
  });
}

function blockOf(fields: PlainFields) {
  const types = { float: "f32", double: "f32", uint32_t: "i32", bool: "i32", size_t: "ptr" } as const;
  const entries = Object.entries(fields).map(([name, field]) => {
    if (field.kind === "array") return [name, "ptr"] as const;
    return [name, field.kind === "number" ? types[field.type] : "i32"] as const;
  });
  return new ArgumentBlock(
    Object.fromEntries([...entries, ...sizeNames(fields).map((name) => [name, "i32"] as const)]),
  );
}

/** Vectors of an elementwise formula: elements of the arrays, numbers in all lanes, and a free one. */
export interface Operands<N extends string> extends Omit<TileScope<unknown>, "tile" | "special"> {
  readonly of: Readonly<Record<N, Local<"v128">>>;
  readonly free: Local<"v128">;
}

/** Makes the statements of a tile for families by elements. `formula` sets the first array's local to the result. */
export function elementwise<N extends string>(
  { inputs, numbers = [], result }: ElementNames<N>,
  formula: (operands: Operands<N>) => Body,
) {
  return (
    variables: Readonly<Record<string, Local<"ptr"> | Local<"i32"> | Local<"f32">>>,
    given: TileScope<unknown>,
  ) => {
    const { scope, constants, tile } = given;
    const names = [...inputs, ...numbers];
    const of = Object.fromEntries(
      names.map((name) => [name, scope.local("v128", `value_${name}`)]),
    ) as Operands<N>["of"];
    const free = scope.local("v128", "free");
    const count = scope.local("i32", "tile_count");
    const first = i32.mul(tile, int(TILE_VALUES));
    const all = variables.count as Local<"i32">;
    const at = (name: string) => variables[name] as Local<"ptr">;
    const pointers = [...new Set([...inputs, result])].map(at);
    const loop = (lanes: Lanes): Body => [
      inputs.map((name) => of[name].set(lanes.load(at(name)))),
      formula({ of, free, scope, constants }),
      lanes.store(at(result), of[inputs[0]!]),
    ];
    return [
      numbers.map((name) => of[name].set(f32x4.splat(variables[name] as Local<"f32">))),
      count.set(i32.sub(all, first)),
      when(i32.gt_u(count, int(TILE_VALUES)), [count.set(int(TILE_VALUES))]),
      pointers.map((pointer) => pointer.set(elementAt(pointer, first, 4))),
      forLanes({ scope, constants, count, pointers: pointers.map((pointer) => [pointer]) }, loop),
    ] satisfies Body;
  };
}

interface ElementNames<N extends string> {
  readonly inputs: readonly N[];
  readonly numbers?: readonly N[];
  readonly result: string;
}
