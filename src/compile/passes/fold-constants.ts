/**
 * Pass: computes calls on constants only, by the reference kernels when the program is read or written, and removes factors
 * of 1.
 */

import { scalarCpu } from "../../kernels/cpu.ts";
import type { LazyConstant } from "../../ops/builder.ts";
import type { Argument } from "../../ops/call-arguments.ts";
import { EagerBuilder } from "../../ops/eager.ts";
import { elementCount, type Tensor } from "../../tensor.ts";
import { GraphBuilder } from "../capture.ts";
import { argumentValues, type Graph, type GraphNode, type GraphValue, isGraphValue, renewArguments } from "../graph.ts";
import type { RewriteContext } from "./rewrite.ts";

/** Most elements of a folded constant: larger ones would cost more bytes than the calls cost time. */
const ELEMENTS_MAX = 1 << 16;

export function foldConstants(graph: Graph, context: RewriteContext): Graph {
  const builder = new GraphBuilder(context.registry, context.cpu);
  const replaced = new Map<GraphValue, GraphValue>();
  const current = (value: GraphValue) => replaced.get(value) ?? value;
  for (const [i, node] of graph.nodes.entries()) {
    const call = { ...node, args: renewArguments(node, current) };
    const same = unchanged(call);
    if (same) replaced.set(node.out, same);
    else if (isFoldable(call, context))
      replaced.set(node.out, builder.constant(folded(call, `${graph.name}.${i}`, context)));
    else builder.nodes.push(call);
  }
  return { ...graph, nodes: builder.nodes, outputs: graph.outputs.map(current) };
}

/** The argument that a call returns unchanged, such as x of x * 1; null for others. */
function unchanged({ operator, args }: GraphNode): GraphValue | null {
  return operator === "aten::mul.Scalar_out" && args[1] === 1 ? (args[0] as GraphValue) : null;
}

function isFoldable(node: GraphNode, { registry }: RewriteContext): boolean {
  const values = argumentValues(node);
  const isPure = registry.find(node.operator)?.schema.args.every((arg) => arg.isOut || !arg.mutable) ?? false;
  const isSmall = elementCount(node.out.spec.shape) <= ELEMENTS_MAX;
  return isPure && isSmall && values.length > 0 && values.every(({ kind }) => kind === "constant");
}

function folded({ operator, args, out }: GraphNode, place: string, { registry }: RewriteContext): LazyConstant {
  return {
    key: `${place} ${operator}:folded`,
    dtype: out.spec.dtype,
    shape: out.spec.shape,
    async read() {
      const eager = new EagerBuilder(registry, scalarCpu, { threads: 1 });
      const tensors = new Map<GraphValue, Tensor>();
      for (const value of argumentValues({ operator, args, out })) {
        await eager.load(value.constant!);
        tensors.set(value, eager.constant(value.constant!));
      }
      const given = (arg: Argument<GraphValue>): Argument<Tensor> => {
        if (Array.isArray(arg)) return arg.map(given) as Argument<Tensor>;
        return isGraphValue(arg) ? tensors.get(arg)! : (arg as Argument<Tensor>);
      };
      return eager.call(operator, ...args.map(given)).data;
    },
  };
}
