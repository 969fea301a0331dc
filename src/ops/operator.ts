/**
 * What an operator is: a schema, a shape rule, and kernels with the way from operator arguments to kernel arguments.
 * Operators of this package and operators of its users are registered alike.
 */
import { type DType, dtypes } from "../dtype.ts";
import { InvalidArgumentError, ShapeError, UnsupportedError } from "../errors.ts";
import type { Cpu, Kernel, KernelQuery } from "../kernels/contract.ts";
import type { EncodedCall } from "../kernels/memory.ts";
import { selectKernel } from "../kernels/select.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import { type ArgumentType, parseAnySchema, parseSchema, qualifiedName, type Schema } from "./schema.ts";

/** Dtype and sizes of a tensor whose values are not known, or not looked at. */
export interface TensorSpec {
  readonly dtype: DType;
  readonly shape: readonly number[];
}

/** An operator argument: a tensor (or its spec), or a literal. */
export type Argument<T> = T | number | boolean | string | null | readonly number[] | readonly T[];

/** Typed access to the arguments of one call, by name. `T` is a spec in shape rules and a tensor in kernels. */
export class Arguments<T extends TensorSpec> {
  readonly schema: Schema;
  readonly #values: readonly Argument<T>[];

  constructor(schema: Schema, values: readonly Argument<T>[]) {
    this.schema = schema;
    this.#values = values;
  }

  /** Undefined when the schema has no such argument. */
  #value(name: string): Argument<T> | undefined {
    const { args } = this.schema;
    for (let i = 0; i < args.length; i++) if (args[i]!.name === name) return this.#values[i] ?? null;
    return undefined;
  }

  /** ShapeError unless the argument is a tensor of one of the dtypes, when any are given. */
  tensor(name: string, ...dtypes: DType[]): T {
    const value = this.optionalTensor(name, ...dtypes);
    if (value === null) throw new ShapeError(`${this.#where(name)}: expected a tensor but found none`);
    return value;
  }

  optionalTensor(name: string, ...dtypes: DType[]): T | null {
    const value = this.#value(name);
    if (value === null || value === undefined) return null;
    if (typeof value !== "object" || !("shape" in value))
      throw new ShapeError(`${this.#where(name)}: expected a tensor but found ${describe(value)}`);
    if (dtypes.length > 0 && !dtypes.includes(value.dtype))
      throw new ShapeError(`${this.#where(name)}: expected dtype ${dtypes.join(" or ")} but found ${value.dtype}`);
    return value;
  }

  /** All tensors of the call by argument name; those of a list have the name of the list. */
  *allTensors(): Generator<readonly [string, T]> {
    for (const [i, { name }] of this.schema.args.entries()) {
      const value = this.#values[i] ?? null;
      for (const item of Array.isArray(value) ? value : [value])
        if (typeof item === "object" && item && "shape" in item) yield [name, item as T];
    }
  }

  /** The first tensor of the call, its main input as a rule. */
  firstTensor(): T {
    for (const value of this.#values.slice(0, this.schema.args.length)) {
      if (typeof value === "object" && value && "shape" in value) return value;
    }
    throw new ShapeError(`${qualifiedName(this.schema)}: expected a tensor but found none`);
  }

  /** A truth value is a number only where the schema says Scalar. */
  number(name: string): number {
    const value = this.#value(name);
    if (typeof value === "boolean" && this.schema.args.find((arg) => arg.name === name)?.type.startsWith("Scalar"))
      return Number(value);
    if (typeof value !== "number")
      throw new ShapeError(`${this.#where(name)}: expected a number but found ${describe(value)}`);
    return value;
  }

  /** A whole number of at least `least`: sizes and indices. */
  integer(name: string, least = Number.MIN_SAFE_INTEGER): number {
    const value = this.number(name);
    if (!Number.isSafeInteger(value) || value < least) {
      const bound = least === Number.MIN_SAFE_INTEGER ? "" : ` of at least ${least}`;
      this.fail(name, `expected a whole number${bound} but found ${value}`);
    }
    return value;
  }

  optionalNumber(name: string): number | null {
    return this.#value(name) === null ? null : this.number(name);
  }

  numbers(name: string): readonly number[] {
    const value = this.#value(name);
    if (!Array.isArray(value) || value.some((item) => typeof item !== "number"))
      throw new ShapeError(`${this.#where(name)}: expected a list of numbers but found ${describe(value)}`);
    return value as readonly number[];
  }

  optionalNumbers(name: string): readonly number[] | null {
    return this.#value(name) === null ? null : this.numbers(name);
  }

  /** A list of tensors, null where an optional one is missing. */
  tensors(name: string): readonly (T | null)[] {
    const value = this.#value(name);
    const isTensor = (item: unknown) => item === null || (typeof item === "object" && "shape" in item);
    if (!Array.isArray(value) || !value.every(isTensor))
      throw new ShapeError(`${this.#where(name)}: expected a list of tensors but found ${describe(value)}`);
    return value as readonly (T | null)[];
  }

  string(name: string): string {
    const value = this.#value(name);
    if (typeof value !== "string")
      throw new ShapeError(`${this.#where(name)}: expected a string but found ${describe(value)}`);
    return value;
  }

  boolean(name: string): boolean {
    return this.#value(name) === true;
  }

  /** Throws ShapeError with the operator and argument in front. */
  fail(name: string, problem: string): never {
    throw new ShapeError(`${this.#where(name)}: ${problem}`);
  }

  #where(name: string): string {
    return `${qualifiedName(this.schema)}, argument ${name}`;
  }
}

