/**
 * Load-time fusion: neighbouring calls run as one where this CPU has a kernel for both, so that the value between them is
 * not written to memory and read back. Programs keep the single calls, so that they run anywhere.
 */
import { UnsupportedError } from "../errors.ts";
import type { Cpu, Kernel } from "../kernels/contract.ts";
import type { ActivationName } from "../kernels/families/gate/activations.ts";
import { type Argument, Arguments } from "../ops/call-arguments.ts";
import type { BoundCall, Operator } from "../ops/operator.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { isTensorList, type Method, SCRATCH_MEMORY } from "../program/program.ts";
import type { Tensor } from "../tensor.ts";

/** A call whose arguments are tensors already; `out` is its out tensor. */
export interface ReadyCall {
  readonly operator: Operator;
  readonly given: readonly Argument<Tensor>[];
  readonly out: Tensor;
  /** Index of the out tensor among the method's values. */
  readonly outIndex: number;
}

interface Fusion {
  readonly first: RegExp;
  /** Activation of the gate that the second call applies to the halves of the first call's result. */
  readonly activation: ActivationName;
  /**
   * Name of the fused operator: it takes the first call's inputs, reads all of them before it writes, and gives the second
   * call's result.
   */
  readonly into: string;
  /** Whether the fused operator can take these arguments of the first call. */
  takes(args: Arguments<Tensor>): boolean;
}

const fusions: readonly Fusion[] = [
  {
    first: /^torchao::_linear_8bit_act_\dbit_weight\.out$/,
    activation: "silu",
    into: "lowbit::linear_8bit_act_swiglu.out",
    takes: hasWholePanels,
  },
  {
    first: /^lowbit::linear_8bit_block_act\.out$/,
    activation: "silu",
    into: "lowbit::linear_8bit_block_act_swiglu.out",
    takes: hasWholePanels,
  },
];

/** Whether each half of the columns is a whole number of panels. */
function hasWholePanels(args: Arguments<Tensor>): boolean {
  return args.integer("n") % 32 === 0;
}

/** Binds both calls as one, perhaps to a reference kernel; null where they cannot be fused, or no kernel serves. */
export function fuseCalls(
  first: ReadyCall,
  second: ReadyCall,
  method: Method,
  { registry, cpu }: { registry: OperatorRegistry; cpu: Cpu },
): BoundCall | null {
  if (second.operator.name !== "lowbit::gate_halves.out") return null;
  const fusion = fusions.find((item) => item.activation === second.given[1] && item.first.test(first.operator.name));
  if (!fusion || second.given[0] !== first.out || !registry.has(fusion.into)) return null;
  if (!isReadOnce(method, first.outIndex)) return null;
  if (!fusion.takes(new Arguments(first.operator.schema, [...first.given, first.out]))) return null;
  const into = registry.get(fusion.into);
  const isServed = ({ target, needs }: Kernel<never>) =>
    target !== "reference" && needs.every((feature) => cpu.features.has(feature));
  if (!into.kernels.some(isServed)) return null;
  try {
    return into.resolve(new Arguments(into.schema, [...first.given, second.out]), cpu);
  } catch (error) {
    // The reference kernel, which would serve here, refuses these arguments.
    if (error instanceof UnsupportedError) return null;
    throw error;
  }
}

/**
 * Whether exactly one call reads the value that another writes. Other values in the same bytes are not looked for, since
 * programs that call this package's operators have none.
 */
function isReadOnce(method: Method, index: number): boolean {
  const value = method.values[index]!;
  if (value.kind !== "tensor" || value.allocation?.memoryId !== SCRATCH_MEMORY || method.inputs.includes(index))
    return false;
  if (method.values.some((other) => isTensorList(other) && other.items.includes(index))) return false;
  const calls = method.instructions.filter((instruction) => "args" in instruction && instruction.args.includes(index));
  return calls.length === 2 && !method.outputs.includes(index);
}
