/**
 * Operators: a schema, a shape rule, and kernels with the mapping from operator to kernel arguments. Operators of this
 * package and of its users are registered in the same way.
 */
import type { DType } from "../dtype.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Cpu, EncodedCall, Kernel, KernelQuery } from "../kernels/contract.ts";
import { selectKernel } from "../kernels/select.ts";
import type { SequenceUse } from "../kernels/sequence-table.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import { type Arguments, checkSpec, type TensorSpec } from "./call-arguments.ts";
import { checkOverlaps } from "./call-memory.ts";
import { nameOf, parseSchema, qualifiedName, type Schema } from "./schema.ts";

/** An argument whose values are indices, 0 .. limit - 1. */
interface IndexRule {
  /** Name of the argument that holds the indices. */
  readonly argument: string;
  /** Number of valid indices, given the other arguments. */
  limit(args: Arguments<Tensor>): number;
}

/** A constant of a program, which can be read in parts. */
export interface StoredConstant {
  /** Name of the tensor. */
  readonly name: string;
  /** Bytes of the tensor. */
  readonly byteLength: number;
  /** Reads `length` bytes from `offset` on. */
  read(offset: number, length: number): Promise<Uint8Array>;
}

/** A weight matrix that consists of several arguments of a call, for listings of a program. */
export interface StoredMatrix {
  /** The argument that holds most of it; `parts` names the others. */
  readonly argument: string;
  /** Names of the other arguments that hold parts of the matrix. */
  readonly parts: readonly string[];
  /** Sizes [n, k] of the matrix. */
  readonly shape: readonly number[];
  /** Bits of a weight, without scales and zero points. */
  readonly bits: number;
  /** Weights that share a scale; null for floats. */
  readonly groupSize: number | null;
  /** The weight's format, where bits and group size do not tell it. */
  readonly form?: string;
  /** Name of the packed layout, or of another way of storing. */
  readonly layout: string;
  /** Type of the scales; null without scales. */
  readonly scaleType: "f32" | "f16" | null;
  /** Whether the bytes of `argument` match their checksum; absent where there is none. */
  intact?(bytes: Uint8Array): boolean;
}

/** Definition of an operator for `registerOperator`. `A` is the argument type of the kernels. */
export interface OperatorDefinition<A> {
  /** Schema in PyTorch's notation, of an out-variant. */
  readonly schema: string;
  /**
   * Computes dtype and shape of the out tensor, and checks the arguments: errors are raised here, before any kernel runs.
   * planned: the dtype that a program has planned for the out tensor, for operators that convert to it.
   */
  shape(args: Arguments<TensorSpec>, planned?: DType): TensorSpec;
  /**
   * Kernels, best first, since the first that can serve a call is selected; the last must serve every call on every CPU.
   */
  readonly kernels: readonly Kernel<A>[];
  /** Bits of packed weights that calls may have; absent for all that the kernels read. */
  readonly bits?: readonly number[];
  /**
   * Whether load-time fusion makes this operator of neighbouring calls, where a kernel other than the reference serves.
   * Programs do not name it.
   */
  readonly isFused?: boolean;
  /**
   * Whether this operator packs weights: calls that read its result need its header, so they are made ready after it has
   * run.
   */
  readonly isPacking?: boolean;
  /**
   * Arguments of the out tensor's size that every kernel may overwrite: each value is read before its place is written.
   * Calls whose out tensor lies over any other argument, or partly over one of these, are refused.
   */
  readonly inPlace?: readonly string[];
  /**
   * Arguments that every kernel reads whole before it writes anything, so that the out tensor may lie over them in any way.
   */
  readonly readFirst?: readonly string[];
  /**
   * Arguments [1, T, n] that it works on token by token: row t of the out tensor depends on row t of each of these, and on
   * other arguments as a whole. Where only the last row is read, the operator is called for that row alone.
   */
  readonly rowwise?: readonly string[];
  /** Indices that are checked before a run, when they are known by then: native kernels cannot raise errors. */
  readonly indices?: IndexRule;
  /** Arguments of which a call reads only a few rows, such as embedding rows of tokens. */
  readonly tables?: readonly string[];
  /** What kernel selection needs to know of a call. Default: no packed weights and m = 1. */
  query?(args: Arguments<Tensor>): KernelQuery;
  /** Kernel arguments: typed views of the tensors. `cpu`: the CPU that kernels are selected for. */
  prepare(args: Arguments<Tensor>, cpu: Cpu): NoInfer<A>;
  /** Describes the weights of a call, where they are more than a plain tensor. */
  storedMatrix?(args: Arguments<TensorSpec>): StoredMatrix;
  /**
   * Checks constants when a program is loaded: throws for those that kernels would misread. `constantOf` gives the constant
   * of an argument; null where it is none.
   */
  checkConstants?(args: Arguments<TensorSpec>, constantOf: (argument: string) => StoredConstant | null): Promise<void>;
  /**
   * What a call keeps of each sequence (KV cache or recurrent state), after checking its arguments; for operators on
   * sequences.
   */
  sequenceUse?(args: Arguments<TensorSpec>): SequenceUse;
  /**
   * Number of multiplications of a call, for operators with more than a few for each element. Reference kernels cannot be
   * interrupted, so calls with too many are refused where no other kernel serves.
   */
  multiplications?(args: Arguments<TensorSpec>): number;
  /** Bytes that a call reads and writes with the present values of its arguments. Default: those of all its tensors. */
  bytes?(args: Arguments<Tensor>): number;
}

