/**
 * Typed expressions and statements: trees that the encoder and the printer traverse. An operand of the wrong type is a type
 * error. An expression that is used twice is computed twice; use a local to keep a value.
 */
import { checkBytes, checkConstant, checkImmediates, checkLanes } from "./immediates.ts";
import {
  type Immediate,
  type NameWith,
  type OperandsOf,
  type OpName,
  opcodes,
  type ResultOf,
  type SignatureOf,
  type ValueType,
} from "./opcodes.ts";

/** One instruction with its operands. */
export type Node =
  | {
      readonly kind: "op";
      readonly name: OpName;
      readonly operands: readonly Node[];
      readonly immediates: readonly number[];
    }
  | { readonly kind: "const"; readonly type: Exclude<ValueType, "v128">; readonly value: number | bigint }
  | { readonly kind: "vector"; readonly bytes: readonly number[] }
  | { readonly kind: "shuffle"; readonly lanes: readonly number[]; readonly operands: readonly Node[] }
  | { readonly kind: "get"; readonly local: Local<ValueType> }
  | { readonly kind: "set" | "tee"; readonly local: Local<ValueType>; readonly value: Node }
  | { readonly kind: "widen"; readonly value: Node }
  | { readonly kind: "select"; readonly type: ValueType; readonly operands: readonly Node[] }
  | { readonly kind: "drop"; readonly value: Node }
  | { readonly kind: "call"; readonly target: Callable; readonly operands: readonly Node[] }
  | { readonly kind: "callIndirect"; readonly type: FunctionType; readonly operands: readonly Node[] }
  | { readonly kind: "if"; readonly condition: Node; readonly then: Body; readonly otherwise: Body | null }
  | { readonly kind: "doWhile"; readonly body: Body; readonly condition: Node }
  | { readonly kind: "whileDo"; readonly condition: Node; readonly body: Body };

/** A value of a type. */
export interface Expr<T extends ValueType> {
  /** Type of the value. */
  readonly type: T;
  /** The expression as part of the syntax tree. */
  readonly node: Node;
}

/** An instruction without a value, such as a store. */
export interface Statement {
  /** The statement as part of the syntax tree. */
  readonly node: Node;
  /** Always absent, so that a value, which has a type, is no statement. `drop` makes a statement of a value. */
  readonly type?: never;
}

/** Statements in order, which may be nested lists, as generators produce them. */
export type Body = readonly (Statement | Body)[];

/** Parameters by name, in order. */
export type Params = Readonly<Record<string, ValueType>>;
type Result = ValueType | null;

/** The parameters of a function and the type of its result, which is null where it has none. */
export interface FunctionType<P extends Params = Params, R extends Result = Result> {
  /** Types of the parameters. */
  readonly params: P;
  /** Type of the result; null without one. */
  readonly result: R;
}

/** A function that can be called: one of the module, or an import. */
export interface Callable<P extends Params = Params, R extends Result = Result> extends FunctionType<P, R> {
  /** Name that printed code shows. */
  readonly name: string;
}

/** A value for each parameter. */
export type Given<P extends Params> = { readonly [N in keyof P]: Expr<P[N]> };

/** A variable of a function. */
export class Local<T extends ValueType> implements Expr<T> {
  /** Type of the local. */
  readonly type: T;
  /** Name that printed code shows. */
  readonly name: string;
  /** Number of the local in its function. */
  readonly index: number;
  /** The local read, as part of the syntax tree. */
  readonly node: Node;

  constructor(type: T, name: string, index: number) {
    this.type = type;
    this.name = name;
    this.index = index;
    this.node = { kind: "get", local: this };
  }

  /** Statement that gives the local a value. */
  set(value: Expr<T>): Statement {
    return { node: { kind: "set", local: this, value: value.node } };
  }

  /** Sets the local and returns the value. */
  tee(value: Expr<T>): Expr<T> {
    return { type: this.type, node: { kind: "tee", local: this, value: value.node } };
  }
}

type Operands<T> = { [K in keyof T]: T[K] extends ValueType ? Expr<T[K]> : never };
type Immediates = {
  /** Instructions without immediates. */
  none: [];
  /** Loads and stores: an offset that is added to the address. */
  memory: [offset?: number];
  /** Instructions on one lane of a vector. */
  lane: [lane: number];
  /** Loads and stores of one lane: the lane, and an offset that is added to the address. */
  memoryLane: [lane: number, offset?: number];
  /** Instructions with two memories, which are both the only memory. */
  memoryPair: [];
};
type Outcome<R> = R extends ValueType ? Expr<R> : Statement;

type ImmediateOf<N extends OpName> = { [I in Immediate]: N extends NameWith<I> ? I : never }[Immediate];
type Instruction<N extends OpName> = (
  ...args: [...Extract<Operands<OperandsOf<SignatureOf<N>>>, readonly unknown[]>, ...Immediates[ImmediateOf<N>]]
) => Outcome<ResultOf<SignatureOf<N>>>;

/** Type-level name change: `atomic.rmw.add` to `atomic_rmw_add`. */
type Flat<S extends string> = S extends `${infer First}.${infer Rest}` ? `${First}_${Flat<Rest>}` : S;

/** The instructions `prefix.name` as functions `name`. */
export type Namespace<P extends string> = {
  readonly [N in OpName as N extends `${P}.${infer Rest}` ? Flat<Rest> : never]: Instruction<N>;
};

/**
 * Makes the functions of a prefix: operands first, then the lane, then the offset. InvalidArgumentError for invalid immediates.
 */
