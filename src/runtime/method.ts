/**
 * A method made ready for one set of input sizes: its values become views of scratch, state and constants, and every call
 * gets its kernel and arguments once, so that running it allocates nothing.
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

/** A call of a ready method. */
interface ReadyStep {
  readonly call: BoundCall;
  /**
   * This call fused with the one before it, for where a kernel other than the reference serves; null where they cannot be
   * fused.
   */
  readonly fused: BoundCall | null;
}

/** A method with fixed sizes: run `calls` in order. */
export interface ReadyMethod {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly steps: readonly ReadyStep[];
  /** The calls that run on this CPU, fused ones included. */
  readonly calls: readonly BoundCall[];
  /** Index of each call among the method's kernel calls; a fused call has that of its second. */
  readonly places: readonly number[];
  /** Limits that the values of inputs (such as token ids) must keep, checked before a run. */
  readonly checks: readonly IndexCheck[];
}

/** Most elements in each dimension of an empty tensor: other tensors are bounded by their memory. */
const EMPTY_PLACES_MAX = 2 ** 30;

/** UnsupportedError that lists everything in a method that this runtime cannot execute. */
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

/** Whether elements are in row-major order; dimensions of size 1 may stand anywhere. */
function isRowMajor({ sizes, dimOrder }: TensorValue): boolean {
  const long = dimOrder.filter((dim) => sizes[dim] !== 1);
  return long.every((dim, i) => i === 0 || long[i - 1]! < dim);
}

/** Makes a method ready for inputs of the given sizes, each at most the planned size. */
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
 * Which calls run, and whether fused with the call before: where the fused kernel is not the reference. `kernels`: the
 * fused kernel of each call and the one before it.
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

/** Runs `work` for a call; a ShapeError also names the constants among its arguments, by their names in the file. */
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

/** The strictest limit on each input's values. Indices that the method computes itself are checked by the kernels. */
function inputChecks(inputs: readonly Tensor[], calls: readonly BoundCall[]): IndexCheck[] {
  const checks = new Map<Tensor, IndexCheck>();
  for (const { indexCheck: check } of calls)
    if (check && inputs.includes(check.tensor) && check.limit < (checks.get(check.tensor)?.limit ?? Infinity))
      checks.set(check.tensor, check);
  return [...checks.values()];
}
