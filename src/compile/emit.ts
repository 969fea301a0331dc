/** Emits a graph and its memory plan as a method of a program, in ExecuTorch's conventions. */

import { byteSize, type TypedArray } from "../dtype.ts";
import { checkSameSpec, type LazyConstant, sequencesSpec } from "../ops/builder.ts";
import type { Argument } from "../ops/call-arguments.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import type { ArgumentType } from "../ops/schema.ts";
import {
  type Allocation,
  type Constant,
  type Instruction,
  type Method,
  type OperatorName,
  SCRATCH_MEMORY,
  SEQUENCE_MEMORY,
  STATE_MEMORY,
  type TensorValue,
  type Value,
} from "../program/program.ts";
import { bytesOf, elementCount } from "../tensor.ts";
import { argumentValues, type Graph, type GraphValue, isDynamic, isGraphValue } from "./graph.ts";
import type { Plan } from "./memory-plan.ts";

/** Constants start at cache lines, so that packed panels can be used where they are mapped. */
const CONSTANT_ALIGNMENT = 64;

/** Constants of a program, which its methods share: one buffer for each key. */
export class ConstantPool {
  readonly constants: Constant[] = [];
  readonly #known = new Map<string, { readonly constant: LazyConstant; readonly index: number }>();

  indexOf(constant: LazyConstant): number {
    const { key, dtype, shape } = constant;
    const known = this.#known.get(key);
    if (known) {
      checkSameSpec(`constant ${key}`, known.constant, constant);
      return known.index;
    }
    const byteLength = elementCount(shape) * byteSize(dtype);
    this.constants.push({
      alignment: CONSTANT_ALIGNMENT,
      data: {
        byteLength,
        read: async () => bytesOf(await constant.read()),
        ...(constant.parts && { parts: () => bytesOfParts(constant.parts!()) }),
        ...(constant.headed && { headed: () => constant.headed!() }),
      },
    });
    const index = this.constants.length - 1;
    this.#known.set(key, { constant, index });
    return index;
  }
}

async function* bytesOfParts(parts: AsyncIterable<TypedArray>): AsyncGenerator<Uint8Array> {
  for await (const part of parts) yield bytesOf(part);
}

export interface EmitContext {
  readonly registry: OperatorRegistry;
  readonly constants: ConstantPool;
  readonly scratch: Plan<GraphValue>;
  /** Values that are written over another value, in its memory. */
  readonly places: ReadonlyMap<GraphValue, GraphValue>;
  readonly state: Plan<string>;
}

/** A missing tensor of a list. */
const NO_ITEM = -1;

/** Placeholder of a number that is computed at run time. */
const UNKNOWN: Value = { kind: "int", value: 0 };

/** Values of a method, each listed once: literals by value, tensors by identity. */
class ValueTable {
  readonly values: Value[] = [];
  readonly #context: EmitContext;
  readonly #tensors = new Map<GraphValue, number>();
  readonly #literals = new Map<string, number>();

  constructor(context: EmitContext) {
    this.#context = context;
  }

  tensor(value: GraphValue): number {
    const known = this.#tensors.get(value);
    if (known !== undefined) return known;
    const index = this.values.push(value.kind === "number" ? UNKNOWN : this.#tensorValue(value)) - 1;
    this.#tensors.set(value, index);
    return index;
  }

  literal(argument: Exclude<Argument<GraphValue>, GraphValue>, type: ArgumentType): number {
    const value = this.#literalValue(argument, type);
    const key = literalKey(value);
    const known = this.#literals.get(key);
    if (known !== undefined) return known;
    const index = this.values.push(value) - 1;
    this.#literals.set(key, index);
    return index;
  }

  #literalValue(argument: Exclude<Argument<GraphValue>, GraphValue>, type: ArgumentType): Value {
    if (argument === null) return { kind: "null" };
    if (typeof argument === "boolean") return { kind: "bool", value: argument };
    if (typeof argument === "string") return { kind: "string", value: argument };
    if (typeof argument === "number")
      return type.startsWith("float") || !Number.isInteger(argument) || Object.is(argument, -0)
        ? { kind: "double", value: argument }
        : { kind: "int", value: argument };
    const items = argument.map((item) => {
      if (item === null) return NO_ITEM;
      return isGraphValue(item) ? this.tensor(item) : this.literal(item, "int");
    });
    if (type === "Tensor?[]") return { kind: "optionalTensorList", items };
    return { kind: type === "Tensor[]" ? "tensorList" : "intList", items };
  }

