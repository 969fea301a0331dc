/** The kernel calls of a method, as far as they do not depend on the sizes of inputs. */
import type { DType } from "../../dtype.ts";
import { ShapeError } from "../../errors.ts";
import type { Operator } from "../../ops/operator.ts";
import type { OperatorRegistry } from "../../ops/operator-registry.ts";
import { type Default, qualifiedName, type Schema } from "../../ops/schema.ts";
import type { Method } from "../../program/program.ts";
import type { Tensor } from "../../tensor.ts";

/** A call whose arguments are indices of the method's values. */
export interface PlannedCall {
  /** The operator that is called. */
  readonly operator: Operator;
  /** Indices of the values that are its inputs. */
  readonly given: readonly number[];
  /** Defaults of further inputs, which the operator has gained since the program was written. */
  readonly rest: readonly Default[];
  /** Index of the value that the result is written to. */
  readonly outIndex: number;
  /** Planned type of the out tensor; undefined where the program planned none. */
  readonly outType: DType | undefined;
}

export class MethodCalls {
  /** The method of the calls. */
  readonly method: Method;
  /** The calls in order. */
  readonly calls: readonly PlannedCall[];
  /** Views of constants by value index, made when first needed. */
  readonly constants = new Map<number, Tensor>();

  /** ShapeError for a call that does not fit its operator. */
  constructor(method: Method, registry: OperatorRegistry) {
    this.method = method;
    const operators = method.operators.map((name) => registry.find(qualifiedName(name)));
    this.calls = method.instructions.flatMap((step) => {
      if (step.kind !== "kernel") return [];
      const operator = operators[step.operator] ?? registry.get(qualifiedName(method.operators[step.operator]!));
      const { name, schema } = operator;
      const { given, rest, outs } = splitArguments(method, name, schema, step.args);
      const outIndex = outs[0]!;
      const planned = method.values[outIndex]!;
      return [{ operator, given, rest, outIndex, outType: planned.kind === "tensor" ? planned.dtype : undefined }];
    });
  }
}

/** The values of a call, split by what they are for. */
export interface SplitCall {
  /** Indices of the values that are its inputs. */
  readonly given: readonly number[];
  /** Defaults of further inputs, which the operator has gained since the program was written. */
  readonly rest: readonly Default[];
  /** Indices of the values that its results are written to. */
  readonly outs: readonly number[];
  /** Index of the returned value, which files list after the arguments; undefined where there is none. */
  readonly returned: number | undefined;
}

/**
 * Splits the values of a call, of which files list what is returned once more. ShapeError for too few or too many values,
 * and for a call that writes to a constant.
 */
export function splitArguments(method: Method, name: string, schema: Schema, indices: readonly number[]): SplitCall {
  const { args, returns } = schema;
  const outCount = args.filter(({ isOut }) => isOut).length;
  const inputCount = args.length - outCount;
  const split = (given: number, rest: readonly Default[]): SplitCall => {
    const outs = indices.slice(given, given + outCount);
    checkWritten(method, name, schema, (place) => (place < given ? indices[place] : outs[place - inputCount]));
    return { given: indices.slice(0, given), rest, outs, returned: indices[given + outCount] };
  };
  const short = indices.length - outCount - 1;
  const gained = args.slice(Math.max(short, 0), inputCount);
  const defaults = gained.flatMap((arg) => (arg.default === undefined ? [] : [arg.default]));
  const returnsOut = short >= 0 && indices.slice(short, -1).includes(indices.at(-1)!);
  if (gained.length > 0 && defaults.length === gained.length && returnsOut) return split(short, defaults);
  // In files, the returned value of a list is a value of its own.
  const returnsLast = returns === "tensor" && args.at(-1)!.type !== "Tensor[]";
  const isOther = returnsLast && indices.at(-1) !== indices[args.length - 1];
  if (indices.length < args.length || indices.length > args.length + 1 || isOther)
    throw new ShapeError(
      `${name}: expected ${args.length} arguments${returnsLast ? " and the last again" : ""} but method ${method.name} gives values ${indices.join(", ")}`,
    );
  return split(inputCount, []);
}

/** What a kernel writes must be memory of the program, never a constant, which may be mapped from the file. */
function checkWritten(method: Method, name: string, schema: Schema, at: (place: number) => number | undefined): void {
  for (const [i, arg] of schema.args.entries()) {
    const index = arg.mutable ? at(i) : undefined;
    for (const value of index === undefined ? [] : tensorsAt(method, index)) {
      const { kind, constant } = { constant: null, ...method.values[value]! };
      if (kind === "tensor" && constant !== null)
        throw new ShapeError(`${name}, argument ${arg.name}: is written to but method ${method.name} gives a constant`);
    }
  }
}

/** The value itself, or the items of a list of tensors. */
export function tensorsAt(method: Method, index: number): readonly number[] {
  const value = method.values[index]!;
  return value.kind === "tensorList" ? value.items : [index];
}
