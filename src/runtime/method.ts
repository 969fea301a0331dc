/**
 * One method of a loaded program, made ready for one set of input sizes: values become views of the arena, the state
 * and the constants; every call gets its kernel and its arguments once, so that running it allocates nothing.
 */
import { ShapeError, UnsupportedError } from "../errors.ts";
import type { Cpu, Kernel } from "../kernels/contract.ts";
import { Arguments, type TensorSpec } from "../ops/call-arguments.ts";
import type { BoundCall, IndexCheck } from "../ops/operator.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { qualifiedName } from "../ops/schema.ts";
import type { Method, TensorValue } from "../program/program.ts";
import { elementCount, isSameShape, type Tensor } from "../tensor.ts";
import { argumentOf, type CurrentValues, literalOf } from "./calls/call-values.ts";
import type { MethodCalls } from "./calls/method-calls.ts";
import { checkInput, checkPlanned, type MethodMemory, viewValue } from "./calls/method-values.ts";
import { fuseCalls, type ReadyCall } from "./fusion.ts";

/** A call of a method. */
interface ReadyStep {
  readonly call: BoundCall;
  /** It and the call before it as one, for where that has a kernel that is no plain loop; null where they cannot be. */
  readonly fused: BoundCall | null;
}

/** A method with fixed sizes: run `calls` in order. */
export interface ReadyMethod {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly steps: readonly ReadyStep[];
  /** Calls of the steps that run here. */
  readonly calls: readonly BoundCall[];
  /** Where each call is among the method's kernel calls; calls that run as one have the place of the last. */
  readonly places: readonly number[];
  /** What the values of inputs must fulfil before a run. */
  readonly checks: readonly IndexCheck[];
}

/** Most rows and columns of a tensor without elements: those of tensors with elements are bounded by their memory. */
const EMPTY_PLACES_MAX = 2 ** 30;

/** UnsupportedError listing everything in a method that this runtime cannot execute. */
export function checkMethod(method: Method, registry: OperatorRegistry): void {
  for (const [index, value] of method.values.entries()) {
    if (value.kind !== "tensor") continue;
    if (!isRowMajor(value))
      throw new UnsupportedError(
        `method ${method.name}, value ${index}: has its dimensions in memory in the order [${value.dimOrder}], and only ascending orders are supported`,
      );
    if (!value.sizes.includes(0)) continue;
    const places = elementCount(value.sizes.filter((size) => size > 0));
    if (places > EMPTY_PLACES_MAX)
      throw new UnsupportedError(
        `method ${method.name}, value ${index}: a tensor without elements has other sizes of more than 2^30: [${value.sizes}]`,
      );
  }
  const unknown = method.operators.map(qualifiedName).filter((name) => !registry.has(name));
  const delegates = [...new Set(method.delegates)];
  const problems: string[] = [];
  if (unknown.length > 0)
    problems.push(
      `unknown operators ${unknown.join(", ")}; register them with registerOperator, or export with operators that this runtime has`,
    );
  if (delegates.length > 0)
    problems.push(
      `calls delegates ${delegates.join(", ")}; export without a backend delegate (export_llm: backend.xnnpack.enabled=False)`,
    );
  if (problems.length > 0) throw new UnsupportedError(`method ${method.name}: ${problems.join("; ")}`);
  const other = method.instructions.find(({ kind }) => kind === "delegate");
  if (other) throw new UnsupportedError(`method ${method.name}: instruction ${other.kind} is not supported`);
}

/** Whether elements lie in the order of their indices; dimensions of one place may stand anywhere. */
function isRowMajor({ sizes, dimOrder }: TensorValue): boolean {
  const long = dimOrder.filter((dim) => sizes[dim] !== 1);
  return long.every((dim, i) => i === 0 || long[i - 1]! < dim);
}