  #tensorValue(value: GraphValue): TensorValue {
    const { spec, kind, name, constant } = value;
    return {
      kind: "tensor",
      dtype: spec.dtype,
      sizes: spec.shape,
      dimOrder: spec.shape.map((_, i) => i),
      dynamism: isDynamic(value) ? "bound" : "static",
      constant: constant ? this.#context.constants.indexOf(constant) : null,
      allocation: this.#allocation(value),
      name: kind === "constant" || kind === "state" ? name : null,
    };
  }

  #allocation(value: GraphValue): Allocation | null {
    if (value.kind === "constant") return null;
    if (value.kind === "state")
      return { memoryId: STATE_MEMORY, offset: this.#context.state.offsets.get(value.name!)! };
    if (value.kind === "sequences") return { memoryId: SEQUENCE_MEMORY, offset: 0 };
    const { scratch, places } = this.#context;
    return { memoryId: SCRATCH_MEMORY, offset: scratch.offsets.get(places.get(value) ?? value)! };
  }
}

/** A key of a literal, which also distinguishes numbers that JSON does not, such as -0. */
function literalKey(value: Value): string {
  const showNumber = (_: string, item: unknown) =>
    typeof item === "number" ? (Object.is(item, -0) ? "-0" : String(item)) : item;
  return JSON.stringify(value, showNumber);
}

export function emitMethod(graph: Graph, context: EmitContext): Method {
  const table = new ValueTable(context);
  const inputs = graph.inputs.map((value) => table.tensor(value));
  const operators: OperatorName[] = [];
  const operatorIndices = new Map<string, number>();
  const instructions = graph.nodes.map((node): Instruction => {
    const schema = context.registry.schema(node.operator);
    let operator = operatorIndices.get(node.operator);
    if (operator === undefined) {
      operator = operators.push({ name: schema.name, overload: schema.overload }) - 1;
      operatorIndices.set(node.operator, operator);
    }
    const args = node.args.map((arg, i) =>
      isGraphValue(arg) ? table.tensor(arg) : table.literal(arg, schema.args[i]!.type),
    );
    const out = table.tensor(node.out);
    // An out variant lists its out argument twice: as argument and as returned value. A number is only returned.
    return { kind: "kernel", operator, args: schema.returns === "number" ? [...args, out] : [...args, out, out] };
  });
  return {
    name: graph.name,
    values: table.values,
    inputs,
    outputs: graph.outputs.map((value) => table.tensor(value)),
    operators,
    instructions,
    delegates: [],
    memorySizes: [0, context.scratch.totalBytes, context.state.totalBytes, ...sequenceBytes(graph)],
  };
}

/** Bytes of memory 3, which holds the handle of the sequence table, in methods that have one. */
function sequenceBytes({ nodes }: Graph): number[] {
  const hasSequences = nodes.flatMap(argumentValues).some(({ kind }) => kind === "sequences");
  return hasSequences ? [elementCount(sequencesSpec.shape) * byteSize(sequencesSpec.dtype)] : [];
}

/** A method without inputs that returns constants: ExecuTorch's way to carry metadata. */
export function metadataMethod(name: string, value: number | boolean | readonly number[]): Method {
  const literals = typeof value === "object" ? value : [value];
  const values = literals.map((item): Value => {
    if (typeof item === "boolean") return { kind: "bool", value: item };
    return Number.isInteger(item) ? { kind: "int", value: item } : { kind: "double", value: item };
  });
  return {
    name,
    values,
    inputs: [],
    outputs: values.map((_, i) => i),
    operators: [],
    instructions: [],
    delegates: [],
    memorySizes: [0],
  };
}
