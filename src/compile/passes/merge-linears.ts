/**
 * Pass: joins linear layers that read the same x and feed one call, such as q, k and v, or gate and up: x is quantized
 * once, and the weights are one stream. Slices give the single results, which later passes remove.
 */
import type { LazyConstant } from "../../ops/builder.ts";
import { joinRows } from "../../ops/packed-constant.ts";
import { GraphBuilder } from "../capture.ts";
import { type Graph, type GraphNode, type GraphValue, isGraphValue, renewArguments } from "../graph.ts";
import { gatedValues } from "./gated-columns.ts";
import type { RewriteContext } from "./rewrite.ts";
import { attentionInputs } from "./rope-attention.ts";
import { Uses } from "./uses.ts";

/** Calls that are joined, and the joined constants. */
interface Group {
  readonly parts: readonly GraphNode[];
  readonly weight: LazyConstant;
  readonly bias: LazyConstant | null;
}

export function mergeLinears(graph: Graph, { registry, cpu }: RewriteContext): Graph {
  const uses = new Uses(graph);
  /** Groups by their first call; the other calls of a group are dropped. */
  const groups = new Map<GraphNode, Group>();
  for (const node of graph.nodes) {
    const parts = partsOf(node, uses);
    const joined = parts && joinedConstants(parts);
    if (joined) groups.set(firstOf(graph, parts), { parts, ...joined });
  }
  const merged = new Set([...groups.values()].flatMap(({ parts }) => parts));
  const replaced = new Map<GraphValue, GraphValue>();
  const current = (value: GraphValue) => replaced.get(value) ?? value;
  const builder = new GraphBuilder(registry, cpu);
  for (const node of graph.nodes) {
    const group = groups.get(node);
    if (group) mergeGroup(builder, group, replaced);
    else if (!merged.has(node)) builder.nodes.push({ ...node, args: renewArguments(node, current) });
  }
  return { ...graph, nodes: builder.nodes };
}

function firstOf({ nodes }: Graph, parts: readonly GraphNode[]): GraphNode {
  return nodes.find((node) => parts.includes(node))!;
}

/** The linear calls whose results one call reads side by side, in the order of columns; null when they cannot be joined. */
function partsOf(node: GraphNode, uses: Uses): readonly GraphNode[] | null {
  const values = gatedValues(node) ?? attentionInputs(node, uses)?.values ?? packedInputs(node, uses);
  if (!values) return null;
  const parts = values.map((value) => soleMaker(beforeNorm(value, uses), uses));
  const [first] = parts;
  if (!first || new Set(parts).size !== parts.length) return null;
  const alike = (part: GraphNode | undefined): part is GraphNode =>
    part?.operator === first.operator && part.args[0] === first.args[0];
  return isLinear(first) && parts.every(alike) ? parts : null;
}

/** Queries, keys and values of attention over packed sequences, before RoPE where there is one. */
function packedInputs({ operator, args }: GraphNode, uses: Uses): readonly GraphValue[] | undefined {
  if (operator !== "lowbit::attend_packed.out") return undefined;
  return (args.slice(0, 3) as GraphValue[]).map((value) => {
    const maker = soleMaker(value, uses);
    return maker?.operator === "lowbit::rope.out" ? (maker.args[0] as GraphValue) : value;
  });
}

/** The call that computes a value which only one call reads. */
function soleMaker(value: GraphValue, uses: Uses): GraphNode | undefined {
  return uses.isReadOnce(value) ? uses.maker(value) : undefined;
}

/** For queries and keys that are normed before RoPE, the norm's input; else the value itself. */
function beforeNorm(value: GraphValue, uses: Uses): GraphValue {
  const maker = soleMaker(value, uses);
  return maker?.operator === "lowbit::rms_norm.out" ? (maker.args[0] as GraphValue) : value;
}

function isLinear({ operator }: GraphNode): boolean {
  return /^torchao::_linear_8bit_act_\dbit_weight\.out$|^lowbit::linear_(8bit_block_act|weight_only)\.out$|^aten::linear\.out$/.test(
    operator,
  );
}

/** The joined constants of the calls, in the order of arguments; null when they cannot be joined. */
function joinedConstants(parts: readonly GraphNode[]): Pick<Group, "weight" | "bias"> | null {
  const constantsAt = (index: number) => {
    const values = parts.map(({ args }) => args[index]!);
    return values.map((value) => (isGraphValue(value) ? value.constant : null));
  };
  const joined = (constants: readonly (LazyConstant | null)[]) =>
    constants.every((constant) => constant !== null) ? joinRows(constants) : null;
  const weight = joined(constantsAt(1));
  if (!weight) return null;
  // Packed weights contain their biases; further arguments are sizes.
  if (weight.packed) return { weight, bias: null };
  const biases = constantsAt(2);
  const bias = joined(biases);
  return bias || biases.every((constant) => constant === null) ? { weight, bias } : null;
}

function mergeGroup(
  builder: GraphBuilder,
  { parts, weight, bias }: Group,
  replaced: Map<GraphValue, GraphValue>,
): void {
  const [first] = parts as [GraphNode];
  const x = renewArguments(first, (value) => replaced.get(value) ?? value)[0]!;
  const sizes = weight.packed ? [weight.packed.spec.groupSize, weight.packed.spec.n, weight.packed.spec.k] : [];
  const constants = [builder.constant(weight), ...(bias ? [builder.constant(bias)] : [])];
  const all = builder.call(first.operator, x, ...constants, ...sizes);
  let start = 0;
  for (const { out } of parts) {
    const width = out.spec.shape.at(-1)!;
    replaced.set(out, builder.call("aten::slice_copy.Tensor_out", all, -1, start, start + width));
    start += width;
  }
}
