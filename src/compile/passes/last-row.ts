/**
 * Where only the last row of a value is read, its makers work on that row alone, as far as they work row by row: of the
 * last block of a decoder, everything after the attention.
 */
import { GraphBuilder } from "../capture.ts";
import { type Graph, type GraphNode, type GraphValue, isGraphValue, renewArguments } from "../graph.ts";
import type { RewriteContext } from "./rewrite.ts";
import { Uses } from "./uses.ts";

/** Calls whose result's row i depends on row i of their tensor arguments alone; how many of these come first. */
const rowwise: readonly [RegExp, number][] = [
  [/^torchao::_linear_8bit_act_\dbit_weight\.out$|^lowbit::linear_weight_only\.out$|^aten::linear\.out$/, 1],
  [/^lowbit::rms_norm\.out$|^lowbit::softcap\.out$|^aten::mul\.Scalar_out$/, 1],
  [/^aten::add\.out$|^lowbit::\w*glu\.out$/, 2],
];

function rowArguments({ operator }: GraphNode): number {
  return rowwise.find(([names]) => names.test(operator))?.[1] ?? 0;
}

/** x[:, -1] of x [1, T, n]. */
function isLastRow({ operator, args }: GraphNode): boolean {
  const [x, dim, index] = args;
  return (
    operator === "aten::select_copy.int_out" && dim === 1 && index === -1 && (x as GraphValue).spec.shape.length === 3
  );
}

/** The values of which only the last row is read. */
function lastOnly(graph: Graph): Set<GraphValue> {
  const uses = new Uses(graph);
  const found = new Set<GraphValue>();
  for (const node of graph.nodes.toReversed()) {
    const { out } = node;
    const readsOne = (reader: GraphNode) =>
      isLastRow(reader) || (found.has(reader.out) && reader.args.indexOf(out) < rowArguments(reader));
    const readers = uses.readers(out);
    const isMade = rowArguments(node) > 0 && out.spec.shape.length === 3 && out.spec.shape[0] === 1;
    if (isMade && readers.length > 0 && !uses.isOutput(out) && readers.every(readsOne)) found.add(out);
  }
  return found;
}

export function narrowToLastRow(graph: Graph, { registry, cpu }: RewriteContext): Graph {
  const narrow = lastOnly(graph);
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
      const count = rowArguments(node);
      const args = node.args.map((arg, i) => (i < count && isGraphValue(arg) ? rowOf(arg) : arg));
      rows.set(node.out, builder.call(node.operator, ...args));
    } else if (isLastRow(node) && narrow.has(x as GraphValue)) replaced.set(node.out, rowOf(x as GraphValue));
    else builder.nodes.push({ ...node, args: renewArguments(node, current) });
  }
  return { ...graph, nodes: builder.nodes, outputs: graph.outputs.map(current) };
}
