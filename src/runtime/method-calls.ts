/** The kernel calls of a method as far as they are the same for inputs of any sizes. */
import type { DType } from "../dtype.ts";
import { ShapeError } from "../errors.ts";
import type { Operator } from "../ops/operator.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { type Default, qualifiedName, type Schema } from "../ops/schema.ts";
import type { Method } from "../program/program.ts";
import type { Tensor } from "../tensor.ts";

/** A call with its arguments as indices of the method's values. */
export interface PlannedCall {
  /** Operator that is called. */
  readonly operator: Operator;
  /** Indices of the values that are its arguments. */
  readonly given: readonly number[];
  /** Defaults of arguments behind those, which operators have gained since the program was written. */
  readonly rest: readonly Default[];
  /** Index of the value that is its result. */
  readonly outIndex: number;
  /** Type and sizes that the program planned for the out tensor; undefined where it planned none. */
  readonly outType: DType | undefined;
}

export class MethodCalls {
  /** Method that the calls are of. */
  readonly method: Method;
  /** Calls in order. */
  readonly calls: readonly PlannedCall[];
  /** Views of constants by value index, as far as they were needed. */
  readonly constants = new Map<number, Tensor>();

  /** ShapeError for a call that does not fit its operator. */
  constructor(method: Method, registry: OperatorRegistry) {
    this.method = method;
    const operators = method.operators.map((name) => registry.find(qualifiedName(name)));
    this.calls = method.instructions.flatMap((step) => {
      if (step.kind !== "kernel") return [];
      const operator = operators[step.operator] ?? registry.get(qualifiedName(method.operators[step.operator]!));
      const { given, rest, outIndex } = splitArguments(method, operator, step.args);
      const planned = method.values[outIndex]!;
      return [{ operator, given, rest, outIndex, outType: planned.kind === "tensor" ? planned.dtype : undefined }];
    });
  }
}

/** Arguments of a call by what they are for. Files list the out value twice: as argument and as what is returned. */
function splitArguments(
  method: Method,
  { name, schema }: Operator,
  indices: readonly number[],
): Pick<PlannedCall, "given" | "rest" | "outIndex"> {
  const count = schema.args.length;
  const last = indices.at(-1);
  const gained = schema.args.slice(Math.max(indices.length - 2, 0), count - 1);
  const defaults = gained.flatMap((arg) => (arg.default === undefined ? [] : [arg.default]));
  if (last !== undefined && gained.length > 0 && indices.at(-2) === last && defaults.length === gained.length) {
    const given = indices.slice(0, -2);
    checkWritten(method, name, schema, [...given, ...gained.map(() => last), last]);
    return { given, rest: defaults, outIndex: last };
  }
  const outIndex = indices[count - 1];
  if (outIndex === undefined || indices.length > count + 1 || indices.at(-1) !== outIndex)
    throw new ShapeError(
      `${name}: expected ${count} arguments and the last again but method ${method.name} gives values ${indices.join(", ")}`,
    );
  checkWritten(method, name, schema, indices);
  return { given: indices.slice(0, count - 1), rest: [], outIndex };
}

/** What a kernel writes must be memory of the program, never a constant, which may be mapped from the file. */
export function checkWritten(method: Method, name: string, schema: Schema, indices: readonly number[]): void {
  for (const [i, arg] of schema.args.entries())
    for (const value of arg.mutable ? tensorsAt(method, indices[i]!) : []) {
      const { kind, constant } = { constant: null, ...method.values[value]! };
      if (kind === "tensor" && constant !== null)
        throw new ShapeError(`${name}, argument ${arg.name}: is written to but method ${method.name} gives a constant`);
    }
}

/** The value itself, or those of a list of tensors. */
export function tensorsAt(method: Method, index: number): readonly number[] {
  const value = method.values[index]!;
  return value.kind === "tensorList" ? value.items : [index];
}
