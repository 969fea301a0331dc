/** Pass: SwiGLU and GeGLU of two halves of one value read it directly, without copies of the halves. */
import { gateHalvesOperator, gateOperator } from "../../ops/gate.ts";
import type { Graph, GraphNode, GraphValue } from "../graph.ts";
import { columnsOf } from "./columns.ts";
import { type RewriteContext, type Rewriting, rewrite } from "./rewrite.ts";
import { Uses } from "./uses.ts";

/** Gate and up of gates that this pass can fuse; null for other calls. */
export function gatedValues({ operator, args }: GraphNode): readonly GraphValue[] | null {
  const isJoined = operator === gateOperator.name && ["silu", "geluTanh"].includes(args[2] as string);
  return isJoined ? (args.slice(0, 2) as GraphValue[]) : null;
}

export function fuseGates(graph: Graph, context: RewriteContext): Graph {
  const uses = new Uses(graph);
  const reading: Rewriting = (builder, args, { node, current }) => {
    const values = gatedValues(node);
    const whole = values && columnsOf(values, uses);
    return whole && builder.call(gateHalvesOperator.name, current(whole), args.argument("activation"));
  };
  return rewrite(graph, new Map([[gateOperator.name, reading]]), context);
}