/** An argument for messages: literals as they are, tensors by their spec. */
function describe(value: Argument<TensorSpec> | undefined): string {
  if (typeof value !== "object" || value === null) return String(value);
  if ("shape" in value) return `a ${value.dtype} tensor [${value.shape}]`;
  return `a list of ${value.length}`;
}

/** An argument whose values choose among 0 .. limit - 1. */
export interface IndexRule {
  readonly argument: string;
  limit(args: Arguments<Tensor>): number;
}

/** A matrix of weights that several arguments of a call make up, for listings of a program. */
export interface StoredMatrix {
  /** The argument that holds most of it; `parts` names the others. */
  readonly argument: string;
  readonly parts: readonly string[];
  /** [n, k] */
  readonly shape: readonly number[];
  /** Bits of a weight, scales and the like not counted. */
  readonly bits: number;
  readonly groupSize: number | null;
  /** What its values are, where bits and group size do not say it. */
  readonly form?: string;
  readonly layout: string;
  readonly scaleType: "f32" | "f16" | null;
  /** Whether the bytes of `argument` are what they were when they were packed; absent when nothing tells. */
  intact?(bytes: Uint8Array): boolean;
}

/** What `registerOperator` takes. `A` is the argument type of the kernels. */
export interface OperatorDefinition<A> {
  /** In PyTorch's notation, an out-variant. */
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
  /** Programs do not name it: the runtime joins neighbouring calls into it, where a kernel other than a plain loop serves. */
  readonly isJoin?: boolean;
  /** Calls that read its result can be made ready only when it has run: it packs weights, whose header they read. */
  readonly isPacking?: boolean;
  /** Arguments of the out tensor's size over which every kernel may write it: each value is read before its place is written. */
  readonly inPlace?: readonly string[];
  /**
   * Arguments [1, T, n] that it works on row by row: row t of the out tensor depends on row t of each of these, and on
   * other arguments as a whole. Where only the last row is read, it is called for that row alone.
   */
  readonly rowwise?: readonly string[];
  /** Checked before a run when the values are known then; native kernels cannot raise errors. */
  readonly indices?: IndexRule;
  /** What kernel selection needs to know of a call. Default: no packed weights and m = 1. */
  query?(args: Arguments<Tensor>): KernelQuery;
  /** Kernel arguments: typed views of the tensors. `cpu` is what kernels are chosen for. */
  prepare(args: Arguments<Tensor>, cpu: Cpu): A;
  /** The weights of a call, where they are more than a plain tensor. */
  storedMatrix?(args: Arguments<TensorSpec>): StoredMatrix;
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
  readonly tensor: Tensor;
  readonly limit: number;
  /** For messages. */
  readonly where: string;
}

/** InvalidArgumentError for a value out of range. */
export function checkIndices({ tensor, limit, where }: IndexCheck): void {
  for (const value of tensor.data)
    if (value < 0 || value >= limit)
      throw new InvalidArgumentError(`${where}: expected 0..${limit - 1} but found ${value}`);
}

/** A call with its kernel chosen and arguments fixed, ready to run any number of times. */
export interface BoundCall {
  readonly operator: string;
  readonly kernel: Kernel<never>;
  readonly indexCheck: IndexCheck | null;
  /** Of the first tensor and of the out tensor. */
  readonly shapes: readonly (readonly number[])[];
  /** Bytes that it reads and writes, by the values that its arguments have now. For profiles. */
  bytes(): number;
  scratchBytes(threads: number): number;
  bind(scratch: Uint8Array, threads: number): () => void;
  /** The call for a plan of the kernel's target; null when it must run here. */
  encode(scratch: Uint8Array): EncodedCall | null;
}

