/** Model functions → program: capture, passes, memory plan, emission. Weights are packed when the program is read or written. */
import { checkList, checkOptions } from "../arguments.ts";
import type { Cpu } from "../kernels/contract.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import type { DataSource, Program } from "../program/program.ts";
import { capture, type MethodSource } from "./capture.ts";
import { ConstantPool, emitMethod, metadataMethod } from "./emit.ts";
import type { Graph } from "./graph.ts";
import { lifetimesOf, planMemory, planState } from "./memory-plan.ts";
import { fuseAddNorm } from "./passes/add-norm.ts";
import { mergeCommonCalls } from "./passes/common-calls.ts";
import { removeDeadCode } from "./passes/dead-code.ts";
import { foldConstants } from "./passes/fold-constants.ts";
import { fuseGates } from "./passes/gated-columns.ts";
import { type Places, reusePlaces } from "./passes/in-place.ts";
import { mergeLinears } from "./passes/merge-linears.ts";
import type { RewriteContext } from "./passes/rewrite.ts";
import { fuseRopeAttention } from "./passes/rope-attention.ts";
import { narrowToWantedRows } from "./passes/wanted-rows.ts";

/** Another runtime as target: programs for it call only operators that it has, none of which writes over its inputs. */
export interface CompileTarget {
  /** Lowers the graph to calls of the runtime's operators. UnsupportedError names a call that cannot be lowered. */
  lower(graph: Graph, context: RewriteContext): Graph;
}

/** Options of compiling: operators, the CPU that weights are packed for, and the target. */
export interface CompileOptions {
  /** Operators that the program may use. */
  readonly registry: OperatorRegistry;
  /** The CPU that weights are packed for, which need not be this machine's. */
  readonly cpu: Cpu;
  /** Another runtime that must be able to run the program, such as `executorchTarget`. Default: this package alone. */
  readonly target?: CompileTarget | undefined;
  /** Methods that return constants, by name. */
  readonly metadata?: ReadonlyMap<string, number | boolean | readonly number[]>;
  /** Data that the program holds by name, such as its tokenizer. */
  readonly namedData?: ReadonlyMap<string, DataSource>;
}

/** Compiles methods to a program in which they share constants and state. */
export function compile(sources: readonly MethodSource[], options: CompileOptions): Program {
  checkList("sources", sources, ["name", "inputs", "build"], "methods");
  checkOptions(options);
  const { registry, cpu, metadata = new Map(), namedData = new Map() } = options;
  const graphs = sources.map((source) => optimize(capture(source, registry, cpu), options));
  const constants = new ConstantPool();
  const state = planState(graphs);
  const methods = graphs.map((graph) => {
    const places: Places = options.target ? new Map() : reusePlaces(graph, registry);
    return emitMethod(graph, { registry, constants, state, places, scratch: planMemory(lifetimesOf(graph, places)) });
  });
  const facts = [...metadata].map(([name, value]) => metadataMethod(name, value));
  return { methods: [...methods, ...facts], constants: constants.constants, namedData };
}

/** Runs all passes, in order. For another runtime, no calls are fused, and none writes over its arguments. */
export function optimize(graph: Graph, { target, registry, cpu }: CompileOptions): Graph {
  const context = { registry, cpu };
  const shared = foldConstants(mergeCommonCalls(graph, registry), context);
  const narrow = narrowToWantedRows(shared, context);
  const lowered = target ? target.lower(narrow, context) : fuse(narrow, context);
  return removeDeadCode(lowered, registry);
}

/** Passes that fuse calls for the kernels of this package. */
function fuse(graph: Graph, context: RewriteContext): Graph {
  const merged = mergeLinears(graph, context);
  const gated = fuseGates(merged, context);
  const rotated = removeDeadCode(fuseRopeAttention(gated, context), context.registry);
  return fuseAddNorm(rotated, context);
}
