/** Programs with calls that no exporter writes, to see what becomes of them: a program's method, changed value by value. */
import { byteSize, type DType } from "../../src/dtype.ts";
import type { Instruction, Method, Program, Value } from "../../src/program/program.ts";
import { elementCount } from "../../src/tensor.ts";

export interface Place {
  /** 1 is scratch, 2 is state. */
  readonly memory?: number;
  /** Default: memory of its own. */
  readonly offset?: number;
  readonly constant?: number;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] extends readonly (infer E)[] ? E[] : T[K] };

/** Places of memory begin at multiples of this, so that those of different tensors are apart. */
const STEP = 4096;

export class ProgramEditor {
  readonly method: Mutable<Method>;
  readonly #program: Program;
  readonly #constants: Program["constants"][number][];

  /** Changes a copy of a program's method. */
  constructor(program: Program, name = "forward") {
    this.#program = program;
    this.#constants = [...program.constants];
    this.method = structuredClone(program.methods.find((method) => method.name === name)!) as Mutable<Method>;
  }

  get program(): Program {
    const methods = this.#program.methods.map((method) => (method.name === this.method.name ? this.method : method));
    return { ...this.#program, methods, constants: this.#constants };
  }

  value(value: Value): number {
    this.method.values.push(value);
    return this.method.values.length - 1;
  }

  int(value: number): number {
    return this.value({ kind: "int", value });
  }

  double(value: number): number {
    return this.value({ kind: "double", value });
  }

  bool(value: boolean): number {
    return this.value({ kind: "bool", value });
  }

  none(): number {
    return this.value({ kind: "null" });
  }

  ints(...values: readonly number[]): number {
    return this.value({ kind: "intList", items: values.map((value) => this.int(value)) });
  }

  tensors(...items: readonly number[]): number {
    return this.value({ kind: "tensorList", items });
  }

  /** A constant of these bytes, as an index for `tensor`. */
  constant(bytes: ArrayBufferView): number {
    const data = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength).slice();
    this.#constants.push({ data: { byteLength: data.length, read: async () => data.slice() }, alignment: 64 });
    return this.#constants.length - 1;
  }

  tensor(dtype: DType, sizes: readonly number[], { memory = 1, offset, constant }: Place = {}): number {
    const allocation =
      constant === undefined ? { memoryId: memory, offset: offset ?? this.#room(dtype, sizes, memory) } : null;
    const dimOrder = sizes.map((_, dim) => dim);
    const common = { kind: "tensor", dtype, sizes, dimOrder, dynamism: "static", name: null } as const;
    return this.value({ ...common, constant: constant ?? null, allocation });
  }

  /** Where in its memory a planned tensor lies. */
  offsetOf(index: number): number {
    const value = this.method.values[index]!;
    return value.kind === "tensor" ? value.allocation!.offset : Number.NaN;
  }

  call(name: string, ...args: readonly number[]): Instruction {
    const [, base, overload = ""] = /^([^.]+)(?:\.(.+))?$/.exec(name)!;
    const { operators } = this.method;
    let operator = operators.findIndex((known) => known.name === base && known.overload === overload);
    if (operator < 0) operator = operators.push({ name: base!, overload }) - 1;
    return { kind: "kernel", operator, args };
  }

  /** Puts calls before all others. */
  first(...instructions: readonly Instruction[]): void {
    this.method.instructions.unshift(...instructions);
  }

  /** An instruction that does nothing: a method with one runs instruction by instruction. */
  freeNothing(): Instruction {
    return { kind: "free", value: this.tensor("f32", [1]) };
  }

  #room(dtype: DType, sizes: readonly number[], memory: number): number {
    const offset = Math.ceil((this.method.memorySizes[memory] ?? 0) / STEP) * STEP;
    this.method.memorySizes[memory] = offset + elementCount(sizes) * byteSize(dtype);
    return offset;
  }
}