export interface Operator {
  readonly schema: Schema;
  readonly name: string;
  readonly kernels: readonly Kernel<never>[];
  /** Widths of packed weights that calls may have; null when it takes all that its kernels take. */
  readonly bits: readonly number[] | null;
  /** Programs do not name it: the runtime joins neighbouring calls into it. */
  readonly isJoin: boolean;
  /** Calls that read its result can be made ready only when it has run. */
  readonly isPacking: boolean;
  /** Arguments that the out tensor may be written over. */
  readonly inPlace: readonly string[];
  /** Arguments that it works on row by row; empty where rows depend on each other. */
  readonly rowwise: readonly string[];
  shape(args: Arguments<TensorSpec>, planned?: DType): TensorSpec;
  /** Chooses the kernel for these tensors and this CPU. */
  resolve(args: Arguments<Tensor>, cpu: Cpu): BoundCall;
  /** Null where weights are plain tensors, or listed by the names of their arguments. */
  storedMatrix(args: Arguments<TensorSpec>): StoredMatrix | null;
}

const anyCall: KernelQuery = { layout: null, bits: null, m: 1 };

function isEmpty({ shape }: TensorSpec): boolean {
  return elementCount(shape) === 0;
}

function indexCheck(args: Arguments<Tensor>, { argument, limit }: IndexRule): IndexCheck {
  const where = `${qualifiedName(args.schema)}, argument ${argument}`;
  return { tensor: args.tensor(argument), limit: limit(args), where };
}

/** InvalidArgumentError where a tensor cannot have this dtype and these sizes. */
export function checkSpec(what: string, { dtype, shape }: TensorSpec): void {
  if (!dtypes.includes(dtype))
    throw new InvalidArgumentError(`${what}: expected dtype ${dtypes.join(", ")} but found ${dtype}`);
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0))
    throw new InvalidArgumentError(`${what}: expected whole numbers from 0 on as sizes but found [${shape}]`);
}

