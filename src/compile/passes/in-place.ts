/** Pass: which results can be written over an argument that nothing reads afterwards. */

import type { OperatorRegistry } from "../../ops/operator-registry.ts";
import { argumentIndex } from "../../ops/schema.ts";
import { isSameShape } from "../../tensor.ts";
import type { Graph, GraphNode, GraphValue } from "../graph.ts";
import { Uses } from "./uses.ts";

/** Values by the value whose memory they take; for memory that is passed on several times, the first value. */
export type Places = ReadonlyMap<GraphValue, GraphValue>;

export function reusePlaces(graph: Graph, registry: OperatorRegistry): Places {
  const uses = new Uses(graph);
  const places = new Map<GraphValue, GraphValue>();
  for (const node of graph.nodes) {
    const given = placeFor(node, registry, uses);
    if (given) places.set(node.out, places.get(given) ?? given);
  }
  return places;
}

/** The argument that a call's result can be written over. */
function placeFor(node: GraphNode, registry: OperatorRegistry, uses: Uses): GraphValue | undefined {
  const operator = registry.find(node.operator);
  const names = operator?.inPlace ?? [];
  const candidates = names.map((name) => node.args[argumentIndex(operator!.schema, name)]);
  const { dtype, shape } = node.out.spec;
  return (candidates as (GraphValue | null)[]).find(
    (value): value is GraphValue =>
      value?.kind === "computed" &&
      value.spec.dtype === dtype &&
      isSameShape(value.spec.shape, shape) &&
      isSameShape(value.smallest, node.out.smallest) &&
      uses.isReadOnce(value),
  );
}