/** Bytes of a call's tensors, of which the call touches only the share `part`, 0 to 1, of those in `tables`. */
export function touchedBytes(args: Arguments<Tensor>, tables: readonly string[] = [], part = 1): number {
  let bytes = 0;
  for (const [name, { data }] of args.allTensors()) bytes += data.byteLength * (tables.includes(name) ? part : 1);
  return bytes;
}

/** Indices that must be in 0 .. limit - 1 when a call runs. */
export interface IndexCheck {
  /** Tensor of the indices. */
  readonly tensor: Tensor;
  /** Number of valid indices. */
  readonly limit: number;
  /** Operator and argument, for messages. */
  readonly where: string;
}

/** InvalidArgumentError for an index out of range. */
export function checkIndices({ tensor, limit, where }: IndexCheck): void {
  for (const value of tensor.data)
    if (value < 0 || value >= limit)
      throw new InvalidArgumentError(`${where}: expected 0..${limit - 1} but found ${value}`);
}

/** A kernel and its arguments, ready to run. */
export interface KernelCall {
  /** Full name of the operator. */
  readonly operator: string;
  /** Kernel that is selected for the call. */
  readonly kernel: Kernel<never>;
  /** Bytes of scratch that a run on `threads` threads needs. */
  scratchBytes(threads: number): number;
  /** Makes a function that runs the call on `threads` threads, with this scratch. */
  bind(scratch: Uint8Array, threads: number): () => void;
  /** The call encoded for a plan of the kernel's target; null when it must run on the JavaScript thread. */
  encode(scratch: Uint8Array): EncodedCall | null;
}

/** Makes a call of a kernel and its arguments. */
export function kernelCall<A>(operator: string, kernel: Kernel<A>, args: A): KernelCall {
  return {
    operator,
    kernel,
    scratchBytes: (threads) => kernel.scratchBytes?.(args, threads) ?? 0,
    bind: (scratch, threads) => kernel.bind(args, scratch, threads),
    encode: (scratch) => kernel.encode?.(args, scratch) ?? null,
  };
}

/** A call with its kernel selected and its arguments fixed, ready to run any number of times. */
export interface BoundCall extends KernelCall {
  /** Kernels among which `query` selected one; for calls of other sizes. */
  readonly candidates: readonly Kernel<never>[];
  /** The query that selected the kernel. */
  readonly query: KernelQuery;
  /** Arguments of the kernel. */
  readonly args: unknown;
  /** Indices that must be in range when the call runs; null for none. */
  readonly indexCheck: IndexCheck | null;
  /** Number of multiplications; 0 where the work only grows with the number of elements. */
  readonly multiplications: number;
  /** Shapes of the first tensor and of the out tensor, for reports. */
  readonly shapes: readonly (readonly number[])[];
  /** Bytes that it reads and writes with the present values of its arguments, for profiles. */
  bytes(): number;
}

/** An operator as programs call it: its schema, its shape rule, and its kernels, the best first. */
export interface Operator {
  /** Name, arguments and their types. */
  readonly schema: Schema;
  /** Full name with namespace and overload, such as `aten::add.out`. */
  readonly name: string;
  /** Kernels of all targets, best first. */
  readonly kernels: readonly Kernel<never>[];
  /** Bits of packed weights that calls may have; null for all that the kernels read. */
  readonly bits: readonly number[] | null;
  /** Whether load-time fusion makes this operator of neighbouring calls; programs do not name it. */
  readonly isFused: boolean;
  /** Whether calls that read the result can be made ready only after this operator has run. */
  readonly isPacking: boolean;
  /** Arguments that the out tensor may be written over. */
  readonly inPlace: readonly string[];
  /** Arguments that it works on token by token; empty where tokens depend on each other. */
  readonly rowwise: readonly string[];
  /** Arguments of which a call reads only a few rows. */
  readonly tables: readonly string[];
  /** Type and shape of the result. ShapeError where the arguments do not fit. */
  shape(args: Arguments<TensorSpec>, planned?: DType): TensorSpec;
  /**
   * Selects the kernel for these tensors and this CPU. ShapeError where their memory overlaps in a way that is not allowed.
   */
  resolve(args: Arguments<Tensor>, cpu: Cpu): BoundCall;
  /** Whether calls keep anything of the sequences of a step, such as a KV cache. */
  readonly keepsSequences: boolean;
  /** What a call keeps of each sequence; null for operators without sequences. */
  sequenceUse(args: Arguments<TensorSpec>): SequenceUse | null;
  /**
   * Describes how a call's weights are stored; null where they are plain tensors, or listed by the names of their
   * arguments.
   */
  storedMatrix(args: Arguments<TensorSpec>): StoredMatrix | null;
  /** Checks the constants of a call when a program is loaded; null for operators without such checks. */
  readonly checkConstants: OperatorDefinition<never>["checkConstants"] | null;
}

