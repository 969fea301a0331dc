/** Replaces calls of some operators by other calls: fused ones, or those that another runtime has. */
import type { Cpu } from "../../kernels/contract.ts";
import type { Argument } from "../../ops/call-arguments.ts";
import type { OperatorRegistry } from "../../ops/operator-registry.ts";
import { argumentIndex, type Schema } from "../../ops/schema.ts";
import { GraphBuilder } from "../capture.ts";
import { type Graph, type GraphNode, type GraphValue, isGraphValue, renewArguments } from "../graph.ts";

/** Arguments of a call by name. */
class CallArguments {
  readonly #schema: Schema;
  readonly #args: readonly Argument<GraphValue>[];

  constructor(schema: Schema, args: readonly Argument<GraphValue>[]) {
    this.#schema = schema;
    this.#args = args;
  }

  argument(name: string): Argument<GraphValue> {
    return this.#args[argumentIndex(this.#schema, name)] ?? null;
  }

  tensor(name: string): GraphValue {
    const value = this.argument(name);
    if (!isGraphValue(value)) throw new TypeError(`${this.#schema.name}: ${name} is no tensor`);
    return value;
  }

  number(name: string): number {
    return Number(this.argument(name));
  }
}

/** The original call, and what values have been replaced by so far. */
interface Site {
  readonly node: GraphNode;
  current(value: GraphValue): GraphValue;
}

/** Makes the calls that replace one call, and gives the value that replaces its result; null keeps the call. */
export type Rewriting = (builder: GraphBuilder, args: CallArguments, site: Site) => GraphValue | null;

/** What rewriting a graph needs. */
export interface RewriteContext {
  /** Operators that calls may name. */
  readonly registry: OperatorRegistry;
  /** The CPU that weights are packed for. */
  readonly cpu: Cpu;
}

/** Rewrites every call of the operators in `rules`. */
export function rewrite(graph: Graph, rules: ReadonlyMap<string, Rewriting>, context: RewriteContext): Graph {
  const { registry, cpu } = context;
  const builder = new GraphBuilder(registry, cpu);
  const replaced = new Map<GraphValue, GraphValue>();
  const current = (value: GraphValue) => replaced.get(value) ?? value;
  const rewriteNode = (node: GraphNode) => {
    const args = renewArguments(node, current);
    const made = rules.get(node.operator)?.(builder, new CallArguments(registry.schema(node.operator), args), {
      node,
      current,
    });
    if (made) replaced.set(node.out, made);
    else builder.nodes.push({ ...node, args });
  };
  graph.nodes.forEach(rewriteNode);
  return { ...graph, nodes: builder.nodes, outputs: graph.outputs.map(current) };
}
