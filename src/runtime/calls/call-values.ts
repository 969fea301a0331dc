/** Arguments of a method's calls, from its values. */
import { ShapeError, UnsupportedError } from "../../errors.ts";
import { type Argument, Arguments, type TensorSpec } from "../../ops/call-arguments.ts";
import { qualifiedName, type Schema } from "../../ops/schema.ts";
import type { Method, Value } from "../../program/program.ts";
import type { Tensor } from "../../tensor.ts";

/** A value that is neither a tensor nor a list. */
export type Literal = number | boolean | string | null;

/** The values of a method at the time of a call. */
export interface CurrentValues {
  tensor(index: number): Tensor;
  literal(index: number): Literal;
}

/** A literal as the file stores it, before a call or a move of the program changes it; null for a tensor or a list. */
export function literalOf(value: Value): Literal {
  return "value" in value ? value.value : null;
}

/** An argument of a call. ShapeError or UnsupportedError for a value that cannot be one. */
export function argumentOf(method: Method, index: number, current: CurrentValues): Argument<Tensor> {
  const value = method.values[index]!;
  switch (value.kind) {
    case "tensor":
      return current.tensor(index);
    case "intList":
      return value.items.map((item) => {
        const number = current.literal(item);
        if (typeof number !== "number") throw new ShapeError(`method ${method.name}: value ${item} is no int`);
        return number;
      });
    case "doubleList":
      return value.items;
    case "tensorList":
      return value.items.map((item) => current.tensor(item));
    case "optionalTensorList":
      return value.items.map((item) =>
        item === -1 || method.values[item]!.kind === "null" ? null : current.tensor(item),
      );
    case "boolList":
      throw new UnsupportedError(`method ${method.name}: arguments of kind ${value.kind} are not supported`);
    default:
      return current.literal(index);
  }
}

/** Arguments of a call as the file plans them: tensors with their largest sizes, literals as stored. */
export function plannedArguments(method: Method, values: readonly number[], schema: Schema): Arguments<TensorSpec> {
  const tensor = (index: number) => {
    const value = method.values[index]!;
    if (value.kind !== "tensor") throw new UnsupportedError(`method ${method.name}: value ${index} is no tensor`);
    return { dtype: value.dtype, shape: value.sizes } as Tensor;
  };
  const given = { tensor, literal: (index: number) => literalOf(method.values[index]!) };
  const args = values.slice(0, schema.args.length).map((index) => argumentOf(method, index, given));
  return new Arguments<TensorSpec>(schema, args);
}

/** Throws ShapeError if a call writes outside of these memories: constants may be mapped read-only from the file. */
export function checkWrites(args: Arguments<Tensor>, memories: readonly Uint8Array[]): void {
  for (const [name, { data }] of args.allTensors()) {
    if (data.byteLength === 0 || !args.schema.args.some((arg) => arg.name === name && arg.mutable)) continue;
    const isWithin = memories.some(
      (memory) =>
        memory.buffer === data.buffer &&
        memory.byteOffset <= data.byteOffset &&
        data.byteOffset + data.byteLength <= memory.byteOffset + memory.byteLength,
    );
    if (!isWithin)
      throw new ShapeError(
        `${qualifiedName(args.schema)}, argument ${name}: is written to but is a constant, or a view of one`,
      );
  }
}
