/** Small graphs for tests of passes: captured on a plain CPU, printed as text. */
import { capture, type MethodSource } from "../../src/compile/capture.ts";
import { formatGraph, type Graph } from "../../src/compile/graph.ts";
import type { RewriteContext } from "../../src/compile/passes/rewrite.ts";
import { scalarCpu } from "../../src/kernels/cpu.ts";
import { layoutNamed } from "../../src/kernels/layout/packed.ts";
import type { LazyConstant } from "../../src/ops/builder.ts";
import { Ops } from "../../src/ops/ops.ts";
import { packedWeights } from "../../src/ops/packed-constant.ts";
import { operators } from "../../src/registry/operators.ts";
import { Random, randomWeights } from "./random.ts";

export const context: RewriteContext = { registry: operators, cpu: scalarCpu };

/** An input [1, T, width], T up to 4. */
export const rows = (name: string, width: number) =>
  ({ name, spec: { dtype: "f32", shape: [1, 4, width] }, smallest: [1, 1, width] }) as const;
export const tokens = { name: "tokens", spec: { dtype: "i64", shape: [1, 4] }, smallest: [1, 1] } as const;
export const position = { name: "pos", spec: { dtype: "i64", shape: [1] }, smallest: [1] } as const;

type Build = <T>(ops: Ops<T>, inputs: readonly T[], constant: (constant: LazyConstant) => T) => readonly T[];

export function graphOf(inputs: MethodSource["inputs"], build: Build, registry = operators): Graph {
  const source: MethodSource = {
    name: "forward",
    inputs,
    build: (builder, values) => build(new Ops(builder), values, (constant) => builder.constant(constant)),
  };
  return capture(source, registry, scalarCpu);
}

/** The text of a graph after a pass. */
export function after(pass: (graph: Graph, context: RewriteContext) => Graph, graph: Graph): string {
  return formatGraph(pass(graph, context));
}

/** Packed weights [n, k] of so many bits. */
export function packed(name: string, n: number, k: number, bits = 4, groupSize = 32): LazyConstant {
  const spec = { bits, n, k, groupSize, hasZeros: false, hasLevels: false, scaleDType: "f32" } as const;
  const load = async () => ({ weights: randomWeights(new Random(n), spec), bias: null });
  return packedWeights(name, { spec, layout: layoutNamed("panel16"), hasBias: false, load });
}

export function vector(name: string, values: readonly number[]): LazyConstant {
  return { key: `${name}:f32`, dtype: "f32", shape: [values.length], read: async () => Float32Array.from(values) };
}