/** An operator from its definition. */
export function defineOperator<A>(definition: OperatorDefinition<A>): Operator {
  const schema = parseSchema(definition.schema);
  const name = qualifiedName(schema);
  return {
    schema,
    name,
    kernels: definition.kernels,
    bits: definition.bits ?? null,
    isJoin: definition.isJoin ?? false,
    isPacking: definition.isPacking ?? false,
    inPlace: definition.inPlace ?? [],
    rowwise: definition.rowwise ?? [],
    shape(args, planned) {
      const spec = definition.shape(args, planned);
      checkSpec(`${name}, result of its shape rule`, spec);
      return spec;
    },
    storedMatrix: (args) => definition.storedMatrix?.(args) ?? null,
    resolve(args, cpu) {
      // Without results there is nothing to be fast at, and no tile fits.
      const kernel = isEmpty(args.tensor(schema.args.at(-1)!.name))
        ? definition.kernels.at(-1)!
        : selectKernel(definition.kernels, definition.query?.(args) ?? anyCall, cpu);
      const prepared = definition.prepare(args, cpu);
      return {
        operator: name,
        kernel,
        indexCheck: definition.indices ? indexCheck(args, definition.indices) : null,
        shapes: [args.firstTensor(), args.tensor(schema.args.at(-1)!.name)].map(({ shape }) => shape),
        bytes: () => definition.bytes?.(args) ?? touchedBytes(args),
        scratchBytes: (threads) => kernel.scratchBytes?.(prepared, threads) ?? 0,
        bind: (scratch, threads) => kernel.bind(prepared, scratch, threads),
        encode: (scratch) => kernel.encode?.(prepared, scratch) ?? null,
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

/** An operator that gives a number, which later calls take as an argument. */
export interface NumberOperator {
  readonly schema: Schema;
  readonly name: string;
  evaluate(args: Arguments<Tensor>): number | boolean;
}

/** A number operator from its schema and its rule. */
export function numberOperator(schema: string, evaluate: NumberOperator["evaluate"]): NumberOperator {
  const parsed = parseAnySchema(schema);
  return { schema: parsed, name: qualifiedName(parsed), evaluate };
}

/** An operator with several results, or none of its own: written in place, or a view. Compiled programs call none. */
export interface Routine {
  readonly schema: Schema;
  readonly name: string;
  /** Specs of the out arguments, from the arguments and the dtypes that the program planned. */
  outs(args: Arguments<TensorSpec>, planned: readonly DType[]): readonly TensorSpec[];
  /** Null for a view: its result is its first tensor's data in the out's shape. */
  readonly run: ((args: Arguments<Tensor>) => void) | null;
}

/** A routine from its schema. */
export function routine(schema: string, outs: Routine["outs"], run: Routine["run"]): Routine {
  const parsed = parseAnySchema(schema);
  return { schema: parsed, name: qualifiedName(parsed), outs, run };
}

/** Operators that are not called by models of this package, but by programs of other exporters. */
export interface OtherOperators {
  readonly numbers?: Iterable<NumberOperator>;
  readonly routines?: Iterable<Routine>;
}

/** The operators that a program may call. */
export class OperatorRegistry {
  readonly #operators = new Map<string, Operator>();
  readonly #numbers: ReadonlyMap<string, NumberOperator>;
  readonly #routines: ReadonlyMap<string, Routine>;

  constructor(operators: Iterable<Operator> = [], { numbers = [], routines = [] }: OtherOperators = {}) {
    this.#numbers = new Map([...numbers].map((operator) => [operator.name, operator]));
    this.#routines = new Map([...routines].map((operator) => [operator.name, operator]));
    for (const operator of operators) this.register(operator);
  }

  /** InvalidArgumentError when the name is taken: an operator means one thing. */
  register(operator: Operator): void {
    if (this.has(operator.name)) throw new InvalidArgumentError(`operator ${operator.name} is registered already`);
    this.#operators.set(operator.name, operator);
  }

  has(name: string): boolean {
    return this.#operators.has(name) || this.#numbers.has(name) || this.#routines.has(name);
  }

  /** The operator of a name when it gives a number. */
  number(name: string): NumberOperator | undefined {
    return this.#numbers.get(name);
  }

  /** The operator of a name when it is a routine. */
  routine(name: string): Routine | undefined {
    return this.#routines.get(name);
  }

  /** The schema of any operator; UnsupportedError when there is none of that name. */
  schema(name: string): Schema {
    return (this.#numbers.get(name) ?? this.#routines.get(name) ?? this.get(name)).schema;
  }

  /** The operator of a name that writes one tensor, if there is one. */
  find(name: string): Operator | undefined {
    return this.#operators.get(name);
  }

  get(name: string): Operator {
    const operator = this.find(name);
    if (!operator) throw new UnsupportedError(`operator ${name} is not registered; register it with registerOperator`);
    return operator;
  }

  [Symbol.iterator](): Iterator<Operator> {
    return this.#operators.values();
  }
}

/** Completes the arguments of a call with the schema's defaults; ShapeError when one is missing, of another type, or too many are given. */
export function completeArguments<T>(schema: Schema, given: readonly Argument<T>[]): Argument<T>[] {
  const inputs = schema.args.filter((arg) => !arg.isOut);
  if (given.length > inputs.length)
    throw new ShapeError(`${qualifiedName(schema)}: expected ${inputs.length} arguments but found ${given.length}`);
  return inputs.map((arg, i) => {
    const value = i < given.length ? given[i] : arg.default;
    if (value === undefined) throw new ShapeError(`${qualifiedName(schema)}: argument ${arg.name} is missing`);
    const expected = literalProblem(arg.type, value);
    if (expected !== null)
      throw new ShapeError(
        `${qualifiedName(schema)}, argument ${arg.name}: expected ${expected} but found ${describe(value as Argument<TensorSpec>)}`,
      );
    return value;
  });
}

/** What literals and lists of an argument type are; other objects are tensors, or numbers that the run works out. */
const literals: readonly [RegExp, string, (item: unknown) => boolean][] = [
  [/^int$/, "a whole number", Number.isSafeInteger],
  [/^float$/, "a number", (item) => typeof item === "number"],
  [/^Scalar$/, "a number", (item) => typeof item === "number" || typeof item === "boolean"],
  [/^bool$/, "true or false", (item) => typeof item === "boolean"],
  [/^str$/, "a string", (item) => typeof item === "string"],
  [/^Tensor$/, "a tensor", () => false],
  [/\[\]$/, "a list", Array.isArray],
];

/** What a type expects where a literal, a list or nothing is none of it. */
function literalProblem(type: ArgumentType, value: unknown): string | null {
  if (value === null ? type.endsWith("?") : typeof value === "object" && !Array.isArray(value)) return null;
  const [, expected, fits] = literals.find(([pattern]) => pattern.test(type.replace(/\?$/, "")))!;
  return fits(value) ? null : expected;
}
