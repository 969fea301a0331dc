/**
 * Pass: fuses a residual addition with the norm that reads the sum. The fused call adds in place, which keeps the sum for
 * the next block.
 */
import { addRmsNormOperator } from "../../ops/norm.ts";
import { GraphBuilder } from "../capture.ts";
import { type Graph, type GraphNode, type GraphValue, renewArguments } from "../graph.ts";
import type { RewriteContext } from "./rewrite.ts";
import { Uses } from "./uses.ts";

export function fuseAddNorm(graph: Graph, { registry, cpu }: RewriteContext): Graph {
  const uses = new Uses(graph);
  const builder = new GraphBuilder(registry, cpu);
  const replaced = new Map<GraphValue, GraphValue>();
  /** Additions by the norm that they are fused with. */
  const sums = new Map<GraphNode, GraphNode>();
  for (const [i, node] of graph.nodes.entries()) {
    const next = graph.nodes[i + 1];
    if (next && isAddNorm(node, next, uses)) {
      sums.set(next, node);
      continue;
    }
    const args = renewArguments(node, (value) => replaced.get(value) ?? value);
    const sum = sums.get(node);
    if (!sum) {
      builder.nodes.push({ ...node, args });
      continue;
    }
    const [x, y, alpha] = renewArguments(sum, (value) => replaced.get(value) ?? value);
    replaced.set(node.out, builder.call(addRmsNormOperator.name, x!, y!, args[1]!, args[2]!, alpha!));
    replaced.set(sum.out, x as GraphValue);
  }
  return { ...graph, nodes: builder.nodes, outputs: graph.outputs.map((value) => replaced.get(value) ?? value) };
}

/** Whether `norm` comes after `add`, norms whole rows of its sum, and nothing reads the first addend afterwards. */
function isAddNorm(add: GraphNode, norm: GraphNode, uses: Uses): boolean {
  if (add.operator !== "aten::add.out" || norm.operator !== "lowbit::rms_norm.out" || norm.args[0] !== add.out)
    return false;
  const [x, y] = add.args as [GraphValue, GraphValue];
  const weight = norm.args[1] as GraphValue;
  if (x === y || x.kind !== "computed" || uses.isOutput(x) || uses.readers(x).at(-1) !== add) return false;
  return x.spec.dtype === "f32" && weight.spec.shape[0] === x.spec.shape.at(-1);
}
