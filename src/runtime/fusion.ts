/**
 * Neighbouring calls that run as one where this CPU has a kernel for both: what the first makes for the second alone
 * does not go to memory and back. Programs name the calls one by one, so that they run anywhere.
 */
import { UnsupportedError } from "../errors.ts";
import type { Cpu, Kernel } from "../kernels/contract.ts";
import type { ActivationName } from "../kernels/families/gate/activations.ts";
import { type Argument, Arguments } from "../ops/call-arguments.ts";
import type { BoundCall, Operator } from "../ops/operator.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { isTensorList, type Method, SCRATCH_MEMORY } from "../program/program.ts";
import type { Tensor } from "../tensor.ts";

/** A call with its arguments as tensors, but for the out tensor. */
export interface ReadyCall {
  readonly operator: Operator;
  readonly given: readonly Argument<Tensor>[];
  readonly out: Tensor;
  /** Place of the out tensor among the values of the method. */
  readonly outIndex: number;
}

interface Fusion {
  readonly first: RegExp;
  /** Function of the gate of halves of what the first makes. */
  readonly activation: ActivationName;
  /** Takes what the first is given, reads all of it before it writes, and makes what the second makes. */
  readonly into: string;
  /** Whether the operator for both takes calls with these arguments of the first. */
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

/** Whether each half of the columns is whole panels. */
function hasWholePanels(args: Arguments<Tensor>): boolean {
  return args.integer("n") % 32 === 0;
}

/** The calls as one, perhaps served by a plain loop; null where they cannot be one, or nothing else serves on this CPU. */
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
    // So much that the plain loop, which would serve here, refuses it.
    if (error instanceof UnsupportedError) return null;
    throw error;
  }
}

/**
 * Whether one call alone uses the value that another makes. Other values for the same bytes are not looked for: programs
 * that call operators of this package have none.
 */
function isReadOnce(method: Method, index: number): boolean {
  const value = method.values[index]!;
  if (value.kind !== "tensor" || value.allocation?.memoryId !== SCRATCH_MEMORY || method.inputs.includes(index))
    return false;
  if (method.values.some((other) => isTensorList(other) && other.items.includes(index))) return false;
  const calls = method.instructions.filter((instruction) => "args" in instruction && instruction.args.includes(index));
  return calls.length === 2 && !method.outputs.includes(index);
}
