/** The kernels of all operators as data for tables: which there are, and which of them serves a call on a CPU. */
import { checkOptions } from "../arguments.ts";
import type { Cpu, GroupLimit, Kernel, KernelQuery, KernelTarget } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { layouts } from "../kernels/layout/packed.ts";
import { unservedFeatures } from "../kernels/native/rows.ts";
import { kernelRefusal, selectKernel, selectLayout } from "../kernels/select.ts";
import type { Operator } from "../ops/operator.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { operators } from "../registry/operators.ts";

/**
 * One kernel: the operators that it serves, the packed layouts and bits that it reads, and the CPU features that it
 * needs.
 */
export interface KernelRow {
  /** Name of the operators that share the kernel; `{b}` stands for the bits of their weights. */
  readonly operator: string;
  /** Name of the kernel. */
  readonly kernel: string;
  /** Whether the kernel is native, WebAssembly, or plain TypeScript. */
  readonly target: KernelTarget;
  /** Packed layouts that the kernel reads; null for kernels without packed weights. */
  readonly layouts: readonly string[] | null;
  /** Bits of weights that the kernel reads; null for kernels without weights. */
  readonly bits: readonly number[] | null;
  /** CPU features without which the kernel cannot run. */
  readonly needs: readonly string[];
  /** Tokens (rows of activations) of one tile, M. */
  readonly mStep: number;
  /** Columns of the result of one tile, N. */
  readonly nStep: number;
  /** Ranges of group sizes that the kernel serves, with the least tokens for each; null where it serves any group size. */
  readonly groups: readonly GroupLimit[] | null;
  /** Why the CPU cannot run the kernel; null when it can. */
  readonly refusal: string | null;
}

/** The kernel that serves calls of at least `m` tokens. */
export interface ServingKernel {
  /** Tokens (rows of activations) from which on the kernel serves. */
  readonly m: number;
  /** Name of the kernel; null where there is no fused kernel and the runtime runs the calls one by one. */
  readonly kernel: string | null;
}

const GROUP_SIZES = [32, 64, 128, 256, "axis"] as const;
type GroupSize = (typeof GROUP_SIZES)[number];

/** The kernels that serve an operator's calls. Bits and group sizes with the same kernels share an entry. */
export interface KernelChoice {
  /** Name of the operator; `{b}` stands for the bits of its weights. */
  readonly operator: string;
  /** Layout of the packed weights; null for operators without. */
  readonly layout: string | null;
  /** Bits of weights that these kernels serve; null for operators without weights. */
  readonly bits: readonly number[] | null;
  /** Group sizes that these kernels serve, "axis" for one scale a row; null where there is no choice of layouts. */
  readonly groupSizes: readonly GroupSize[] | null;
  /**
   * Whether programs packed for this CPU have weights of these groups in this layout; false where it only reads the layout
   * from programs packed for other CPUs. Null where there is no choice of layouts.
   */
  readonly packed: boolean | null;
  /** Kernels by the least tokens (rows of activations) that they serve; the first serves from 1 token on. */
  readonly serving: readonly ServingKernel[];
}

/** Every kernel of this package for one CPU's architecture, and which of them serves which calls on that CPU. */
export interface KernelTable {
  /** Name of the CPU. */
  readonly cpu: string;
  /** Features of the CPU that kernels may need. */
  readonly features: readonly string[];
  /**
   * Features of this machine's CPU, whichever CPU the table is for, that its native addon was not built for: it was built
   * on a machine without them, and `node scripts/native/build.js` adds their kernels.
   */
  readonly unserved: readonly string[];
  /** Kernels of this package for the architecture of the CPU. */
  readonly rows: readonly KernelRow[];
  /** Kernels that serve the calls of each operator on the CPU. */
  readonly choices: readonly KernelChoice[];
}

/**
 * Rows and columns of the weights that kernels are selected for: selection depends on neither, except for one scale a row.
 */
const [ROWS, COLUMNS] = [4096, 4096];

/** Operators that share a list of kernels, and a name except for the bits in it. */
interface Family {
  readonly name: string;
  readonly kernels: readonly Kernel<never>[];
  /** Bits of weights that the operators take; null for all that their kernels take. */
  readonly bits: ReadonlySet<number> | null;
  /** Whether the operator exists only by load-time fusion: programs do not name it. */
  readonly isFused: boolean;
}

/** Lists all kernels of a registry, and which of them serves which calls, for this CPU or another. */
export function kernelTable(cpu: Cpu = hostCpu(), registry: OperatorRegistry = operators): KernelTable {
  checkOptions({ cpu });
  const families = familiesOf(registry);
  return {
    cpu: cpu.name,
    features: [...cpu.features],
    unserved: unservedFeatures(),
    rows: families.flatMap((family) => rowsOf(family, cpu)),
    choices: families.flatMap((family) => choicesOf(family, cpu)),
  };
}

