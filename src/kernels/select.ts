/**
 * Selects a layout and a kernel: pure functions of a query and a CPU, which need not be this one. Tables are ordered best
 * first, and the first kernel that serves the query is taken: one that reads the layout, bits and groups, runs on the CPU and
 * has mStep <= m.
 */
import { UnsupportedError } from "../errors.ts";
import { hasFactors, type WeightSpec } from "../quantized.ts";
import type { Cpu, Kernel, KernelQuery, PackedLayout, PackedWeights } from "./contract.ts";
import { layouts } from "./layout/packed.ts";

/** The query for a call with m rows of activations and these weights. */
export function packedQuery({ layout, spec }: Pick<PackedWeights, "layout" | "spec">, m: number): KernelQuery {
  const query = { layout: layout.name, bits: spec.bits, m, group: Math.min(spec.groupSize, spec.k) };
  if (!spec.hasMinima && spec.scaleDType === "i8") return { ...query, hasFactors: true };
  return spec.hasMinima || hasFactors(spec) ? { ...query, hasMinima: true } : query;
}

/** Why a kernel does not serve a query on a CPU, or null when it does. */
export function kernelRefusal<A>(kernel: Kernel<A>, query: KernelQuery, cpu: Cpu): string | null {
  const missing = kernel.needs.filter((feature) => !cpu.features.has(feature));
  if (missing.length > 0) return `needs ${missing.join(", ")}`;
  if (kernel.layouts && query.layout !== null && !kernel.layouts.includes(query.layout))
    return `reads ${kernel.layouts.join(", ")}`;
  if (kernel.bits && query.bits !== null && !kernel.bits.includes(query.bits))
    return `takes ${kernel.bits.join(", ")} bits`;
  if (query.hasMinima && !kernel.readsMinima) return "reads neither minima nor scales with factors";
  if (query.hasFactors && !kernel.readsMinima && !kernel.readsFactors) return "reads no scales with factors";
  if (query.m < kernel.mStep) return `serves m >= ${kernel.mStep}`;
  const { groups } = kernel;
  const { group, m } = query;
  if (groups && group !== undefined && !groups.some((limit) => m >= limit.m && group <= limit.longest))
    return `serves groups of at most ${groups.map((limit) => `${limit.longest} for m >= ${limit.m}`).join(", ")}`;
  return null;
}

/** Cache for a table and a CPU: kernels whose features the CPU has, and the last choice, since consecutive layers are alike. */
interface Choices {
  readonly able: readonly Kernel<never>[];
  last: { readonly query: KernelQuery; readonly kernel: Kernel<never> } | null;
}

const choicesOf = new WeakMap<readonly Kernel<never>[], WeakMap<Cpu, Choices>>();

function choicesFor<A>(kernels: readonly Kernel<A>[], cpu: Cpu): Choices {
  const known = choicesOf.get(kernels) ?? new WeakMap<Cpu, Choices>();
  choicesOf.set(kernels, known);
  let choices = known.get(cpu);
  if (!choices) {
    choices = { able: kernels.filter(({ needs }) => needs.every((feature) => cpu.features.has(feature))), last: null };
    known.set(cpu, choices);
  }
  return choices;
}

function isSameQuery(a: KernelQuery, b: KernelQuery): boolean {
  return (
    a.m === b.m &&
    a.layout === b.layout &&
    a.bits === b.bits &&
    a.group === b.group &&
    a.hasMinima === b.hasMinima &&
    a.hasFactors === b.hasFactors
  );
}

/** The first kernel that serves a query. UnsupportedError lists every candidate with its reason. */
export function selectKernel<A>(kernels: readonly Kernel<A>[], query: KernelQuery, cpu: Cpu): Kernel<A> {
  const choices = choicesFor(kernels, cpu);
  if (choices.last && isSameQuery(choices.last.query, query)) return choices.last.kernel;
  const able = choices.able as readonly Kernel<A>[];
  const kernel = able.find((candidate) => kernelRefusal(candidate, query, cpu) === null);
  if (!kernel)
    throw new UnsupportedError(`no kernel for ${describeQuery(query)} on ${cpu.name}: ${explain(kernels, query, cpu)}`);
  choices.last = { query, kernel };
  return kernel;
}

/** For each kernel, its name and why it does not serve the query, or that it does. */
export function explain<A>(kernels: readonly Kernel<A>[], query: KernelQuery, cpu: Cpu): string {
  return kernels.map((kernel) => `${kernel.name} ${kernelRefusal(kernel, query, cpu) ?? "serves"}`).join("; ");
}

function describeQuery({ layout, bits, m, group, hasMinima, hasFactors }: KernelQuery): string {
  const groups = group === undefined ? "" : `groups of ${group}, `;
  return `${layout ?? "no"} layout, ${bits ?? "no"} bits, ${groups}${hasMinima || hasFactors ? "minima or scales with factors, " : ""}m = ${m}`;
}

/** The layout to pack weights in for a CPU: the first one for it that supports them. UnsupportedError says why none does. */
export function selectLayout(spec: WeightSpec, cpu: Cpu): PackedLayout {
  const suitable = layouts.filter(({ suits = [] }) => suits.every((feature) => cpu.features.has(feature)));
  return suitable.find((candidate) => candidate.refusal(spec) === null) ?? refuse(spec, suitable);
}

/** All layouts that `selectLayout` may return for these weights, over all CPUs. UnsupportedError if there are none. */
export function selectableLayouts(spec: WeightSpec): readonly PackedLayout[] {
  const able = layouts.filter((candidate) => candidate.refusal(spec) === null);
  const forAll = able.findIndex(({ suits }) => suits === undefined);
  return forAll < 0 ? refuse(spec, layouts) : able.slice(0, forAll + 1);
}

function refuse(spec: WeightSpec, candidates: readonly PackedLayout[]): never {
  const reasons = candidates.map((candidate) => `${candidate.name}: ${candidate.refusal(spec)}`).join("; ");
  throw new UnsupportedError(`no layout for ${spec.bits}-bit weights [${spec.n}, ${spec.k}]: ${reasons}`);
}
