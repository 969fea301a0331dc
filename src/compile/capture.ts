/** Records the operator calls of a function as a graph. Nothing is computed; constants stay lazy. */
import { checkFields, checkString, unexpected } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";
import { type Builder, checkSameSpec, type LazyConstant, sequencesSpec } from "../ops/builder.ts";
import { type Argument, Arguments, checkSpec, completeArguments, type TensorSpec } from "../ops/call-arguments.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { type Graph, type GraphNode, type GraphValue, isGraphValue } from "./graph.ts";

/** An input of a method: its name, its element type and largest sizes, and its smallest sizes where they vary. */
export interface InputSpec {
  /** Name of the input. */
  readonly name: string;
  /** Type and largest sizes of the input. */
  readonly spec: TensorSpec;
  /** Smallest sizes at run time; equal to the spec's for a static input. */
  readonly smallest: readonly number[];
}

/** A method to capture: its inputs, and the function that makes its outputs by operator calls. */
export interface MethodSource {
  /** Name of the method in the program. */
  readonly name: string;
  /** Inputs of the method. */
  readonly inputs: readonly InputSpec[];
  /** Adds the method's calls to the builder and gives its outputs. */
  build<T>(builder: Builder<T>, inputs: readonly T[]): readonly T[];
}

/** Records calls as graph nodes; passes use it to make new calls. */
export class GraphBuilder implements Builder<GraphValue> {
  readonly cpu: Cpu;
  readonly nodes: GraphNode[] = [];
  readonly #registry: OperatorRegistry;
  readonly #constants = new Map<string, GraphValue>();
  readonly #states = new Map<string, GraphValue>();
  #sequences: GraphValue | null = null;

  constructor(registry: OperatorRegistry, cpu: Cpu) {
    this.#registry = registry;
    this.cpu = cpu;
  }

  call(name: string, ...given: Argument<GraphValue>[]): GraphValue {
    checkString("operator", name);
    const schema = this.#registry.schema(name);
    const args = completeArguments(schema, given);
    for (const [i, arg] of args.entries())
      for (const item of Array.isArray(arg) ? arg : [arg])
        if (typeof item === "object" && item !== null) checkValue(`${name}, argument ${schema.args[i]!.name}`, item);
    return this.#registry.number(name) ? this.#number(name, args) : this.#computed(name, args);
  }

  #number(operator: string, args: readonly Argument<GraphValue>[]): GraphValue {
    const spec: TensorSpec = { dtype: "i64", shape: [] };
    const out: GraphValue = { kind: "number", name: null, spec, smallest: [], constant: null };
    this.nodes.push({ operator, args, out });
    return out;
  }

  #computed(name: string, args: readonly Argument<GraphValue>[]): GraphValue {
    const operator = this.#registry.get(name);
    const shapeWith = (specOf: (value: GraphValue) => TensorSpec) =>
      operator.shape(
        new Arguments(
          operator.schema,
          args.map((arg) => withSpecs(arg, specOf)),
        ),
      );
    const spec = shapeWith((value) => value.spec);
    const { shape } = shapeWith((value) => ({ dtype: value.spec.dtype, shape: value.smallest }));
    const out: GraphValue = { kind: "computed", name: null, spec, smallest: shape, constant: null };
    this.nodes.push({ operator: operator.name, args, out });
    return out;
  }

  constant(constant: LazyConstant): GraphValue {
    const { key, dtype, shape } = constant;
    const known = this.#constants.get(key);
    if (known) {
      checkSameSpec(`constant ${key}`, known.spec, constant);
      return known;
    }
    const value: GraphValue = { kind: "constant", name: key, spec: { dtype, shape }, smallest: shape, constant };
    this.#constants.set(key, value);
    return value;
  }

  state(name: string, spec: TensorSpec): GraphValue {
    checkString("state", name);
    checkSpec(`state ${name}`, spec);
    const known = this.#states.get(name);
    if (known) {
      checkSameSpec(`state ${name}`, known.spec, spec);
      return known;
    }
    const value: GraphValue = { kind: "state", name, spec, smallest: spec.shape, constant: null };
    this.#states.set(name, value);
    return value;
  }

  sequences(): GraphValue {
    const { shape } = sequencesSpec;
    this.#sequences ??= { kind: "sequences", name: "sequences", spec: sequencesSpec, smallest: shape, constant: null };
    return this.#sequences;
  }

  spec(value: GraphValue): TensorSpec {
    checkValue("value", value);
    return value.spec;
  }
}

function checkValue(name: string, value: unknown): void {
  if (!isGraphValue(value as Argument<GraphValue>)) throw unexpected(name, "a value of the graph", value);
}

/** An argument for shape rules. Numbers that are computed at run time are 0, since no size depends on them. */
function withSpecs(argument: Argument<GraphValue>, specOf: (value: GraphValue) => TensorSpec): Argument<TensorSpec> {
  if (isGraphValue(argument)) return argument.kind === "number" ? 0 : specOf(argument);
  if (Array.isArray(argument)) return argument.map((item) => withSpecs(item, specOf)) as Argument<TensorSpec>;
  return argument as Argument<TensorSpec>;
}

function checkInput(method: string, { name, spec, smallest }: InputSpec): void {
  checkSpec(`method ${method}, input ${name}`, spec);
  const { shape } = spec;
  // Sizes that vary are at least 1 at run time.
  const fits =
    smallest.length === shape.length &&
    smallest.every((size, i) => size === shape[i] || (size >= 1 && size < shape[i]!));
  if (!fits)
    throw new InvalidArgumentError(
      `method ${method}, input ${name}: expected smallest sizes from 1 to those of [${shape}] but found [${smallest}]`,
    );
}

/**
 * Captures one method. InvalidArgumentError for invalid inputs or outputs. Shape errors are raised here, for both the
 * smallest and the largest inputs.
 */
export function capture(source: MethodSource, registry: OperatorRegistry, cpu: Cpu): Graph {
  checkFields("source", source, ["name", "inputs", "build"], "a name, inputs, and what builds the method");
  const builder = new GraphBuilder(registry, cpu);
  const inputs = source.inputs.map((input): GraphValue => {
    checkInput(source.name, input);
    const { name, spec, smallest } = input;
    return { kind: "input", name, spec, smallest, constant: null };
  });
  const outputs = source.build(builder, inputs);
  if (!Array.isArray(outputs) || !outputs.every((output) => output && isGraphValue(output)))
    throw new InvalidArgumentError(`method ${source.name}: expected a list of values of its builder as what it builds`);
  return { name: source.name, inputs, outputs, nodes: builder.nodes };
}