export function namespace<P extends string>(prefix: P): Namespace<P> {
  type Argument = Expr<ValueType> | number | undefined;
  const functions: Record<string, (...args: Argument[]) => Expr<ValueType> | Statement> = {};
  for (const [name, opcode] of opcodes) {
    if (!name.startsWith(`${prefix}.`)) continue;
    const { result } = opcode;
    functions[name.slice(prefix.length + 1).replaceAll(".", "_")] = (...args) => {
      const operands: Node[] = [];
      const immediates: number[] = [];
      for (const arg of args) {
        if (typeof arg === "object") operands.push(arg.node);
        else immediates.push(arg ?? 0);
      }
      checkImmediates(name, opcode, immediates);
      const node: Node = { kind: "op", name: name as OpName, operands, immediates };
      return result === null ? { node } : { type: result, node };
    };
  }
  return functions as unknown as Namespace<P>;
}

/** A constant. */
export function constant<T extends Exclude<ValueType, "v128" | "i64">>(type: T, value: number): Expr<T> {
  checkConstant(type, value);
  return { type, node: { kind: "const", type, value } };
}

/** A 64-bit constant. */
export function constant64(value: bigint): Expr<"i64"> {
  checkConstant("i64", value);
  return { type: "i64", node: { kind: "const", type: "i64", value } };
}

/** A vector constant from 16 bytes. */
export function vector(bytes: readonly number[]): Expr<"v128"> {
  checkBytes(bytes);
  return { type: "v128", node: { kind: "vector", bytes } };
}

/** A vector constant of 16 equal bytes. */
export function bytes16(byte: number): Expr<"v128"> {
  checkBytes([byte], 1);
  return words4((byte & 255) * 0x01010101);
}

/** A vector constant of four equal 32-bit words. */
export function words4(word: number): Expr<"v128"> {
  checkConstant("i32", word);
  const bytes = [word & 255, (word >>> 8) & 255, (word >>> 16) & 255, word >>> 24];
  return vector([...bytes, ...bytes, ...bytes, ...bytes]);
}

/** A vector constant of four equal floats. */
export const floats4 = (value: number): Expr<"v128"> => words4(new Uint32Array(Float32Array.of(value).buffer)[0]!);

/** Selects bytes of two vectors: lanes 0..15 are the first's, 16..31 the second's. */
export function shuffle(a: Expr<"v128">, b: Expr<"v128">, lanes: readonly number[]): Expr<"v128"> {
  checkLanes(lanes);
  return { type: "v128", node: { kind: "shuffle", lanes, operands: [a.node, b.node] } };
}

/** Selects 32-bit lanes of two vectors: 0..3 are the first's, 4..7 the second's. */
export function shuffle4(a: Expr<"v128">, b: Expr<"v128">, lanes: readonly number[]): Expr<"v128"> {
  checkLanes(lanes, 4);
  return shuffle(
    a,
    b,
    lanes.flatMap((lane) => [0, 1, 2, 3].map((byte) => 4 * lane + byte)),
  );
}

/** Converts an unsigned number to an address or size. */
export function widen(value: Expr<"i32">): Expr<"ptr"> {
  return { type: "ptr", node: { kind: "widen", value: value.node } };
}

/** `yes` if the condition is not 0, else `no`; both are computed. */
export function select<T extends ValueType>(condition: Expr<"i32">, yes: Expr<T>, no: Expr<T>): Expr<T> {
  return { type: yes.type, node: { kind: "select", type: yes.type, operands: [yes.node, no.node, condition.node] } };
}

/** Computes a value and discards it. */
export function drop(value: Expr<ValueType>): Statement {
  return { node: { kind: "drop", value: value.node } };
}

/** Returns from the function. */
export const leave: Statement = { node: { kind: "op", name: "return", operands: [], immediates: [] } };

/** Runs `then` if the condition is not 0, otherwise `otherwise`, if given. */
export function when(condition: Expr<"i32">, then: Body, otherwise: Body | null = null): Statement {
  return { node: { kind: "if", condition: condition.node, then, otherwise } };
}

/** Runs the body, and repeats it while the condition is not 0. */
export function doWhile(body: Body, condition: Expr<"i32">): Statement {
  return { node: { kind: "doWhile", body, condition: condition.node } };
}

/** Runs the body while the condition is not 0. */
export function whileDo(condition: Expr<"i32">, body: Body): Statement {
  return { node: { kind: "whileDo", condition: condition.node, body } };
}

function nodesOf<P extends Params>(params: P, given: Given<P>): Node[] {
  return Object.keys(params).map((name) => given[name]!.node);
}

/** A call without a result. */
export function call<P extends Params>(target: Callable<P, null>, given: Given<P>): Statement {
  return { node: { kind: "call", target, operands: nodesOf(target.params, given) } };
}

/** A call with a result. */
export function callFor<P extends Params, R extends ValueType>(target: Callable<P, R>, given: Given<P>): Expr<R> {
  return { type: target.result, node: { kind: "call", target, operands: nodesOf(target.params, given) } };
}

/** A call, without a result, of the function at an index of the table. */
export function callIndirect<P extends Params>(
  type: FunctionType<P, null>,
  index: Expr<"i32">,
  given: Given<P>,
): Statement {
  return { node: { kind: "callIndirect", type, operands: [...nodesOf(type.params, given), index.node] } };
}

/** A function of a module. */
export interface FunctionCode<P extends Params = Params, R extends ValueType | null = ValueType | null>
  extends Callable<P, R> {
  /** Locals of the function, parameters first. */
  readonly locals: readonly Local<ValueType>[];
  /** Statements and result of the function. */
  readonly body: Body;
  /** Value that the function returns, when it has a result. */
  readonly returned: Expr<ValueType> | null;
}
