/** The kernel rows of all operators as data for people: what there is, what serves which call on a CPU, and why. */
import type { Cpu, Kernel, KernelQuery, KernelTarget } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { layouts } from "../kernels/layout/packed.ts";
import { kernelRefusal, selectKernel, selectLayout } from "../kernels/select.ts";
import type { Operator, OperatorRegistry } from "../ops/operator.ts";
import { operators } from "../ops/registry.ts";

export interface KernelRow {
  /** Name of the operators that share the kernel; `{b}` stands for their bits. */
  readonly operator: string;
  readonly kernel: string;
  readonly target: KernelTarget;
  readonly layouts: readonly string[] | null;
  readonly bits: readonly number[] | null;
  readonly needs: readonly string[];
  readonly mStep: number;
  readonly nStep: number;
  /** Why the CPU cannot run it, null when it can. */
  readonly refusal: string | null;
}

/** What serves calls with at least so many rows of activations. */
export interface ServingKernel {
  readonly m: number;
  readonly kernel: string;
}

/** The kernels that serve an operator's calls; bits and group sizes that are served alike are one entry. */
export interface KernelChoice {
  readonly operator: string;
  /** Layout of the packed weights, null for operators without. */
  readonly layout: string | null;
  readonly bits: readonly number[] | null;
  /**
   * Those of GROUP_SIZES that are packed in this layout for this CPU, "axis" for one scale a row; empty when the layout
   * is only read, null where there is no choice of layouts.
   */
  readonly groupSizes: readonly (number | "axis")[] | null;
  /** By rows of activations, rising; the first from 1 row on. */
  readonly serving: readonly ServingKernel[];
}

export interface KernelTable {
  readonly cpu: string;
  readonly features: readonly string[];
  /** Kernels of this package for the architecture of the CPU. */
  readonly rows: readonly KernelRow[];
  readonly choices: readonly KernelChoice[];
}

const GROUP_SIZES = [32, 64, 128, 256, "axis"] as const;
/** Of the weights whose layout is asked for; no kernel's choice depends on them. */
const [ROWS, COLUMNS] = [4096, 4096];

/** Operators that share one list of kernels and, but for their bits, a name. */
interface Family {
  readonly name: string;
  readonly kernels: readonly Kernel<never>[];
  /** Widths of weights that the operators take; null for all that the kernels take. */
  readonly bits: ReadonlySet<number> | null;
}

/** All kernels of a registry, and the choice among them, for this CPU or another. */
export function kernelTable(cpu: Cpu = hostCpu(), registry: OperatorRegistry = operators): KernelTable {
  const families = familiesOf(registry);
  return {
    cpu: cpu.name,
    features: [...cpu.features],
    rows: families.flatMap((family) => rowsOf(family, cpu)),
    choices: families.flatMap((family) => choicesOf(family, cpu)),
  };
}

function familiesOf(registry: OperatorRegistry): Family[] {
  const sharing = new Map<Family["kernels"], Operator[]>();
  for (const operator of registry) sharing.set(operator.kernels, [...(sharing.get(operator.kernels) ?? []), operator]);
  return [...sharing].flatMap(([kernels, members]) => {
    const names = familyNames(members.map(({ name }) => name));
    return unique(names).map((name) => ({
      ...{ name, kernels },
      bits: bitsOf(members.filter((_, i) => names[i] === name)),
    }));
  });
}

/** Widths that some of the operators take; null when one takes any. */
function bitsOf(members: readonly Operator[]): Family["bits"] {
  return members.some(({ bits }) => bits === null) ? null : new Set(members.flatMap(({ bits }) => bits ?? []));
}