/** Resolves a method for inputs of the given sizes, each at most the size that was planned. */
export function readyMethod(
  { method, calls: planned, constants }: MethodCalls,
  inputSizes: readonly (readonly number[])[],
  memory: MethodMemory,
  context: { registry: OperatorRegistry; cpu: Cpu },
): ReadyMethod {
  const tensors = new Map<number, Tensor>();
  const tensorAt = (index: number, sizes?: readonly number[]): Tensor => {
    const known = tensors.get(index) ?? constants.get(index);
    if (known) return known;
    const value = method.values[index]!;
    if (value.kind !== "tensor") throw new ShapeError(`method ${method.name}: value ${index} is no tensor`);
    const tensor = viewValue(value, sizes ?? value.sizes, memory);
    (value.constant === null ? tensors : constants).set(index, tensor);
    return tensor;
  };
  const current: CurrentValues = {
    tensor: (index) => tensorAt(index),
    literal: (index) => literalOf(method.values[index]!),
  };
  const inputs = method.inputs.map((index, i) => {
    checkInput(method, i, inputSizes[i] ?? []);
    return tensorAt(index, inputSizes[i]);
  });
  const steps: ReadyStep[] = [];
  let before: ReadyCall | null = null;
  for (const { operator, given, rest, outIndex, outType } of planned) {
    const args = [...given.map((index) => argumentOf(method, index, current)), ...rest];
    const spec = withNames(method, given, () =>
      operator.shape(new Arguments<TensorSpec>(operator.schema, args), outType),
    );
    checkPlanned(method, operator.name, outIndex, spec);
    const out = tensorAt(outIndex, spec.shape);
    if (!isSameShape(out.shape, spec.shape))
      throw new ShapeError(`${operator.name}: gives [${spec.shape}] into a value that is [${out.shape}] already`);
    const call: ReadyCall = { operator, given: args, out, outIndex };
    const fused: BoundCall | null = before && withNames(method, given, () => fuseCalls(before!, call, method, context));
    const resolve = () => operator.resolve(new Arguments(operator.schema, [...args, out]), context.cpu);
    steps.push({ call: withNames(method, given, resolve), fused });
    before = call;
  }
  const outputs = method.outputs.map((index) => tensorAt(index));
  const places = fusedPlaces(steps.map(({ fused }) => fused?.kernel));
  const calls = places.map(({ place, isFused }) => (isFused ? steps[place]!.fused! : steps[place]!.call));
  return {
    inputs,
    outputs,
    steps,
    calls,
    places: places.map(({ place }) => place),
    checks: inputChecks(inputs, calls),
  };
}

/**
 * Which steps run, and whether as one with the step before: where the kernel for both is no plain loop. `kernels`: those
 * for each step and the one before.
 */
export function fusedPlaces(kernels: readonly (Kernel<never> | undefined)[]): { place: number; isFused: boolean }[] {
  const places: { place: number; isFused: boolean }[] = [];
  for (const [place, kernel] of kernels.entries()) {
    const isFused = kernel !== undefined && kernel.target !== "reference";
    if (isFused) places.pop();
    places.push({ place, isFused });
  }
  return places;
}

/** What a call makes of its arguments; a ShapeError also names the constants among them, as the file does. */
function withNames<R>(method: Method, indices: readonly number[], work: () => R): R {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ShapeError)) throw error;
    const values = indices.map((index) => method.values[index]!);
    const names = values.flatMap(
      (value) => (value.kind === "tensor" && value.constant !== null ? value.name : null) ?? [],
    );
    throw names.length === 0 ? error : new ShapeError(`${error.message} (of ${names.join(", ")})`, { cause: error });
  }
}

/** The strictest check of each input. Indices that the method computes itself are the kernels' business. */
function inputChecks(inputs: readonly Tensor[], calls: readonly BoundCall[]): IndexCheck[] {
  const checks = new Map<Tensor, IndexCheck>();
  for (const { indexCheck: check } of calls)
    if (check && inputs.includes(check.tensor) && check.limit < (checks.get(check.tensor)?.limit ?? Infinity))
      checks.set(check.tensor, check);
  return [...checks.values()];
}
