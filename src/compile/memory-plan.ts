/**
 * Greedy memory planning by size (Pisarchyk & Lee 2020, "Efficient memory management for deep neural net inference"):
 * the largest tensor first, each at the lowest offset where no tensor alive at the same time lies.
 */
import { byteSize } from "../dtype.ts";
import { checkSameSpec } from "../ops/builder.ts";
import type { TensorSpec } from "../ops/call-arguments.ts";
import { elementCount } from "../tensor.ts";
import { argumentValues, type Graph, type GraphValue } from "./graph.ts";

/** Start of every planned tensor: a cache line. */
const ALIGNMENT = 64;

export interface Lifetime {
  readonly bytes: number;
  /** Indices of the first and last node, inclusive, during which the tensor is needed. */
  readonly first: number;
  readonly last: number;
}

export interface Plan<K> {
  readonly offsets: ReadonlyMap<K, number>;
  readonly totalBytes: number;
}

/** Offsets for tensors with lifetimes; tensors alive at the same time do not overlap. */
export function planMemory<K>(lifetimes: ReadonlyMap<K, Lifetime>): Plan<K> {
  const offsets = new Map<K, number>();
  const placed: { offset: number; end: number; lifetime: Lifetime }[] = [];
  let totalBytes = 0;
  const bySize = [...lifetimes].sort(([, a], [, b]) => b.bytes - a.bytes);
  for (const [key, lifetime] of bySize) {
    let offset = 0;
    for (const other of placed) {
      const together = other.lifetime.first <= lifetime.last && lifetime.first <= other.lifetime.last;
      if (together && offset < other.end && other.offset < offset + lifetime.bytes) offset = other.end;
    }
    const end = Math.ceil((offset + lifetime.bytes) / ALIGNMENT) * ALIGNMENT;
    offsets.set(key, offset);
    // Kept by offset, so that one pass over `placed` finds the lowest gap.
    const at = placed.findIndex((other) => other.offset > offset);
    placed.splice(at < 0 ? placed.length : at, 0, { offset, end, lifetime });
    totalBytes = Math.max(totalBytes, end);
  }
  return { offsets, totalBytes };
}

/** Bytes of a value at its largest. */
function valueBytes({ spec }: GraphValue): number {
  return elementCount(spec.shape) * byteSize(spec.dtype);
}

/**
 * Lifetimes of a graph's inputs and computed values. Inputs live from the start, outputs to the end. A value in `places`
 * has no lifetime of its own: it prolongs that of the value whose memory it takes.
 */
export function lifetimesOf(
  graph: Graph,
  places: ReadonlyMap<GraphValue, GraphValue> = new Map(),
): Map<GraphValue, Lifetime> {
  const lifetimes = new Map<GraphValue, Lifetime>();
  const use = (used: GraphValue, index: number) => {
    const value = places.get(used) ?? used;
    if (value.kind !== "input" && value.kind !== "computed") return;
    const first = lifetimes.get(value)?.first ?? (value.kind === "input" ? 0 : index);
    lifetimes.set(value, { bytes: valueBytes(value), first, last: index });
  };
  for (const value of graph.inputs) use(value, 0);
  for (const [index, node] of graph.nodes.entries())
    for (const value of [...argumentValues(node), node.out]) use(value, index);
  for (const value of graph.outputs) use(value, graph.nodes.length);
  return lifetimes;
}

/** Plans the state tensors of several graphs, one after the other. InvalidArgumentError where a name has several specs. */
export function planState(graphs: readonly Graph[]): Plan<string> {
  const offsets = new Map<string, number>();
  const specs = new Map<string, TensorSpec>();
  let totalBytes = 0;
  const values = graphs.flatMap((graph) => [...graph.nodes.flatMap(argumentValues), ...graph.outputs]);
  for (const value of values) {
    if (value.kind !== "state") continue;
    const known = specs.get(value.name!);
    if (known) {
      checkSameSpec(`state ${value.name}`, known, value.spec);
      continue;
    }
    specs.set(value.name!, value.spec);
    offsets.set(value.name!, totalBytes);
    totalBytes = Math.ceil((totalBytes + valueBytes(value)) / ALIGNMENT) * ALIGNMENT;
  }
  return { offsets, totalBytes };
}
