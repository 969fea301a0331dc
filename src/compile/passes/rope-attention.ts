/** Rotary embedding of queries and keys that are columns of one value, and the attention after it, become one call. */
import { type Graph, type GraphNode, type GraphValue, isGraphValue } from "../graph.ts";
import { columnsOf } from "./columns.ts";
import { type RewriteContext, type Rewriting, rewrite } from "./rewrite.ts";
import { Uses } from "./uses.ts";

const attentions = new Map([
  ["lowbit::attention.out", "lowbit::rope_attention.out"],
  ["lowbit::attention_int8_cache.out", "lowbit::rope_attention_int8_cache.out"],
]);

interface AttentionInputs {
  /** Queries, keys and values before the rotation. */
  readonly values: readonly [GraphValue, GraphValue, GraphValue];
  readonly angles: GraphValue;
}

/** What an attention call reads when queries and keys are rotated by the same angles; else null. */
export function attentionInputs(node: GraphNode, uses: Uses): AttentionInputs | null {
  if (!attentions.has(node.operator)) return null;
  const [q, k, v] = node.args as [GraphValue, GraphValue, GraphValue];
  const turns = [q, k].map((value) => {
    const maker = uses.isReadOnce(value) ? uses.maker(value) : undefined;
    return maker?.operator === "lowbit::rope.out" ? maker : undefined;
  });
  const [turnQ, turnK] = turns;
  if (!turnQ || !turnK || turnQ.args[1] !== turnK.args[1] || turnQ.args[2] !== turnK.args[2]) return null;
  const keyCache = node.args[3];
  // Heads of another size than those of the cache would not be rotated by head.
  if (!isGraphValue(keyCache!) || keyCache.spec.shape[3] !== turnQ.args[2]) return null;
  return {
    values: [turnQ.args[0] as GraphValue, turnK.args[0] as GraphValue, v],
    angles: turnQ.args[1] as GraphValue,
  };
}

export function fuseRopeAttention(graph: Graph, context: RewriteContext): Graph {
  const uses = new Uses(graph);
  const fuse = (operator: string): Rewriting => {
    return (builder, _, { node, current }) => {
      const inputs = attentionInputs(node, uses);
      const columns = inputs && columnsOf(inputs.values, uses);
      return columns && builder.call(operator, current(columns), inputs.angles, ...node.args.slice(3));
    };
  };
  return rewrite(graph, new Map([...attentions].map(([plain, operator]) => [plain, fuse(operator)])), context);
}