const anyCall: KernelQuery = { layout: null, bits: null, m: 1 };

function isEmpty({ shape }: TensorSpec): boolean {
  return elementCount(shape) === 0;
}

/** Whether all tensors that a call writes are empty. */
function writesNothing(args: Arguments<Tensor>, tensors: readonly (readonly [string, Tensor])[]): boolean {
  const written = args.schema.args.filter(({ mutable }) => mutable);
  return tensors.every(([name, tensor]) => isEmpty(tensor) || !written.some((arg) => arg.name === name));
}

/** The kernel of calls with empty results: others would loop over those sizes that are not 0, however large. */
const nothingToDo: Kernel<unknown> = {
  name: "nothing_any_1x1x1_reference",
  target: "reference",
  layouts: null,
  bits: null,
  needs: [],
  mStep: 1,
  nStep: 1,
  bind: () => () => {},
};

const nothing: readonly Kernel<unknown>[] = [nothingToDo];

/** Kernels for a call. With an empty tensor no tile fits and nothing can be fast, so only the last kernel serves. */
function candidatesFor<A>(kernels: readonly Kernel<A>[], args: Arguments<Tensor>): readonly Kernel<A>[] {
  const tensors = [...args.allTensors()];
  if (writesNothing(args, tensors)) return nothing;
  return tensors.some(([, tensor]) => isEmpty(tensor)) ? kernels.slice(-1) : kernels;
}

function indexCheck(args: Arguments<Tensor>, { argument, limit }: IndexRule): IndexCheck {
  const where = `${qualifiedName(args.schema)}, argument ${argument}`;
  return { tensor: args.tensor(argument), limit: limit(args), where };
}

/** Reference kernels take up to two minutes for this many multiplications. */
const PLAIN_MULTIPLICATIONS_MAX = 2 ** 35;

function checkWork(name: string, { target }: Kernel<never>, multiplications: number): void {
  if (target === "reference" && multiplications > PLAIN_MULTIPLICATIONS_MAX)
    throw new UnsupportedError(
      `${name}: takes ${multiplications} multiplications in one call, and plain loops, which serve it, at most 2^35`,
    );
}

/** Makes an operator of its definition. Bundlers leave out operators that nothing calls. */
/* @__NO_SIDE_EFFECTS__ */
export function defineOperator<A>(definition: OperatorDefinition<A>): Operator {
  let schema: Schema | undefined;
  const name = nameOf(definition.schema);
  return {
    // Of some 250 operators a program calls ten.
    get schema() {
      schema ??= parseSchema(definition.schema);
      return schema;
    },
    name,
    kernels: definition.kernels,
    bits: definition.bits ?? null,
    isFused: definition.isFused ?? false,
    isPacking: definition.isPacking ?? false,
    inPlace: definition.inPlace ?? [],
    rowwise: definition.rowwise ?? [],
    tables: definition.tables ?? [],
    shape(args, planned) {
      const spec = definition.shape(args, planned);
      checkSpec(`${name}, result of its shape rule`, spec);
      return spec;
    },
    keepsSequences: definition.sequenceUse !== undefined,
    sequenceUse: (args) => definition.sequenceUse?.(args) ?? null,
    storedMatrix: (args) => definition.storedMatrix?.(args) ?? null,
    checkConstants: definition.checkConstants ?? null,
    resolve(args, cpu) {
      checkOverlaps(args, { inPlace: definition.inPlace ?? [], readFirst: definition.readFirst ?? [] });
      const candidates = candidatesFor(definition.kernels, args);
      const query = (candidates === definition.kernels && definition.query?.(args)) || anyCall;
      const kernel = selectKernel(candidates, query, cpu);
      const multiplications = definition.multiplications?.(args) ?? 0;
      checkWork(name, kernel, multiplications);
      const prepared = definition.prepare(args, cpu);
      return {
        ...kernelCall(name, kernel, prepared),
        candidates,
        query,
        args: prepared,
        indexCheck: definition.indices ? indexCheck(args, definition.indices) : null,
        multiplications,
        shapes: [args.firstTensor(), args.tensor(args.schema.args.at(-1)!.name)].map(({ shape }) => shape),
        bytes: () => definition.bytes?.(args) ?? touchedBytes(args),
      };
    },
  };
}

/** Joins two operators with the same schema: `special` serves the calls that fit it, `general` all others. */
export function overload(
  general: Operator,
  special: { readonly operator: Operator; fits(args: Arguments<TensorSpec>): boolean },
): Operator {
  const choose = (args: Arguments<TensorSpec>) => (special.fits(args) ? special.operator : general);
  return {
    ...general,
    kernels: [...special.operator.kernels, ...general.kernels],
    inPlace: special.operator.inPlace,
    rowwise: special.operator.rowwise,
    shape: (args, planned) => choose(args).shape(args, planned),
    resolve: (args, cpu) => choose(args).resolve(args, cpu),
  };
}
