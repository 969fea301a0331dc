/**
 * Pass: where only some rows (tokens) of a value are read, its makers compute only those rows, as far as they work token by
 * token: in the last block of a decoder, everything after attention.
 */
import type { OperatorRegistry } from "../../ops/operator-registry.ts";
import { argumentIndex } from "../../ops/schema.ts";
import { GraphBuilder } from "../capture.ts";
import { type Graph, type GraphNode, type GraphValue, isGraphValue, renewArguments } from "../graph.ts";
import type { RewriteContext } from "./rewrite.ts";
import { routedCalls } from "./routed-rows.ts";
import { Uses } from "./uses.ts";

/** Indices of the arguments that a call works on token by token; calls along a dimension must work along the last. */
function rowArguments({ operator, args }: GraphNode, registry: OperatorRegistry): number[] {
  const found = registry.find(operator);
  if (
    !found ||
    (found.schema.args.some(({ name }) => name === "dim") && args[argumentIndex(found.schema, "dim")] !== -1)
  )
    return [];
  return found.rowwise.map((name) => argumentIndex(found.schema, name));
}

/** Indices of those arguments where row t of the result [1, T, n] depends on row t of each; empty for other calls. */
function rowwiseArguments(node: GraphNode, registry: OperatorRegistry): readonly number[] {
  const places = rowArguments(node, registry);
  const { shape } = node.out.spec;
  const hasRows = (arg: GraphNode["args"][number]) =>
    isGraphValue(arg) && arg.spec.shape.length === 3 && arg.spec.shape[1] === shape[1];
  return shape.length === 3 && shape[0] === 1 && places.every((i) => hasRows(node.args[i]!)) ? places : [];
}

/** Which rows of x [1, T, n] a call selects: the last, or those at indices; null for other calls. */
function wantedRows({ operator, args }: GraphNode): "last" | GraphValue | null {
  const [x, dim, index] = args;
  if (operator === "lowbit::select_rows.out") return dim as GraphValue;
  const isLast = operator === "aten::select_copy.int_out" && dim === 1 && index === -1;
  return isLast && (x as GraphValue).spec.shape.length === 3 ? "last" : null;
}

/** A call of which only some rows are wanted, and the indices of its arguments that can be reduced to these rows. */
interface PartlyRead {
  readonly wanted: "last" | GraphValue;
  readonly places: readonly number[];
}

/** The calls of whose results all readers select the same rows. */
function partlyRead(graph: Graph, registry: OperatorRegistry): Map<GraphNode, PartlyRead> {
  const uses = new Uses(graph);
  const found = new Map<GraphNode, PartlyRead>();
  const rowwise = (node: GraphNode) => rowwiseArguments(node, registry);
  for (const node of graph.nodes.toReversed()) {
    const { out } = node;
    if (found.has(node)) continue;
    const rowsRead = uses.readers(out).map((reader) => {
      if (reader.args[0] === out && reader.args[1] !== out && wantedRows(reader)) return wantedRows(reader);
      const known = found.get(reader);
      return reader.args.every((arg, i) => arg !== out || known?.places.includes(i)) ? known?.wanted : undefined;
    });
    const [wanted] = rowsRead;
    if (!wanted || uses.isOutput(out) || rowsRead.some((rows) => rows !== wanted)) continue;
    const places = rowwise(node);
    if (places.length > 0) found.set(node, { wanted, places });
    // The last row is selected without its dimension, which routers need.
    else if (wanted !== "last")
      for (const [call, places] of routedCalls(node, uses, registry, rowwise) ?? [])
        found.set(call, { wanted, places });
  }
  return found;
}

export function narrowToWantedRows(graph: Graph, { registry, cpu }: RewriteContext): Graph {
  const narrow = partlyRead(graph, registry);
  const builder = new GraphBuilder(registry, cpu);
  /** The selected rows of values, for each selection. */
  const rows = new Map<"last" | GraphValue, Map<GraphValue, GraphValue>>();
  const replaced = new Map<GraphValue, GraphValue>();
  const current = (value: GraphValue) => replaced.get(value) ?? value;
  const knownRows = (wanted: "last" | GraphValue) => {
    if (!rows.has(wanted)) rows.set(wanted, new Map());
    return rows.get(wanted)!;
  };
  const rowsOf = (value: GraphValue, wanted: "last" | GraphValue) => {
    const known = knownRows(wanted);
    if (!known.has(value))
      known.set(
        value,
        wanted === "last"
          ? builder.call("aten::select_copy.int_out", current(value), 1, -1)
          : builder.call("lowbit::select_rows.out", current(value), wanted),
      );
    return known.get(value)!;
  };
  for (const node of graph.nodes) {
    const x = node.args[0] as GraphValue;
    const partly = narrow.get(node);
    const taken = wantedRows(node);
    if (partly) {
      const { wanted, places } = partly;
      const args = node.args.map((arg, i) => (places.includes(i) && isGraphValue(arg) ? rowsOf(arg, wanted) : arg));
      knownRows(wanted).set(node.out, builder.call(node.operator, ...args));
    } else if (taken && rows.get(taken)?.has(x)) replaced.set(node.out, rowsOf(x, taken));
    else builder.nodes.push({ ...node, args: renewArguments(node, current) });
  }
  return { ...graph, nodes: builder.nodes, outputs: graph.outputs.map(current) };
}
