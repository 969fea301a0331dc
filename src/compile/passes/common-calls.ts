/**
 * Pass: merges equal calls, of the same operator on the same values, that neither read nor write state. It must run before
 * passes that let calls write over values.
 */
import type { Argument } from "../../ops/call-arguments.ts";
import type { OperatorRegistry } from "../../ops/operator-registry.ts";
import { argumentValues, type Graph, type GraphNode, type GraphValue, isGraphValue, renewArguments } from "../graph.ts";

export function mergeCommonCalls(graph: Graph, registry: OperatorRegistry): Graph {
  const ids = new Map<GraphValue, number>();
  const idOf = (value: GraphValue) => {
    if (!ids.has(value)) ids.set(value, ids.size);
    return ids.get(value)!;
  };
  const replaced = new Map<GraphValue, GraphValue>();
  const current = (value: GraphValue) => replaced.get(value) ?? value;
  const keyOf = (arg: Argument<GraphValue>): string => {
    if (Array.isArray(arg)) return `[${arg.map(keyOf).join()}]`;
    return isGraphValue(arg) ? `%${idOf(arg)}` : JSON.stringify(arg);
  };
  const known = new Map<string, GraphValue>();
  const nodes: GraphNode[] = [];
  for (const node of graph.nodes) {
    const renewed = { ...node, args: renewArguments(node, current) };
    const key = `${node.operator}(${renewed.args.map(keyOf).join()})`;
    const earlier = isPure(renewed, registry) ? known.get(key) : undefined;
    if (earlier) {
      replaced.set(node.out, earlier);
      continue;
    }
    known.set(key, node.out);
    nodes.push(renewed);
  }
  return { ...graph, nodes, outputs: graph.outputs.map(current) };
}

function isPure(node: GraphNode, registry: OperatorRegistry): boolean {
  const writes = registry.schema(node.operator).args.some((arg) => arg.mutable && !arg.isOut);
  return !writes && argumentValues(node).every(({ kind }) => kind !== "state");
}