/** Names that differ in one digit, their bits, become one name with `{b}`, each in its place; others stay. */
function familyNames(names: readonly string[]): string[] {
  const patterns = new Map<string, Set<string>>();
  for (const name of names)
    for (const { index } of name.matchAll(/\dbit/g)) {
      const pattern = `${name.slice(0, index)}{b}${name.slice(index + 1)}`;
      patterns.set(pattern, (patterns.get(pattern) ?? new Set()).add(name));
    }
  const shared = [...patterns].filter(([, members]) => members.size > 1);
  const nameOf = (name: string) => shared.find(([, members]) => members.has(name))?.[0] ?? name;
  return names.map(nameOf);
}

/** Rows that serve some of the family's widths. */
function rowsOf({ name: operator, kernels, bits: taken }: Family, cpu: Cpu): KernelRow[] {
  return kernels.flatMap((kernel): KernelRow[] => {
    const { name, target, layouts, needs, mStep, nStep } = kernel;
    const bits = kernel.bits?.filter((width) => taken?.has(width) ?? true) ?? null;
    if (bits?.length === 0 || !isFor(kernel, cpu)) return [];
    const refusal = kernelRefusal(kernel, { layout: null, bits: null, m: mStep }, cpu);
    return [{ operator, kernel: name, target, layouts, bits, needs, mStep, nStep, refusal }];
  });
}

/** Whether a kernel is compiled for the CPU's architecture; all but the native ones are for all. */
function isFor({ target, needs }: Kernel<never>, { features }: Cpu): boolean {
  return target !== "native" || features.has(needs.includes("neon") ? "neon" : "sse2");
}

function choicesOf({ name, kernels, bits: taken }: Family, cpu: Cpu): KernelChoice[] {
  const names = unique(kernels.flatMap((kernel): readonly (string | null)[] => kernel.layouts ?? [null]));
  const allBits = unique(kernels.flatMap((kernel): readonly (number | null)[] => kernel.bits ?? [null])).filter(
    (width) => width === null || (taken?.has(width) ?? true),
  );
  allBits.sort((a, b) => (a ?? 0) - (b ?? 0));
  const choices: KernelChoice[] = [];
  for (const layout of names)
    for (const bits of allBits) {
      const groupSizes = groupSizesIn(layout, bits, cpu);
      const serving = servingKernels(kernels, { layout, bits }, cpu);
      const last = choices.at(-1);
      const what = JSON.stringify([layout, groupSizes, serving]);
      const alike = last?.bits && what === JSON.stringify([last.layout, last.groupSizes, last.serving]);
      if (alike && bits !== null) choices.splice(-1, 1, { ...last, bits: [...last.bits, bits] });
      else choices.push({ operator: name, layout, bits: bits === null ? null : [bits], groupSizes, serving });
    }
  return choices;
}

/** Group sizes of weights that are packed in a layout for a CPU; null where there is only one layout. */
function groupSizesIn(layout: string | null, bits: number | null, cpu: Cpu): KernelChoice["groupSizes"] {
  if (bits === null || !layouts.some(({ name }) => name === layout)) return null;
  const weights = { bits, n: ROWS, k: COLUMNS, hasZeros: false, hasLevels: false, scaleDType: "f16" } as const;
  const sizeOf = (size: number | "axis") => (size === "axis" ? COLUMNS : size);
  return GROUP_SIZES.filter((size) => selectLayout({ ...weights, groupSize: sizeOf(size) }, cpu).name === layout);
}

/** Kernels by the fewest rows of activations that each serves: the choice changes only at some kernel's mStep. */
function servingKernels(
  kernels: Family["kernels"],
  weights: Omit<KernelQuery, "m">,
  cpu: Cpu,
): readonly ServingKernel[] {
  const steps = unique([1, ...kernels.map(({ mStep }) => mStep)]).sort((a, b) => a - b);
  const serving: ServingKernel[] = [];
  for (const m of steps) {
    const kernel = selectKernel(kernels, { ...weights, m }, cpu).name;
    if (serving.at(-1)?.kernel !== kernel) serving.push({ m, kernel });
  }
  return serving;
}

function unique<V>(values: readonly V[]): V[] {
  return [...new Set(values)];
}
