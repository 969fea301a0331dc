/**
 * Where only the last row of a value is read, its makers work on that row alone, as far as they work row by row: of the
 * last block of a decoder, everything after the attention.
 */
import type { OperatorRegistry } from "../../ops/operator-registry.ts";
import { argumentIndex } from "../../ops/schema.ts";
import { GraphBuilder } from "../capture.ts";
import { type Graph, type GraphNode, type GraphValue, isGraphValue, renewArguments } from "../graph.ts";
import type { RewriteContext } from "./rewrite.ts";
import { Uses } from "./uses.ts";

/** Places of the arguments that a call works on row by row. */
function rowArguments({ operator }: GraphNode, registry: OperatorRegistry): number[] {
  const found = registry.find(operator);
  return (found?.rowwise ?? []).map((name) => argumentIndex(found!.schema, name));
}

/** Whether row t of a result [1, T, n] depends on row t of arguments of as many rows. */
function isRowwise(node: GraphNode, registry: OperatorRegistry): boolean {
  const places = rowArguments(node, registry);
  const { shape } = node.out.spec;
  const hasRows = (arg: GraphNode["args"][number]) =>
    isGraphValue(arg) && arg.spec.shape.length === 3 && arg.spec.shape[1] === shape[1];
  return shape.length === 3 && shape[0] === 1 && places.length > 0 && places.every((i) => hasRows(node.args[i]!));
}

function readsByRow(reader: GraphNode, value: GraphValue, registry: OperatorRegistry): boolean {
  const places = rowArguments(reader, registry);
  return reader.args.every((arg, i) => arg !== value || places.includes(i));
}

/** x[:, -1] of x [1, T, n]. */
function isLastRow({ operator, args }: GraphNode): boolean {
  const [x, dim, index] = args;
  return (
    operator === "aten::select_copy.int_out" && dim === 1 && index === -1 && (x as GraphValue).spec.shape.length === 3
  );
}

/** The values of which only the last row is read. */
function lastOnly(graph: Graph, registry: OperatorRegistry): Set<GraphValue> {
  const uses = new Uses(graph);
  const found = new Set<GraphValue>();
  for (const node of graph.nodes.toReversed()) {
    const { out } = node;
    const readsOne = (reader: GraphNode) =>
      isLastRow(reader) || (found.has(reader.out) && readsByRow(reader, out, registry));
    const readers = uses.readers(out);
    if (isRowwise(node, registry) && readers.length > 0 && !uses.isOutput(out) && readers.every(readsOne))
      found.add(out);
  }
  return found;
}

export function narrowToLastRow(graph: Graph, { registry, cpu }: RewriteContext): Graph {
  const narrow = lastOnly(graph, registry);
  const builder = new GraphBuilder(registry, cpu);
  /** The last rows of values. */
  const rows = new Map<GraphValue, GraphValue>();
  const replaced = new Map<GraphValue, GraphValue>();
  const current = (value: GraphValue) => replaced.get(value) ?? value;
  const rowOf = (value: GraphValue) => {
    if (!rows.has(value)) rows.set(value, builder.call("aten::select_copy.int_out", current(value), 1, -1));
    return rows.get(value)!;
  };
  for (const node of graph.nodes) {
    const [x] = node.args;
    if (narrow.has(node.out)) {
      const places = rowArguments(node, registry);
      const args = node.args.map((arg, i) => (places.includes(i) && isGraphValue(arg) ? rowOf(arg) : arg));
      rows.set(node.out, builder.call(node.operator, ...args));
    } else if (isLastRow(node) && narrow.has(x as GraphValue)) replaced.set(node.out, rowOf(x as GraphValue));
    else builder.nodes.push({ ...node, args: renewArguments(node, current) });
  }
  return { ...graph, nodes: builder.nodes, outputs: graph.outputs.map(current) };
}
