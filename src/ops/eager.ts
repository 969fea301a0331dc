/**
 * Eager execution: each operator call runs at once, on newly allocated tensors. For experiments; compiled programs are
 * faster.
 */
import { byteSize, viewOf } from "../dtype.ts";
import { InvalidArgumentError, ShapeError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";
import { defaultThreads } from "../kernels/plan.ts";
import type { SequenceTable } from "../kernels/sequence-table.ts";
import { elementCount, type Tensor, zeroTensor } from "../tensor.ts";
import { type Builder, checkSameSpec, type LazyConstant, sequencesSpec } from "./builder.ts";
import { type Argument, Arguments, completeArguments, type TensorSpec } from "./call-arguments.ts";
import { checkIndices } from "./operator.ts";
import type { OperatorRegistry } from "./operator-registry.ts";
import { qualifiedName, type Schema } from "./schema.ts";

/** ShapeError where the data's length is not that of the shape, which kernels rely on. */
function checkLength(where: string, { dtype, shape, data }: Tensor): void {
  const expected = elementCount(shape) * byteSize(dtype);
  if (data.byteLength !== expected)
    throw new ShapeError(`${where}: expected ${expected} bytes for ${dtype} [${shape}] but found ${data.byteLength}`);
}

function checkLengths(schema: Schema, args: readonly Argument<Tensor>[]): void {
  const inputs = schema.args.filter(({ isOut }) => !isOut);
  for (const [i, value] of args.entries())
    for (const item of Array.isArray(value) ? value : [value])
      if (typeof item === "object" && item !== null)
        checkLength(`${qualifiedName(schema)}, argument ${inputs[i]!.name}`, item);
}

/** Options of eager execution: threads, and a table of sequences. */
export interface EagerOptions {
  /** Threads of the kernels. Default: the number of fast cores. */
  readonly threads?: number;
  /** Block table of the sequences whose KV cache calls use; null without. */
  readonly sequences?: SequenceTable | null;
}

/** Executes calls on tensors. State lives as long as the builder; constants must be loaded before. */
export class EagerBuilder implements Builder<Tensor> {
  /** The CPU that weights are packed for and kernels are selected for. */
  readonly cpu: Cpu;
  readonly #registry: OperatorRegistry;
  readonly #threads: number;
  readonly #constants = new Map<string, Tensor>();
  readonly #states = new Map<string, Tensor>();
  readonly #sequences: Tensor | null;
  #scratch = new Uint8Array(0);
  /** Buffers of results that are not read any more, by bytes. */
  readonly #free = new Map<number, ArrayBufferLike[]>();

  /** `sequences`: the block table, for models with a paged KV cache. */
  constructor(
    registry: OperatorRegistry,
    cpu: Cpu,
    { threads = defaultThreads(), sequences = null }: EagerOptions = {},
  ) {
    this.#registry = registry;
    this.#threads = threads;
    this.#sequences = sequences && { ...sequencesSpec, data: sequences.handle };
    this.cpu = cpu;
  }

  /** Reads a constant; later `constant` calls with the same key return it. ShapeError for data of another length. */
  async load({ key, dtype, shape, read }: LazyConstant): Promise<void> {
    if (this.#constants.has(key)) return;
    const tensor = { dtype, shape, data: await read() };
    checkLength(`constant ${key}`, tensor);
    this.#constants.set(key, tensor);
  }

  /** Runs a registered operator by its full name; missing trailing arguments take the schema's defaults. */
  call(name: string, ...given: Argument<Tensor>[]): Tensor {
    const operator = this.#registry.get(name);
    const args = completeArguments(operator.schema, given);
    const spec = operator.shape(new Arguments<TensorSpec>(operator.schema, args));
    checkLengths(operator.schema, args);
    const out = this.#result(spec);
    const bound = operator.resolve(new Arguments(operator.schema, [...args, out]), this.cpu);
    if (bound.indexCheck) checkIndices(bound.indexCheck);
    const scratchBytes = bound.scratchBytes(this.#threads);
    if (this.#scratch.length < scratchBytes) this.#scratch = new Uint8Array(scratchBytes);
    bound.bind(this.#scratch.subarray(0, scratchBytes), this.#threads)();
    return out;
  }

  /**
   * Reuses the memory of a result that is not read any more for later calls: garbage collection of large buffers is slow.
   */
  recycle({ data: { buffer, byteLength } }: Tensor): void {
    if (byteLength === buffer.byteLength) this.#free.set(byteLength, [...(this.#free.get(byteLength) ?? []), buffer]);
  }

  #result({ dtype, shape }: TensorSpec): Tensor {
    const length = elementCount(shape);
    const buffer = this.#free.get(length * byteSize(dtype))?.pop();
    return buffer ? { dtype, shape, data: viewOf(dtype, buffer, 0, length) } : zeroTensor(dtype, shape);
  }

  /** The constant as a tensor. InvalidArgumentError where `load` has not read it. */
  constant(constant: LazyConstant): Tensor {
    const { key } = constant;
    const tensor = this.#constants.get(key);
    if (!tensor)
      throw new InvalidArgumentError(`eager: constant ${key} was not loaded; expected \`load\` of it before its use`);
    checkSameSpec(`constant ${key}`, tensor, constant);
    return tensor;
  }

  /** Adds a zeroed tensor that outlives the call; the same name gives the same tensor. */
  state(name: string, spec: TensorSpec): Tensor {
    const tensor = this.#states.get(name) ?? zeroTensor(spec.dtype, spec.shape);
    checkSameSpec(`state ${name}`, tensor, spec);
    this.#states.set(name, tensor);
    return tensor;
  }

  /** The handle of the sequence table. InvalidArgumentError where the builder was made without one. */
  sequences(): Tensor {
    if (!this.#sequences)
      throw new InvalidArgumentError("eager: expected a builder that was made with a table of sequences");
    return this.#sequences;
  }

  /** Type and sizes of a tensor. */
  spec(value: Tensor): TensorSpec {
    return value;
  }
}
