/** Pass: removes calls whose results nothing reads, except calls that write state. */
import type { OperatorRegistry } from "../../ops/operator-registry.ts";
import { argumentValues, type Graph, type GraphNode, type GraphValue, isGraphValue } from "../graph.ts";

export function removeDeadCode(graph: Graph, registry: OperatorRegistry): Graph {
  const live = new Set<GraphValue>(graph.outputs);
  const nodes: GraphNode[] = [];
  for (const node of graph.nodes.toReversed()) {
    if (!live.has(node.out) && !writesState(node, registry)) continue;
    for (const value of argumentValues(node)) live.add(value);
    nodes.push(node);
  }
  return { ...graph, nodes: nodes.reverse() };
}

function writesState(node: GraphNode, registry: OperatorRegistry): boolean {
  const schema = registry.schema(node.operator);
  return schema.args.some((arg, i) => arg.mutable && !arg.isOut && isGraphValue(node.args[i] ?? null));
}
