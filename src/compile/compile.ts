/** Model functions → program: capture, passes, memory plan, emission. Weights are packed when the program is read or written. */
import type { Cpu } from "../kernels/contract.ts";
import type { OperatorRegistry } from "../ops/operator.ts";
import type { DataSource, Program } from "../program/program.ts";
import { capture, type MethodSource } from "./capture.ts";
import { ConstantPool, emitMethod, metadataMethod } from "./emit.ts";
import { forExecutorch } from "./executorch.ts";
import type { Graph } from "./graph.ts";
import { lifetimesOf, planMemory, planState } from "./memory-plan.ts";
import { mergeCommonCalls } from "./passes/common-calls.ts";
import { removeDeadCode } from "./passes/dead-code.ts";

export const targets = ["lowbit", "executorch"] as const;
export type Target = (typeof targets)[number];

export interface CompileOptions {
  readonly registry: OperatorRegistry;
  /** The CPU that weights are packed for; need not be this one. */
  readonly cpu: Cpu;
  /** Who runs the program: this package, or ExecuTorch too, with the operators that it has. Default: lowbit. */
  readonly target?: Target;
  /** Methods that return constants, by name. */
  readonly metadata?: ReadonlyMap<string, number | boolean | readonly number[]>;
  readonly namedData?: ReadonlyMap<string, DataSource>;
}

/** Compiles methods that share constants and state. */
export function compile(sources: readonly MethodSource[], options: CompileOptions): Program {
  const { registry, cpu, metadata = new Map(), namedData = new Map() } = options;
  const graphs = sources.map((source) => optimize(capture(source, registry, cpu), options));
  const constants = new ConstantPool();
  const state = planState(graphs);
  const methods = graphs.map((graph) =>
    emitMethod(graph, { registry, constants, state, scratch: planMemory(lifetimesOf(graph)) }),
  );
  const facts = [...metadata].map(([name, value]) => metadataMethod(name, value));
  return { methods: [...methods, ...facts], constants: constants.constants, namedData };
}

/** All passes, in order. */
function optimize(graph: Graph, { target, registry, cpu }: CompileOptions): Graph {
  const lowered = target === "executorch" ? forExecutorch(graph, { registry, cpu }) : graph;
  return removeDeadCode(mergeCommonCalls(lowered, registry), registry);
}
