/** A captured method: operator calls in order over values whose specs are known at the smallest and the largest input. */
import { checkFields } from "../arguments.ts";
import type { SequenceUse } from "../kernels/sequence-table.ts";
import type { LazyConstant } from "../ops/builder.ts";
import { type Argument, Arguments, type TensorSpec } from "../ops/call-arguments.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";

export interface GraphValue {
  /**
   * Kind of the value. `sequences` is the handle of the sequence table. `number` is the result of an operator that gives a
   * number; its spec is that of a scalar.
   */
  readonly kind: "input" | "constant" | "state" | "sequences" | "computed" | "number";
  /** Name of an input, key of a constant, name of a state. */
  readonly name: string | null;
  /** Dtype and sizes for the largest inputs, for which memory is planned. */
  readonly spec: TensorSpec;
  /** Sizes for the smallest inputs; where they differ from `spec`, the value is dynamic. */
  readonly smallest: readonly number[];
  /** Data of a constant; null for other values. */
  readonly constant: LazyConstant | null;
}

export interface GraphNode {
  /** Full name of the operator. */
  readonly operator: string;
  /** Arguments in schema order, without the out argument. */
  readonly args: readonly Argument<GraphValue>[];
  /** Result of the call. */
  readonly out: GraphValue;
}

/** A captured method: its inputs, its outputs, and its operator calls in order. */
export interface Graph {
  /** Name of the method. */
  readonly name: string;
  /** Inputs of the method. */
  readonly inputs: readonly GraphValue[];
  /** Outputs of the method. */
  readonly outputs: readonly GraphValue[];
  /** Calls in order. */
  readonly nodes: readonly GraphNode[];
}

export function isGraphValue(argument: Argument<GraphValue>): argument is GraphValue {
  return typeof argument === "object" && argument !== null && "smallest" in argument;
}

/** The graph values among a node's arguments. */
export function argumentValues(node: GraphNode): GraphValue[] {
  return node.args
    .flatMap((arg) => (Array.isArray(arg) ? (arg as Argument<GraphValue>[]) : [arg]))
    .filter(isGraphValue);
}

/** What the calls of a graph keep of each sequence (KV cache or recurrent state). */
export function graphSequenceUses({ nodes }: Graph, registry: OperatorRegistry): SequenceUse[] {
  return nodes.flatMap((node) => {
    const operator = registry.find(node.operator);
    if (!operator?.keepsSequences) return [];
    const args = node.args.map((arg) => (isGraphValue(arg) ? arg.spec : arg) as Argument<TensorSpec>);
    return operator.sequenceUse(new Arguments<TensorSpec>(operator.schema, args)) ?? [];
  });
}

/** A node's arguments with its values replaced by `renew`, also within lists. */
export function renewArguments<R>(node: GraphNode, renew: (value: GraphValue) => R): Argument<R>[] {
  const renewed = (arg: Argument<GraphValue>): Argument<R> => {
    if (Array.isArray(arg)) return arg.map(renewed) as Argument<R>;
    return isGraphValue(arg) ? renew(arg) : (arg as Argument<R>);
  };
  return node.args.map(renewed);
}

export function isDynamic({ spec, smallest }: GraphValue): boolean {
  return spec.shape.some((size, i) => size !== smallest[i]);
}

/**
 * The graph as text, a node a line, with unnamed values numbered in order: for people and for tests of passes. `places`:
 * values that are written over others.
 */
export function formatGraph(graph: Graph, places: ReadonlyMap<GraphValue, GraphValue> = new Map()): string {
  checkFields("graph", graph, ["inputs", "nodes", "outputs"], "one of capture()");
  const names = new Map<GraphValue, string>();
  const nameOf = (value: GraphValue) => {
    if (value.name !== null) return value.name;
    const name = names.get(value) ?? `%${names.size}`;
    names.set(value, name);
    return name;
  };
  const show = (argument: Argument<GraphValue>): string => {
    if (Array.isArray(argument)) return `[${argument.map(show).join(", ")}]`;
    return isGraphValue(argument) ? nameOf(argument) : JSON.stringify(argument);
  };
  const typed = (value: GraphValue) => {
    const sizes = value.spec.shape.map((size, i) => (size === value.smallest[i] ? size : `<=${size}`));
    return `${nameOf(value)}: ${value.spec.dtype}[${sizes.join(", ")}]`;
  };
  const placed = (value: GraphValue) => {
    const place = places.get(value);
    return place ? ` in ${nameOf(place)}` : "";
  };
  const lines = graph.nodes.map(
    (node) => `  ${typed(node.out)}${placed(node.out)} = ${node.operator}(${node.args.map(show).join(", ")})`,
  );
  const head = `${graph.name}(${graph.inputs.map(typed).join(", ")})`;
  return [head, ...lines, `  return ${graph.outputs.map(nameOf).join(", ")}`].join("\n");
}
