/** Pass: fuses RoPE of queries and keys, which are columns of one value, with the attention after it. */
import type { Graph, GraphNode, GraphValue } from "../graph.ts";
import { columnsOf } from "./columns.ts";
import { type RewriteContext, type Rewriting, rewrite } from "./rewrite.ts";
import { Uses } from "./uses.ts";

const ATTENTION = "lowbit::update_and_attend.out";

/** Index of the argument head_dim, the elements of a head in the KV cache. */
const HEAD_DIM = 6;

interface AttentionInputs {
  /** Queries, keys and values before RoPE. */
  readonly values: readonly [GraphValue, GraphValue, GraphValue];
  readonly angles: GraphValue;
}

/** The inputs of an attention call whose queries and keys are rotated by the same angles; else null. */
export function attentionInputs(node: GraphNode, uses: Uses): AttentionInputs | null {
  if (node.operator !== ATTENTION) return null;
  const [q, k, v] = node.args as [GraphValue, GraphValue | null, GraphValue];
  if (k === null) return null;
  const turns = [q, k].map((value) => {
    const maker = uses.isReadOnce(value) ? uses.maker(value) : undefined;
    return maker?.operator === "lowbit::rope.out" ? maker : undefined;
  });
  const [turnQ, turnK] = turns;
  if (!turnQ || !turnK || turnQ.args[1] !== turnK.args[1] || turnQ.args[2] !== turnK.args[2]) return null;
  // RoPE must rotate heads of the cache's size.
  if (node.args[HEAD_DIM] !== turnQ.args[2]) return null;
  return {
    values: [turnQ.args[0] as GraphValue, turnK.args[0] as GraphValue, v],
    angles: turnQ.args[1] as GraphValue,
  };
}

export function fuseRopeAttention(graph: Graph, context: RewriteContext): Graph {
  const uses = new Uses(graph);
  const fuse: Rewriting = (builder, _, { node, current }) => {
    const inputs = attentionInputs(node, uses);
    const columns = inputs && columnsOf(inputs.values, uses);
    const rest = node.args.slice(3);
    return columns && builder.call("lowbit::rope_update_and_attend.out", current(columns), inputs.angles, ...rest);
  };
  return rewrite(graph, new Map([[ATTENTION, fuse]]), context);
}
