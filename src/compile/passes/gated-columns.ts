/** SwiGLU and GeGLU of two halves of one value read it as it is, without copies of the halves. */
import type { Graph, GraphValue } from "../graph.ts";
import { columnsOf } from "./columns.ts";
import { type RewriteContext, type Rewriting, rewrite } from "./rewrite.ts";
import { Uses } from "./uses.ts";

const fused = [
  ["lowbit::swiglu.out", "lowbit::swiglu_halves.out"],
  ["lowbit::geglu.out", "lowbit::geglu_halves.out"],
] as const;

export function fuseGates(graph: Graph, context: RewriteContext): Graph {
  const uses = new Uses(graph);
  const reading = (operator: string): Rewriting => {
    return (builder, _, { node, current }) => {
      const whole = columnsOf(node.args as GraphValue[], uses);
      return whole && builder.call(operator, current(whole));
    };
  };
  return rewrite(graph, new Map(fused.map(([plain, operator]) => [plain, reading(operator)])), context);
}
