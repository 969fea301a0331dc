/** Graphs as text: a model's before and after the passes, and a program's as stored. */

import type { Model } from "../checkpoint/model.ts";
import { capture } from "../compile/capture.ts";
import { optimize } from "../compile/compile.ts";
import { formatGraph } from "../compile/graph.ts";
import { reusePlaces } from "../compile/passes/in-place.ts";
import { executorchTarget } from "../executorch/compile/lowering.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { formatMethod } from "../program/format.ts";
import { operators } from "../registry/operators.ts";
import { methodSources } from "./compile-model.ts";
import type { CompileModelOptions } from "./compile-options.ts";
import { type ProgramFileOptions, withProgramFile } from "./program-file.ts";

/** The graph of one method as text, a call a line. */
export interface MethodGraph {
  /** Name of the method. */
  readonly name: string;
  /** The graph as the model makes it, before any pass; null for a program that is compiled already. */
  readonly before: string | null;
  /** The graph as it is compiled, after the passes. */
  readonly after: string;
}

/** Gives the graphs of what `compileModel` makes with these options. Weights are not read. */
export function modelGraphs(model: Model, given: CompileModelOptions = {}): MethodGraph[] {
  const { sources } = methodSources(model, given, true);
  const { cpu = hostCpu() } = given;
  const target = given.target === "executorch" ? executorchTarget : undefined;
  return sources.map((source) => {
    const graph = capture(source, operators, cpu);
    const optimized = optimize(graph, { registry: operators, cpu, target });
    const places = target ? undefined : reusePlaces(optimized, operators);
    return { name: source.name, before: formatGraph(graph), after: formatGraph(optimized, places) };
  });
}

/** Gives the graphs of those methods of a .pte file that call operators. */
export function programGraphs(path: string, options: Pick<ProgramFileOptions, "data"> = {}): Promise<MethodGraph[]> {
  return withProgramFile(path, options, async ({ methods }) => {
    const called = methods.filter(({ instructions }) => instructions.length > 0);
    return called.map((method) => ({ name: method.name, before: null, after: formatMethod(method) }));
  });
}
