/** Functions and modules: what generators build, and its encoding as a WebAssembly binary. */
import { FunctionEncoder, leb, text, vectorOf } from "./encode.ts";
import { type Body, type Callable, type Expr, type FunctionType, Local } from "./expression.ts";
import { structure, type ValueType } from "./opcodes.ts";

type Params = Readonly<Record<string, ValueType>>;
type Locals<P extends Params> = { readonly [N in keyof P]: Local<P[N]> };

/** Gives a function's generator its variables. */
export class Scope {
  readonly locals: Local<ValueType>[] = [];
  readonly #names = new Set<string>();

  /** A variable, 0 at first; its name serves the printed text. */
  local<T extends ValueType>(type: T, name: string): Local<T> {
    let unique = name;
    for (let i = 1; this.#names.has(unique); i++) unique = `${name}_${i}`;
    this.#names.add(unique);
    const local = new Local(type, unique, this.locals.length);
    this.locals.push(local);
    return local;
  }

  /** Variables of a type, numbered. */
  localArray<T extends ValueType>(type: T, name: string, count: number): Local<T>[] {
    return Array.from({ length: count }, (_, i) => this.local(type, `${name}${i}`));
  }
}

/** A function of a module. */
export interface FunctionCode extends Callable {
  readonly locals: readonly Local<ValueType>[];
  readonly body: Body;
  /** The value it returns, when it has a result. */
  readonly returned: Expr<ValueType> | null;
}

/** Makes a function without a result. `build` gets the parameters as locals. */
export function defineFunction<P extends Params>(
  name: string,
  params: P,
  build: (params: Locals<P>, scope: Scope) => Body,
): FunctionCode {
  return defineFunctionOf(name, params, (locals, scope) => ({ body: build(locals, scope), returned: null }));
}

/** The same for a function that returns a value. */
export function defineFunctionOf<P extends Params>(
  name: string,
  params: P,
  build: (params: Locals<P>, scope: Scope) => { body: Body; returned: Expr<ValueType> | null },
): FunctionCode {
  const scope = new Scope();
  const locals = Object.fromEntries(Object.entries(params).map(([key, type]) => [key, scope.local(type, key)]));
  const { body, returned } = build(locals as Locals<P>, scope);
  const types = Object.values(params);
  return { name, params: types, result: returned?.type ?? null, locals: scope.locals, body, returned };
}

export interface ModuleOptions {
  /** 64-bit addresses. */
  readonly isWide: boolean;
  readonly memory: { readonly initialPages: number; readonly maximumPages: number; readonly isShared: boolean };
  /** Functions of the import module "env". */
  readonly imports: readonly Callable[];
  /** Whether functions are called by table index: the table is import "env" "table". */
  readonly hasTable: boolean;
}

/** A module: exported functions by name, over an imported memory. */
export class Module {
  readonly options: ModuleOptions;
  readonly functions: readonly FunctionCode[];

  constructor(options: ModuleOptions, functions: readonly FunctionCode[]) {
    this.options = options;
    this.functions = functions;
  }

  /** The binary. */
  encode(): Uint8Array<ArrayBuffer> {
    const types: FunctionType[] = [];
    const typeIndex = (type: FunctionType): number => {
      const known = types.findIndex((other) => signature(other) === signature(type));
      return known >= 0 ? known : types.push(type) - 1;
    };
    const callables: Callable[] = [...this.options.imports, ...this.functions];
    const encoder = new FunctionEncoder({
      isWide: this.options.isWide,
      typeIndex,
      indexOf: (target) => callables.indexOf(target),
    });
    const declared = this.functions.map((code) => leb(typeIndex(code)));
    const imports = this.#encodeImports(typeIndex);
    const bodies = this.functions.map((code) => encoder.encode(code));
    const exported = this.functions.map(({ name }, i) => [...text(name), 0, ...leb(this.options.imports.length + i)]);
    const typeSection = types.map(({ params, result }) => [
      structure.functionType,
      ...vectorOf(params.map((type) => [encoder.type(type)])),
      ...vectorOf(result ? [[encoder.type(result)]] : []),
    ]);
    return Uint8Array.from([
      ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
      ...section(1, vectorOf(typeSection)),
      ...section(2, vectorOf(imports)),
      ...section(3, vectorOf(declared)),
      ...section(7, vectorOf(exported)),
      ...section(10, vectorOf(bodies)),
    ]);
  }

  #encodeImports(typeIndex: (type: FunctionType) => number): number[][] {
    const { memory, imports, hasTable, isWide } = this.options;
    const flags = (memory.isShared ? 3 : 1) | (isWide ? 4 : 0);
    return [
      [...text("env"), ...text("memory"), 2, flags, ...leb(memory.initialPages), ...leb(memory.maximumPages)],
      ...(hasTable ? [[...text("env"), ...text("table"), 1, structure.functionReference, 0, 0]] : []),
      ...imports.map((callable) => [...text("env"), ...text(callable.name), 0, ...leb(typeIndex(callable))]),
    ];
  }
}

function signature({ params, result }: FunctionType): string {
  return `${params.join()}:${result ?? ""}`;
}

function section(id: number, content: readonly number[]): number[] {
  return [id, ...leb(content.length), ...content];
}
