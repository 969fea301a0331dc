/** The kernel rows of all operators as data for people: what there is, what serves which call on a CPU, and why. */
import type { Cpu, Kernel, KernelQuery, KernelTarget } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { kernelRefusal, selectKernel } from "../kernels/select.ts";
import type { OperatorRegistry } from "../ops/operator.ts";
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

/** The kernel that serves a call with m rows; a range of bits that are served alike is one entry. */
export interface KernelChoice {
  readonly operator: string;
  readonly layout: string | null;
  readonly bits: readonly number[] | null;
  /** Kernel names by rows of activations, null where none serves. */
  readonly byRows: Readonly<Record<number, string | null>>;
}

export interface KernelTable {
  readonly cpu: string;
  readonly features: readonly string[];
  readonly rows: readonly KernelRow[];
  readonly choices: readonly KernelChoice[];
}

/** Rows of activations that choices are listed for: decoding, a few sequences, a prompt. */
const ROW_COUNTS = [1, 4, 32] as const;

/** Operators that share one list of kernels and, but for their bits, a name. */
interface Family {
  readonly name: string;
  readonly kernels: readonly Kernel<never>[];
}

/** All kernels of a registry, and the choice among them, for this CPU or another. */
export function kernelTable(cpu: Cpu = hostCpu(), registry: OperatorRegistry = operators): KernelTable {
  const families = familiesOf(registry);
  return {
    cpu: cpu.name,
    features: [...cpu.features],
    rows: families.flatMap((family) => family.kernels.map((kernel) => kernelRow(family, kernel, cpu))),
    choices: families.flatMap((family) => choicesOf(family, cpu)),
  };
}

function familiesOf(registry: OperatorRegistry): Family[] {
  const namesOf = new Map<Family["kernels"], string[]>();
  for (const { name, kernels } of registry) namesOf.set(kernels, [...(namesOf.get(kernels) ?? []), name]);
  return [...namesOf].flatMap(([kernels, names]) => familyNames(names).map((name) => ({ name, kernels })));
}

/** Names that differ in one digit, their bits, become one name with `{b}`; others stay. */
function familyNames(names: readonly string[]): string[] {
  const patterns = new Map<string, Set<string>>();
  for (const name of names)
    for (const { index } of name.matchAll(/\dbit/g)) {
      const pattern = `${name.slice(0, index)}{b}${name.slice(index + 1)}`;
      patterns.set(pattern, (patterns.get(pattern) ?? new Set()).add(name));
    }
  const shared = [...patterns].filter(([, members]) => members.size > 1);
  const nameOf = (name: string) => shared.find(([, members]) => members.has(name))?.[0] ?? name;
  return unique(names.map(nameOf));
}

function kernelRow(family: Family, kernel: Kernel<never>, cpu: Cpu): KernelRow {
  const { name, target, layouts, bits, needs, mStep, nStep } = kernel;
  const refusal = kernelRefusal(kernel, { layout: null, bits: null, m: mStep }, cpu);
  return { operator: family.name, kernel: name, target, layouts, bits, needs, mStep, nStep, refusal };
}

function choicesOf({ name, kernels }: Family, cpu: Cpu): KernelChoice[] {
  const layouts = unique(kernels.flatMap((kernel): readonly (string | null)[] => kernel.layouts ?? [null]));
  const allBits = unique(kernels.flatMap((kernel): readonly (number | null)[] => kernel.bits ?? [null]));
  allBits.sort((a, b) => (a ?? 0) - (b ?? 0));
  const choices: KernelChoice[] = [];
  for (const layout of layouts)
    for (const bits of allBits) {
      const byRows = Object.fromEntries(ROW_COUNTS.map((m) => [m, kernelName(kernels, { layout, bits, m }, cpu)]));
      const last = choices.at(-1);
      const alike = last && last.layout === layout && JSON.stringify(last.byRows) === JSON.stringify(byRows);
      if (alike && last.bits && bits !== null) choices.splice(-1, 1, { ...last, bits: [...last.bits, bits] });
      else choices.push({ operator: name, layout, bits: bits === null ? null : [bits], byRows });
    }
  return choices;
}

function kernelName(kernels: Family["kernels"], query: KernelQuery, cpu: Cpu): string | null {
  const serves = kernels.some((kernel) => kernelRefusal(kernel, query, cpu) === null);
  return serves ? selectKernel(kernels, query, cpu).name : null;
}

function unique<V>(values: readonly V[]): V[] {
  return [...new Set(values)];
}