function familiesOf(registry: OperatorRegistry): Family[] {
  const sharing = new Map<Family["kernels"], Operator[]>();
  for (const operator of registry) sharing.set(operator.kernels, [...(sharing.get(operator.kernels) ?? []), operator]);
  return [...sharing].flatMap(([kernels, members]) => {
    const names = familyNames(members.map(({ name }) => name));
    return unique(names).map((name) => {
      const named = members.filter((_, i) => names[i] === name);
      return { name, kernels, bits: bitsOf(named), isFused: named.every(({ isFused }) => isFused) };
    });
  });
}

/** Bits that some of the operators take; null when one takes any. */
function bitsOf(members: readonly Operator[]): Family["bits"] {
  return members.some(({ bits }) => bits === null) ? null : new Set(members.flatMap(({ bits }) => bits ?? []));
}

/** Operator names with `{b}` in place of the bits, where some of them differ in nothing else. */
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

/** Kernels that serve some of the bits of a family's operators. */
function rowsOf({ name: operator, kernels, bits: taken }: Family, cpu: Cpu): KernelRow[] {
  return kernels.flatMap((kernel): KernelRow[] => {
    const { name, target, layouts, needs, mStep, nStep, groups = null } = kernel;
    const bits = kernel.bits?.filter((width) => taken?.has(width) ?? true) ?? null;
    if (bits?.length === 0 || !isFor(kernel, cpu)) return [];
    const refusal = kernelRefusal(kernel, { layout: null, bits: null, m: mStep }, cpu);
    return [{ operator, kernel: name, target, layouts, bits, needs, mStep, nStep, groups, refusal }];
  });
}

/** Whether a kernel is compiled for the CPU's architecture, as all are that are not native. */
function isFor({ target, needs }: Kernel<never>, { features }: Cpu): boolean {
  return target !== "native" || features.has(needs.includes("neon") ? "neon" : "sse2");
}

function choicesOf(family: Family, cpu: Cpu): KernelChoice[] {
  const { name: operator, kernels, bits: taken } = family;
  const names = unique(kernels.flatMap((kernel): readonly (string | null)[] => kernel.layouts ?? [null]));
  const allBits = unique(kernels.flatMap((kernel): readonly (number | null)[] => kernel.bits ?? [null])).filter(
    (width) => width === null || (taken?.has(width) ?? true),
  );
  allBits.sort((a, b) => (a ?? 0) - (b ?? 0));
  return names.flatMap((layout) => {
    const ranges: { readonly bits: number[] | null; readonly served: readonly Served[] }[] = [];
    for (const bits of allBits) {
      const served = servedGroups(family, { layout, bits }, cpu);
      const last = ranges.at(-1);
      if (last?.bits && bits !== null && isAlike(last.served, served)) last.bits.push(bits);
      else ranges.push({ bits: bits === null ? null : [bits], served });
    }
    // Fused operators for which no kernel serves any number of tokens are left out.
    return ranges.flatMap(({ bits, served }) =>
      served
        .filter(({ serving }) => serving.some(({ kernel }) => kernel !== null))
        .map((part) => ({ operator, layout, bits, ...part })),
    );
  });
}

type Served = Pick<KernelChoice, "groupSizes" | "packed" | "serving">;

/** The kernels of weights in a layout, by group size; sizes with the same kernels share an entry. */
function servedGroups(family: Family, weights: Pick<KernelQuery, "layout" | "bits">, cpu: Cpu): readonly Served[] {
  const { layout, bits } = weights;
  if (bits === null || !layouts.some(({ name }) => name === layout))
    return [{ groupSizes: null, packed: null, serving: servingKernels(family, weights, cpu) }];
  const spec = { bits, n: ROWS, k: COLUMNS, hasZeros: false, hasLevels: false, scaleDType: "f16" } as const;
  const all: (Served & { readonly groupSizes: GroupSize[] })[] = [];
  for (const size of GROUP_SIZES) {
    const group = size === "axis" ? COLUMNS : size;
    const packed = selectLayout({ ...spec, groupSize: group }, cpu).name === layout;
    const serving = servingKernels(family, { ...weights, group }, cpu);
    const alike = all.find((other) => other.packed === packed && isAlike(other.serving, serving));
    if (alike) alike.groupSizes.push(size);
    else all.push({ groupSizes: [size], packed, serving });
  }
  return all;
}

/** The selected kernels by least tokens. The selection can change only at the `mStep` or a group limit of some kernel. */
function servingKernels(
  { kernels, isFused }: Family,
  weights: Omit<KernelQuery, "m">,
  cpu: Cpu,
): readonly ServingKernel[] {
  const starts = kernels.flatMap(({ mStep, groups = [] }) => [mStep, ...groups.map(({ m }) => m)]);
  const serving: ServingKernel[] = [];
  for (const m of unique([1, ...starts]).sort((a, b) => a - b)) {
    const { name, target } = selectKernel(kernels, { ...weights, m }, cpu);
    const kernel = isFused && target === "reference" ? null : name;
    if (serving.at(-1)?.kernel !== kernel) serving.push({ m, kernel });
  }
  return serving;
}

function isAlike(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function unique<V>(values: readonly V[]): V[] {
  return [...new Set(values)];
}
