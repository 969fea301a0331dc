/** Lists the weights of a program from the operator calls that use them; nothing is read. */
import { checkList } from "../arguments.ts";
import { byteSize } from "../dtype.ts";
import type { PackedShape } from "../kernels/layout/packed.ts";
import { type Argument, Arguments, type TensorSpec } from "../ops/call-arguments.ts";
import type { StoredMatrix } from "../ops/operator.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { weightName } from "../ops/packed-constant.ts";
import { qualifiedName } from "../ops/schema.ts";
import type { DataSource, Instruction, Method, Program, TensorValue, Value } from "../program/program.ts";
import { operators } from "../registry/operators.ts";
import { checkProgram } from "../runtime/program.ts";
import { elementCount } from "../tensor.ts";

/**
 * A weight as operator calls describe it: packed for linear layers, packed embedding rows, a matrix of several tensors that
 * its operator describes, or a plain tensor.
 */
export interface ListedWeight {
  /**
   * How the weight is stored: packed for linear kernels, as embedding rows to look up, as an operator's own matrix, or as a
   * plain tensor.
   */
  readonly kind: "packed" | "embedding" | "matrix" | "plain";
  /** Name of the weight in the program. */
  readonly name: string;
  /** Full names of the operators that use it; two for tied embeddings. */
  readonly operators: readonly string[];
  /** Sizes [n, k] of quantized weights, [experts, n, k] of experts' weights, else the sizes of the tensor. */
  readonly shape: readonly number[];
  /** Type of the stored elements. */
  readonly dtype: TensorValue["dtype"];
  /**
   * Bits of a weight: the operator's for embeddings, the dtype's for plain tensors; null where the packed header says them.
   */
  readonly bits: number | null;
  /** Weights that share a scale; null for floats. */
  readonly groupSize: number | null;
  /** Bytes of the values with their scales and zero points. */
  readonly byteLength: number;
  /** The values, which can be read. */
  readonly data: DataSource;
  /** The operator's description of its matrix; null for other kinds than "matrix". */
  readonly matrix: StoredMatrix | null;
}

/** Arguments of a call by their names in the operator's schema; none for unknown operators. */
type NamedArguments = ReadonlyMap<string, Value>;

type Kernel = Extract<Instruction, { kind: "kernel" }>;

/** Lists weights in the order of first use; a buffer that several calls or methods use is one weight. */
export function listWeights(program: Program, registry: OperatorRegistry = operators): readonly ListedWeight[] {
  checkProgram(program);
  const weights = new Map<DataSource, ListedWeight>();
  const parts = new Set<DataSource>();
  for (const method of program.methods)
    for (const instruction of method.instructions) {
      if (instruction.kind !== "kernel") continue;
      const operator = qualifiedName(method.operators[instruction.operator]!);
      const named = namedArguments(method, instruction, operator, registry);
      for (const value of instruction.args.map((index) => method.values[index]!)) {
        if (value.kind !== "tensor" || value.constant === null) continue;
        const { data } = program.constants[value.constant]!;
        const known = weights.get(data);
        if (known && !known.operators.includes(operator))
          weights.set(data, { ...known, operators: [...known.operators, operator] });
        if (known || parts.has(data)) continue;
        const call = { operator, named, matrix: matrixOf(registry, operator, named) };
        const weight = describe(program, value, call);
        weights.set(data, { ...weight, data });
        for (const part of partsOf(program, value, call)) {
          parts.add(part);
          weights.delete(part);
        }
      }
    }
  return [...weights.values()];
}

/** Number of elements of all weights: a model's parameters. */
export function parameterCount(weights: readonly { readonly shape: readonly number[] }[]): number {
  checkList("weights", weights, ["shape"], "listWeights()");
  return weights.reduce((sum, { shape }) => sum + elementCount(shape), 0);
}

/** Mean number of bits that a weight takes in the program, scales and all else included. */
export function bitsPerWeight(weights: readonly Pick<ListedWeight, "shape" | "byteLength">[]): number {
  checkList("weights", weights, ["shape", "byteLength"], "listWeights()");
  const bytes = weights.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return (8 * bytes) / parameterCount(weights);
}

