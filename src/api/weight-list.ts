/** The weights of a program, found from the operator calls that use them; nothing is read. */
import { byteSize } from "../dtype.ts";
import type { PackedShape } from "../kernels/layout/packed.ts";
import type { OperatorRegistry } from "../ops/operator.ts";
import { operators } from "../ops/registry.ts";
import { qualifiedName } from "../ops/schema.ts";
import type { DataSource, Instruction, Method, Program, TensorValue, Value } from "../program/program.ts";
import { elementCount } from "../tensor.ts";

/** A weight as far as operator calls tell: packed for linear layers, packed embedding rows, or a plain tensor. */
export interface ListedWeight {
  readonly kind: "packed" | "embedding" | "plain";
  readonly name: string;
  /** Full names of the operators that use it; two for tied embeddings. */
  readonly operators: readonly string[];
  /** [n, k] of quantized weights, else the sizes of the tensor. */
  readonly shape: readonly number[];
  readonly dtype: TensorValue["dtype"];
  /** Bits of a stored value: of the operator for embeddings, of the dtype for plain tensors, null where the header says. */
  readonly bits: number | null;
  readonly groupSize: number | null;
  /** Of the values with their scales and zero points. */
  readonly byteLength: number;
  /** The values. */
  readonly data: DataSource;
}

/** Arguments of a call by the names of its schema; those of unknown operators have none. */
type NamedArguments = ReadonlyMap<string, Value>;

type Kernel = Extract<Instruction, { kind: "kernel" }>;

/** Weights in the order of first use; a buffer that several calls or methods use is one weight. */
export function listWeights(program: Program, registry: OperatorRegistry = operators): readonly ListedWeight[] {
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
        weights.set(data, { ...describe(program, value, operator, named), data });
        if (value === named.get("packed_weight_qvals"))
          for (const part of embeddingParts(program, named)) parts.add(part);
      }
    }
  return [...weights.values()];
}

/** Bits that a weight takes in the program, scales and everything else included: the mean over all weights. */
export function bitsPerWeight(weights: readonly Pick<ListedWeight, "shape" | "byteLength">[]): number {
  const bytes = weights.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const count = weights.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  return (8 * bytes) / count;
}

function namedArguments(
  method: Method,
  { args }: Kernel,
  operator: string,
  registry: OperatorRegistry,
): NamedArguments {
  if (!registry.has(operator)) return new Map();
  const { schema } = registry.get(operator);
  return new Map(schema.args.flatMap(({ name }, i) => (i < args.length ? [[name, method.values[args[i]!]!]] : [])));
}

function describe(
  program: Program,
  value: TensorValue,
  operator: string,
  named: NamedArguments,
): Omit<ListedWeight, "data"> {
  const { byteLength } = program.constants[value.constant!]!.data;
  const base = { name: baseName(value), operators: [operator], dtype: value.dtype, byteLength };
  const packed = value === named.get("packed_weights") ? packedShape(named) : null;
  if (packed) return { ...base, kind: "packed", shape: [packed.n, packed.k], bits: null, groupSize: packed.groupSize };
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

/** Scales and zero points of an embedding, which are tensors of their own. */
function embeddingParts(program: Program, named: NamedArguments): DataSource[] {
  const values = [named.get("weight_scales"), named.get("weight_zeros")];
  return values.flatMap((value) =>
    value?.kind === "tensor" && value.constant !== null ? [program.constants[value.constant]!.data] : [],
  );
}

/** Constants are named after the weight and its form, "lm_head.weight:panel16". */
function baseName({ name, constant }: TensorValue): string {
  return name?.replace(/:[^:]*$/, "") ?? `constant ${constant}`;
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
