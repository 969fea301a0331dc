/**
 * What an operator is: a schema, a shape rule, and kernels with the way from operator arguments to kernel arguments.
 * Operators of this package and operators of its users are registered alike.
 */
import type { DType } from "../dtype.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Cpu, EncodedCall, Kernel, KernelQuery } from "../kernels/contract.ts";
import { selectKernel } from "../kernels/select.ts";
import type { SequenceUse } from "../kernels/sequence-table.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import { type Arguments, checkSpec, type TensorSpec } from "./call-arguments.ts";
import { checkOverlaps } from "./call-memory.ts";
import { parseSchema, qualifiedName, type Schema } from "./schema.ts";

/** An argument whose values choose among 0 .. limit - 1. */
interface IndexRule {
  /** Name of the argument whose values are compared. */
  readonly argument: string;
  /** One more than the largest value that is allowed, by the other arguments. */
  limit(args: Arguments<Tensor>): number;
}

/** A constant of a program, of which parts are read. */
export interface StoredConstant {
  /** Name of the tensor. */
  readonly name: string;
  /** Bytes of the tensor. */
  readonly byteLength: number;
  /** Reads `length` bytes from `offset` on. */
  read(offset: number, length: number): Promise<Uint8Array>;
}

/** A matrix of weights that several arguments of a call make up, for listings of a program. */
export interface StoredMatrix {
  /** The argument that holds most of it; `parts` names the others. */
  readonly argument: string;
  /** Names of the arguments that hold the matrix. */
  readonly parts: readonly string[];
  /** Sizes [n, k] of the matrix. */
  readonly shape: readonly number[];
  /** Bits of a weight, scales and the like not counted. */
  readonly bits: number;
  /** Weights that share a scale; null for floats. */
  readonly groupSize: number | null;
  /** What the values are, where bits and group size do not say it. */
  readonly form?: string;
  /** Name of the packed layout, or how the matrix is stored otherwise. */
  readonly layout: string;
  /** Type of the scales; null without scales. */
  readonly scaleType: "f32" | "f16" | null;
  /** Whether the bytes of `argument` are what they were when they were packed; absent when nothing tells. */
  intact?(bytes: Uint8Array): boolean;
}

/** What `registerOperator` takes. `A` is the argument type of the kernels. */
export interface OperatorDefinition<A> {
  /** Schema in PyTorch's notation, of an out-variant. */
  readonly schema: string;
  /**
   * Dtype and sizes of the out tensor. Also checks the arguments: errors are raised here, before any kernel runs.
   * planned: the dtype of the out tensor where a program has one already; for operators that convert to it.
   */
  shape(args: Arguments<TensorSpec>, planned?: DType): TensorSpec;
  /** Best first, as the first that serves a call is chosen; the last must serve every call on every CPU. */
  readonly kernels: readonly Kernel<A>[];
  /** Widths of packed weights that calls may have; absent when it takes all that its kernels take. */
  readonly bits?: readonly number[];
  /**
   * Whether the runtime fuses neighbouring calls into this operator, where a kernel other than a plain loop serves.
   * Programs do not name it.
   */
  readonly isFused?: boolean;
  /**
   * Whether this operator packs weights: calls that read its result can be made ready only when it has run, since they
   * read the header.
   */
  readonly isPacking?: boolean;
  /**
   * Arguments of the out tensor's size over which every kernel may write it: each value is read before its place is written.
   * Calls whose out tensor lies over any other argument, or only partly over one of these, are refused.
   */
  readonly inPlace?: readonly string[];
  /** Arguments that every kernel reads whole before it writes anything: the out tensor may lie over them in any way. */
  readonly readFirst?: readonly string[];
  /**
   * Arguments [1, T, n] that it works on row by row: row t of the out tensor depends on row t of each of these, and on
   * other arguments as a whole. Where only the last row is read, it is called for that row alone.
   */
  readonly rowwise?: readonly string[];
  /** Values that are checked before a run, when they are known then; native kernels cannot raise errors. */
  readonly indices?: IndexRule;
  /** Arguments of which a call reads a few rows here and there, such as those of tokens, and nothing else. */
  readonly tables?: readonly string[];
  /** What kernel selection needs to know of a call. Default: no packed weights and m = 1. */
  query?(args: Arguments<Tensor>): KernelQuery;
  /** Kernel arguments: typed views of the tensors. `cpu` is what kernels are chosen for. */
  prepare(args: Arguments<Tensor>, cpu: Cpu): NoInfer<A>;
  /** The weights of a call, where they are more than a plain tensor. */
  storedMatrix?(args: Arguments<TensorSpec>): StoredMatrix;
  /**
   * Raises an error for constants that kernels cannot read right, when a program is loaded. `constantOf`: the constant of
   * that argument; null where it is none.
   */
  checkConstants?(args: Arguments<TensorSpec>, constantOf: (argument: string) => StoredConstant | null): Promise<void>;
  /** What a call keeps of each sequence, for operators that work on the sequences of a step. Also checks its arguments. */
  sequenceUse?(args: Arguments<TensorSpec>): SequenceUse;
  /**
   * Multiplications of a call, of operators that take more than some for each element. Nothing interrupts plain loops:
   * calls of too many are refused where no other kernel serves.
   */
  multiplications?(args: Arguments<TensorSpec>): number;
  /** Bytes that a call reads and writes, by the values that its arguments have now. Default: of all its tensors. */
  bytes?(args: Arguments<Tensor>): number;
}

