/** Functions and modules, which generators build, and the encoding of modules as WebAssembly binaries. */
import { InvalidArgumentError } from "../../../errors.ts";
import { ByteWriter, type OwnBytes } from "./bytes.ts";
import { FunctionEncoder } from "./encode.ts";
import {
  type Body,
  type Callable,
  type Expr,
  type FunctionCode,
  type FunctionType,
  Local,
  type Params,
} from "./expression.ts";
import { checkPages } from "./immediates.ts";
import { structure, type ValueType } from "./opcodes.ts";

type Locals<P extends Params> = { readonly [N in keyof P]: Local<P[N]> };

/** Provides the locals of a function to its generator. */
export class Scope {
  /** Locals of the function so far, parameters first. */
  readonly locals: Local<ValueType>[] = [];
  /** Names in use, with the number for the next local of the same name. */
  readonly #names = new Map<string, number>();

  /** Adds a local, initially 0; its name appears in printed text. */
  local<T extends ValueType>(type: T, name: string): Local<T> {
    let unique = name;
    let next = this.#names.get(name) ?? 1;
    while (this.#names.has(unique)) unique = `${name}_${next++}`;
    this.#names.set(unique, 1);
    if (unique !== name) this.#names.set(name, next);
    const local = new Local(type, unique, this.locals.length);
    this.locals.push(local);
    return local;
  }

  /** Adds numbered locals of one type. */
  localArray<T extends ValueType>(type: T, name: string, count: number): Local<T>[] {
    return Array.from({ length: count }, (_, i) => this.local(type, `${name}${i}`));
  }
}

/** Defines a function without a result. `build` gets the parameters as locals. */
export function defineFunction<P extends Params>(
  name: string,
  params: P,
  build: (params: Locals<P>, scope: Scope) => Body,
): FunctionCode<P, null> {
  const { scope, locals } = variablesOf(params);
  return { name, params, result: null, locals: scope.locals, body: build(locals, scope), returned: null };
}

/** Defines a function that returns a value. `build` gets the parameters as locals. */
export function defineFunctionOf<P extends Params, R extends ValueType>(
  name: string,
  params: P,
  build: (params: Locals<P>, scope: Scope) => { body: Body; returned: Expr<R> },
): FunctionCode<P, R> {
  const { scope, locals } = variablesOf(params);
  const { body, returned } = build(locals, scope);
  return { name, params, result: returned.type, locals: scope.locals, body, returned };
}

function variablesOf<P extends Params>(params: P): { scope: Scope; locals: Locals<P> } {
  const scope = new Scope();
  const locals = Object.fromEntries(Object.entries(params).map(([key, type]) => [key, scope.local(type, key)]));
  return { scope, locals: locals as Locals<P> };
}

/** Options of a WebAssembly module: 32- or 64-bit addresses, its imported memory, functions and table. */
export interface ModuleOptions {
  /** Whether addresses have 64 bits. */
  readonly isWide: boolean;
  /** Size of the memory in pages of 64 KiB, and whether threads share it. */
  readonly memory: { readonly initialPages: number; readonly maximumPages: number; readonly isShared: boolean };
  /** Functions of the import module "env". */
  readonly imports: readonly Callable[];
  /** Whether functions are called by table index; the table is the import "env" "table". */
  readonly hasTable: boolean;
}

/** A module: exported functions by name, over an imported memory. */
export class Module {
  /** Memory, imports and table of the module. */
  readonly options: ModuleOptions;
  /** Functions of the module, in index order, with distinct names. */
  readonly functions: readonly FunctionCode[];

  /** Functions with equal names are taken to be the same function, which several callers added. */
  constructor(options: ModuleOptions, functions: readonly FunctionCode[]) {
    this.options = options;
    this.functions = [...new Map(functions.map((item) => [item.name, item])).values()];
  }

  /**
   * Encodes the module. InvalidArgumentError for calls of unknown functions, uses of unknown locals, and numbers that do not
   * fit.
   */
  encode(): OwnBytes {
    const { imports, isWide, memory } = this.options;
    checkPages(memory);
    const types = new Map<string, FunctionType>();
    const typeIndices = new Map<string, number>();
    const typeIndex = (type: FunctionType): number => {
      const key = signature(type, isWide);
      const known = typeIndices.get(key);
      if (known !== undefined) return known;
      types.set(key, type);
      typeIndices.set(key, typeIndices.size);
      return typeIndices.size - 1;
    };
    const indices = new Map([...imports, ...this.functions].map(({ name }, i) => [name, i]));
    for (const type of [...imports, ...this.functions]) typeIndex(type);
    const code = new ByteWriter();
    const indexOf = (target: Callable) => {
      const index = indices.get(target.name);
      if (index === undefined) throw new InvalidArgumentError(`${target.name}: is not of this module`);
      return index;
    };
    const encoder = new FunctionEncoder({ isWide, typeIndex, indexOf }, code);
    code.vector(this.functions, (item) => encoder.encode(item));

    const out = new ByteWriter();
    out.bytes([0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
    section(out, 1, () =>
      out.vector([...types.values()], ({ params, result }) => {
        out.byte(structure.functionType);
        out.vector(Object.values(params), (type) => out.byte(encoder.type(type)));
        out.vector(result ? [result] : [], (type) => out.byte(encoder.type(type)));
      }),
    );
    section(out, 2, () => this.#encodeImports(out, typeIndex));
    section(out, 3, () => out.vector(this.functions, (item) => out.unsigned(typeIndex(item))));
    section(out, 7, () =>
      out.vector(this.functions, ({ name }, i) => {
        out.text(name);
        out.byte(0);
        out.unsigned(imports.length + i);
      }),
    );
    section(out, 10, () => out.bytes(code.take()));
    return out.take();
  }

  #encodeImports(out: ByteWriter, typeIndex: (type: FunctionType) => number): void {
    const { memory, imports, hasTable, isWide } = this.options;
    const named = (name: string, kind: number) => {
      out.text("env");
      out.text(name);
      out.byte(kind);
    };
    out.unsigned(1 + (hasTable ? 1 : 0) + imports.length);
    named("memory", 2);
    out.byte((memory.isShared ? 3 : 1) | (isWide ? 4 : 0));
    out.unsigned(memory.initialPages);
    out.unsigned(memory.maximumPages);
    if (hasTable) {
      named("table", 1);
      out.bytes([structure.functionReference, 0, 0]);
    }
    for (const callable of imports) {
      named(callable.name, 0);
      out.unsigned(typeIndex(callable));
    }
  }
}

/** Key of a function type in the binary, in which addresses are integers. */
function signature({ params, result }: FunctionType, isWide: boolean): string {
  return `${Object.values(params).join()}:${result ?? ""}`.replaceAll("ptr", isWide ? "i64" : "i32");
}

function section(out: ByteWriter, id: number, content: () => void): void {
  out.byte(id);
  out.sized(content);
}