function namedArguments(
  method: Method,
  { args }: Kernel,
  operator: string,
  registry: OperatorRegistry,
): NamedArguments {
  if (!registry.has(operator)) return new Map();
  const schema = registry.schema(operator);
  return new Map(schema.args.flatMap(({ name }, i) => (i < args.length ? [[name, method.values[args[i]!]!]] : [])));
}

/** One operator call, as far as it tells about weights. */
interface WeightCall {
  readonly operator: string;
  readonly named: NamedArguments;
  readonly matrix: StoredMatrix | null;
}

function matrixOf(registry: OperatorRegistry, operator: string, named: NamedArguments): StoredMatrix | null {
  const found = registry.find(operator);
  if (!found) return null;
  const { schema, storedMatrix } = found;
  const values = schema.args.map(({ name }) => specArgument(named.get(name)));
  return storedMatrix(new Arguments<TensorSpec>(schema, values));
}

function specArgument(value: Value | undefined): Argument<TensorSpec> {
  switch (value?.kind) {
    case "tensor":
      return { dtype: value.dtype, shape: value.sizes };
    case "int":
    case "double":
    case "bool":
    case "string":
      return value.value;
    default:
      return null;
  }
}

function describe(
  program: Program,
  value: TensorValue,
  { operator, named, matrix }: WeightCall,
): Omit<ListedWeight, "data"> {
  const { byteLength } = program.constants[value.constant!]!.data;
  const base = { name: baseName(value), operators: [operator], dtype: value.dtype, byteLength, matrix: null };
  if (matrix && value === named.get(matrix.argument)) {
    const { shape, bits, groupSize, parts } = matrix;
    const all = constantsOf(program, named, parts).reduce((sum, part) => sum + part.byteLength, byteLength);
    return { ...base, kind: "matrix", shape, bits, groupSize, byteLength: all, matrix };
  }
  const packed = value === named.get("packed_weights") ? packedShape(named) : null;
  if (packed) {
    const experts = intOf(named.get("experts"));
    const shape = [...(experts === null ? [] : [experts]), packed.n, packed.k];
    return { ...base, kind: "packed", shape, bits: null, groupSize: packed.groupSize };
  }
  const rows = intOf(named.get("num_embeddings"));
  const dim = intOf(named.get("embedding_dim"));
  if (value === named.get("packed_weight_qvals") && rows !== null && dim !== null) {
    const groups = sizesOf(named.get("weight_scales"))[1] ?? 1;
    const parts = embeddingParts(program, named).reduce((sum, part) => sum + part.byteLength, byteLength);
    const bits = Number(/(\d)bit/.exec(operator)?.[1] ?? 8);
    return { ...base, kind: "embedding", shape: [rows, dim], bits, groupSize: dim / groups, byteLength: parts };
  }
  return { ...base, kind: "plain", shape: value.sizes, bits: 8 * byteSize(value.dtype), groupSize: null };
}

/** Scales and zero points of an embedding, which are separate tensors. */
function embeddingParts(program: Program, named: NamedArguments): DataSource[] {
  return constantsOf(program, named, ["weight_scales", "weight_zeros"]);
}

/** Constants that belong to the weight in `value` and are not listed by themselves. */
function partsOf(program: Program, value: TensorValue, { named, matrix }: WeightCall): DataSource[] {
  if (value === named.get("packed_weight_qvals")) return embeddingParts(program, named);
  return matrix && value === named.get(matrix.argument) ? constantsOf(program, named, matrix.parts) : [];
}

function constantsOf(program: Program, named: NamedArguments, names: readonly string[]): DataSource[] {
  return names.flatMap((name) => {
    const value = named.get(name);
    return value?.kind === "tensor" && value.constant !== null ? [program.constants[value.constant]!.data] : [];
  });
}

function baseName({ name, constant }: TensorValue): string {
  return name === null ? `constant ${constant}` : weightName(name);
}

function packedShape(named: NamedArguments): PackedShape | null {
  const n = intOf(named.get("n"));
  const k = intOf(named.get("k"));
  const groupSize = intOf(named.get("group_size"));
  return n === null || k === null || groupSize === null ? null : { n, k, groupSize };
}

function intOf(value: Value | undefined): number | null {
  return value?.kind === "int" ? value.value : null;
}

function sizesOf(value: Value | undefined): readonly number[] {
  return value?.kind === "tensor" ? value.sizes : [];
}