/** Bytes of a call's tensors; of those named in `tables` the call touches a part, 0 to 1. */
export function touchedBytes(args: Arguments<Tensor>, tables: readonly string[] = [], part = 1): number {
  let bytes = 0;
  for (const [name, { data }] of args.allTensors()) bytes += data.byteLength * (tables.includes(name) ? part : 1);
  return bytes;
}

/** Values that must be 0 .. limit - 1 when a call runs. */
export interface IndexCheck {
  /** Tensor of the values. */
  readonly tensor: Tensor;
  /** One more than the largest value that is allowed. */
  readonly limit: number;
  /** Place that messages name. */
  readonly where: string;
}

/** InvalidArgumentError for a value out of range. */
export function checkIndices({ tensor, limit, where }: IndexCheck): void {
  for (const value of tensor.data)
    if (value < 0 || value >= limit)
      throw new InvalidArgumentError(`${where}: expected 0..${limit - 1} but found ${value}`);
}

/** A kernel and its arguments: what runs. */
export interface KernelCall {
  /** Full name of the operator. */
  readonly operator: string;
  /** Kernel that serves the call. */
  readonly kernel: Kernel<never>;
  /** Bytes of memory that a run on so many threads may write. */
  scratchBytes(threads: number): number;
  /** Makes a function that runs the call, with this scratch memory, on so many threads. */
  bind(scratch: Uint8Array, threads: number): () => void;
  /** The call for a plan of the kernel's target; null when it must run here. */
  encode(scratch: Uint8Array): EncodedCall | null;
}

/** A kernel of an operator with its arguments. */
export function kernelCall<A>(operator: string, kernel: Kernel<A>, args: A): KernelCall {
  return {
    operator,
    kernel,
    scratchBytes: (threads) => kernel.scratchBytes?.(args, threads) ?? 0,
    bind: (scratch, threads) => kernel.bind(args, scratch, threads),
    encode: (scratch) => kernel.encode?.(args, scratch) ?? null,
  };
}

/** A call with its kernel chosen and arguments fixed, ready to run any number of times. */
export interface BoundCall extends KernelCall {
  /** Kernels that its kernel was chosen among, by `query`; for calls of other sizes. */
  readonly candidates: readonly Kernel<never>[];
  /** What the kernel was chosen by. */
  readonly query: KernelQuery;
  /** Arguments of the kernel. */
  readonly args: unknown;
  /** Values that must be in range when the call runs; null without any. */
  readonly indexCheck: IndexCheck | null;
  /** 0 where its work grows with its elements only. */
  readonly multiplications: number;
  /** Sizes of the first tensor and of the out tensor, for reports. */
  readonly shapes: readonly (readonly number[])[];
  /** Bytes that it reads and writes, by the values that its arguments have now. For profiles. */
  bytes(): number;
}

