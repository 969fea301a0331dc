/**
 * Finds mixtures of experts that work token by token as a whole: tokens are sorted by their own logits, and sorted back.
 */
import type { OperatorRegistry } from "../../ops/operator-registry.ts";
import { argumentIndex } from "../../ops/schema.ts";
import { type GraphNode, type GraphValue, isGraphValue } from "../graph.ts";
import type { Uses } from "./uses.ts";

const ROUTE = "lowbit::route.out";
const EXPERT_ROWS = "lowbit::expert_rows.out";
const COMBINE = "lowbit::combine_experts.out";

/** Indices of a call's arguments with one row for each token, sorted by expert or not, or with the routing. */
function routedArguments({ operator, args }: GraphNode, registry: OperatorRegistry): readonly number[] {
  const schema = registry.find(operator)?.schema;
  const isOurs = [ROUTE, EXPERT_ROWS, COMBINE].includes(operator) || operator.startsWith("lowbit::expert_linear");
  if (!schema || !isOurs) return [];
  const names = operator === ROUTE ? ["logits"] : ["x", "routing"];
  return names.map((name) => argumentIndex(schema, name)).filter((place) => isGraphValue(args[place]!));
}

/** Calls of a mixture, with the indices of their arguments that have rows. */
export type RoutedCalls = ReadonlyMap<GraphNode, readonly number[]>;

/**
 * The calls of the mixture that `combine` ends: router, sorting by expert, and all between; null for another call, and
 * where anything else reads their results. `rowwise`: indices of arguments of calls that work token by token.
 */
export function routedCalls(
  combine: GraphNode,
  uses: Uses,
  registry: OperatorRegistry,
  rowwise: (node: GraphNode) => readonly number[],
): RoutedCalls | null {
  if (combine.operator !== COMBINE) return null;
  const [, routing] = combine.args as GraphValue[];
  const calls = new Map<GraphNode, readonly number[]>();
  const take = (node: GraphNode | undefined): boolean => {
    if (!node || calls.has(node)) return node !== undefined;
    const routed = routedArguments(node, registry);
    const isRouted = node.operator === ROUTE ? node.out === routing : node.args[routed[1]!] === routing;
    if (routed.length > 0 && !isRouted) return false;
    const places = routed.length > 0 ? routed : rowwise(node);
    if (places.length === 0) return false;
    calls.set(node, places);
    const inner = node.operator === ROUTE ? [] : node.operator === EXPERT_ROWS ? places.slice(1) : places;
    return inner.every((place) => take(uses.maker(node.args[place] as GraphValue)));
  };
  if (!take(combine)) return null;
  const isInner = (value: GraphValue) =>
    !uses.isOutput(value) &&
    uses
      .readers(value)
      .every((reader) => reader.args.every((arg, i) => arg !== value || calls.get(reader)?.includes(i)));
  return [...calls.keys()].every((node) => node === combine || isInner(node.out)) ? calls : null;
}