/** An operator as programs call it: its schema, its shape rule, and its kernels, the best first. */
export interface Operator {
  /** Name, arguments and their types. */
  readonly schema: Schema;
  /** Full name with namespace and overload, such as `aten::add.out`. */
  readonly name: string;
  /** Kernels that may serve calls, of all targets. */
  readonly kernels: readonly Kernel<never>[];
  /** Widths of packed weights that calls may have; null when it takes all that its kernels take. */
  readonly bits: readonly number[] | null;
  /** Whether the runtime fuses neighbouring calls into this operator, which programs do not name. */
  readonly isFused: boolean;
  /** Whether calls that read the result can be made ready only when this operator has run. */
  readonly isPacking: boolean;
  /** Arguments that the out tensor may be written over. */
  readonly inPlace: readonly string[];
  /** Arguments that it works on row by row; empty where rows depend on each other. */
  readonly rowwise: readonly string[];
  /** Arguments of which a call reads a few rows here and there, and nothing else. */
  readonly tables: readonly string[];
  /** Type and sizes of the result; ShapeError where the arguments do not fit. */
  shape(args: Arguments<TensorSpec>, planned?: DType): TensorSpec;
  /** Chooses the kernel for these tensors and this CPU. ShapeError where their memory overlaps in a way that is not allowed. */
  resolve(args: Arguments<Tensor>, cpu: Cpu): BoundCall;
  /** Whether calls keep anything of the sequences of a step. */
  readonly keepsSequences: boolean;
  /** What a call keeps of each sequence; null for operators that know no sequences. */
  sequenceUse(args: Arguments<TensorSpec>): SequenceUse | null;
  /**
   * Tells how a call's weights are stored; null where they are plain tensors, or listed by the names of their
   * arguments.
   */
  storedMatrix(args: Arguments<TensorSpec>): StoredMatrix | null;
  /** Checks the constants of a call when a program is loaded; null of operators that check none. */
  readonly checkConstants: OperatorDefinition<never>["checkConstants"] | null;
}

const anyCall: KernelQuery = { layout: null, bits: null, m: 1 };

function isEmpty({ shape }: TensorSpec): boolean {
  return elementCount(shape) === 0;
}

/** Whether no tensor that a call writes has elements. */
function writesNothing(args: Arguments<Tensor>): boolean {
  const { schema } = args;
  const isWritten = (name: string) => schema.args.some((arg) => arg.name === name && arg.mutable);
  return [...args.allTensors()].every(([name, tensor]) => !isWritten(name) || isEmpty(tensor));
}

/** What runs a call without results: kernels would loop over the sizes, however large, that are not 0. */
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

/** Without values there is nothing to be fast at, and no tile fits: the last kernel serves, or none. */
function candidatesFor<A>(kernels: readonly Kernel<A>[], args: Arguments<Tensor>): readonly Kernel<A>[] {
  if (writesNothing(args)) return nothing;
  return [...args.allTensors()].some(([, tensor]) => isEmpty(tensor)) ? kernels.slice(-1) : kernels;
}

function indexCheck(args: Arguments<Tensor>, { argument, limit }: IndexRule): IndexCheck {
  const where = `${qualifiedName(args.schema)}, argument ${argument}`;
  return { tensor: args.tensor(argument), limit: limit(args), where };
}

/** Plain loops take up to two minutes for so many multiplications. */
const PLAIN_MULTIPLICATIONS_MAX = 2 ** 35;

function checkWork(name: string, { target }: Kernel<never>, multiplications: number): void {
  if (target === "reference" && multiplications > PLAIN_MULTIPLICATIONS_MAX)
    throw new UnsupportedError(
      `${name}: takes ${multiplications} multiplications in one call, and plain loops, which serve it, at most 2^35`,
    );
}

/** An operator from its definition. Bundlers leave out operators that nothing calls. */
/* @__NO_SIDE_EFFECTS__ */
export function defineOperator<A>(definition: OperatorDefinition<A>): Operator {
  const schema = parseSchema(definition.schema);
  const name = qualifiedName(schema);
  return {
    schema,
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
        shapes: [args.firstTensor(), args.tensor(schema.args.at(-1)!.name)].map(({ shape }) => shape),
        bytes: () => definition.bytes?.(args) ?? touchedBytes(args),
      };
    },
  };
}

/** One operator out of several of one schema: a call is served by the first that `fits`, else by the last. */
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
