/**
 * Reports what a `.pte` file holds: methods, operators, memory, weights and sizes. Of weights only the headers are read.
 */
import { checkOptions } from "../arguments.ts";
import type { ByteSource } from "../byte-source.ts";
import { byteSize } from "../dtype.ts";
import { InvalidFileError, LowbitError, ShapeError } from "../errors.ts";
import { HEADER_BYTES } from "../kernels/layout/header.ts";
import { describePacked, openPacked, verifyPacked } from "../kernels/layout/packed.ts";
import { openFile } from "../node-file.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { qualifiedName } from "../ops/schema.ts";
import type { DataSource, Method, Program, Value } from "../program/program.ts";
import { SCRATCH_MEMORY, STATE_MEMORY } from "../program/program.ts";
import { type ProgramLayout, programLayout, readProgram } from "../program/read.ts";
import { storesZeros, type WeightSpec } from "../quantized.ts";
import { operators } from "../registry/operators.ts";
import { type Metadata, readMetadata } from "../runtime/program.ts";
import { elementCount } from "../tensor.ts";
import { bitsPerWeight, type ListedWeight, listWeights } from "./weight-list.ts";

/** An input or output of a method. */
interface ValueReport {
  /** What the value is, such as "tensor". */
  readonly kind: Value["kind"];
  /** Type of a tensor's elements; null for other values. */
  readonly dtype: string | null;
  /** Sizes of a tensor; upper bounds where `dynamic`. */
  readonly sizes: readonly number[] | null;
  /** Whether the sizes may be smaller than planned. */
  readonly dynamic: boolean;
}

/** A tensor in planned memory. */
interface PlannedTensorReport {
  /** Name of a state, or the operator that computes the tensor. */
  readonly name: string;
  /** Memory that the tensor lies in. */
  readonly memory: "scratch" | "state";
  /** Byte at which the tensor begins there. */
  readonly offset: number;
  /** Bytes of the tensor. */
  readonly byteLength: number;
  /** Type of the elements. */
  readonly dtype: string;
  /** Sizes of the tensor. */
  readonly sizes: readonly number[];
}

/** One method of a program: its operators by number of calls, its inputs and outputs, and bytes of its planned memory. */
export interface MethodReport {
  /** Name of the method. */
  readonly name: string;
  /** Inputs of the method. */
  readonly inputs: readonly ValueReport[];
  /** Outputs of the method. */
  readonly outputs: readonly ValueReport[];
  /** Operators by number of calls, most first. `known`: whether this process can run the operator. */
  readonly operators: readonly { readonly name: string; readonly calls: number; readonly known: boolean }[];
  /** Names of the delegates that the method calls; lowbit runs none of them. */
  readonly delegates: readonly string[];
  /** Bytes of memory 1, scratch, which calls overwrite. */
  readonly scratchBytes: number;
  /** Bytes of memory 2, state, which a session keeps between calls. */
  readonly stateBytes: number;
  /** Bytes of the states (keys, values, and scales of integers) by dtype. */
  readonly stateTypes: Readonly<Record<string, number>>;
  /** The largest planned tensors: first those of scratch, then those of state, each from the largest down. */
  readonly largest: readonly PlannedTensorReport[];
}

/** One weight matrix of a program: its name, sizes [n, k], bits, group size, packed layout and bytes. */
export interface WeightReport {
  /** Name of the weight in the program. */
  readonly name: string;
  /** Full names of the operators that use the weight. */
  readonly operators: readonly string[];
  /** Packed layout; null for plain tensors. */
  readonly layout: string | null;
  /** The weight's format where bits and group size do not tell it, such as `aqlm 2x8, groups of 8`; else null. */
  readonly form: string | null;
  /** Bits of one weight, without scales and zero points. */
  readonly bits: number;
  /** Sizes of the weight; [n, k] for matrices. */
  readonly shape: readonly number[];
  /** Weights that share a scale; null for floats. */
  readonly groupSize: number | null;
  /**
   * Type of the scales: "i8" for integers times a float16 factor, "e4m3" for 8-bit floats times a float32 factor; null for
   * float weights.
   */
  readonly scaleType: WeightSpec["scaleDType"] | null;
  /** The codebook whose indices the stored integers are; null where the integers are the levels. */
  readonly levels: readonly number[] | null;
  /** Whether zero points of groups are stored. */
  readonly hasZeros: boolean;
  /** Zero point of groups with odd integer scales, which shifts a codebook; null where zero points are stored, or absent. */
  readonly oddZero: number | null;
  /** Whether groups have minima. */
  readonly hasMinima: boolean;
  /** Whether a bias is packed with the weight. */
  readonly hasBias: boolean;
  /** Type of the stored elements. */
  readonly dtype: string;
  /** Bytes with scales, zero points and padding. */
  readonly byteLength: number;
  /** Bits of all bytes, scales and padding included, divided by the number of weights. */
  readonly bitsPerWeight: number;
  /** Whether the checksum matches; null when not verified, or when the layout has none. */
  readonly intact: boolean | null;
}

/** What `inspectProgram` finds in a `.pte` file: methods, weights, memory and assets, with sizes in bytes. */
export interface ProgramReport {
  /** Name of the file. */
  readonly file: string;
  /** Bytes of each part of the file. */
  readonly parts: ProgramLayout;
  /** Inputs, outputs, operators and memory of each method. */
  readonly methods: readonly MethodReport[];
  /** Constant methods of the program (`get_max_seq_len` and so on), by name. */
  readonly metadata: Readonly<Record<string, Metadata>>;
  /** The weights that the program holds. */
  readonly weights: readonly WeightReport[];
  /** Bits of a weight on average over all weights, scales included. */
  readonly bitsPerWeight: number;
  /** Keys and sizes of the data that the program holds by name. */
  readonly namedData: readonly { readonly key: string; readonly byteLength: number }[];
}

/** Options of `inspectProgram`. */
export interface InspectOptions {
  /** Whether to read all weights and check their checksums. Default false. */
  readonly verify?: boolean | undefined;
  /** Operators that count as known. Default: those of this package and those registered. */
  readonly registry?: OperatorRegistry;
  /** Paths of files of tensors (.ptd) that the program keeps outside itself. */
  readonly data?: readonly string[] | undefined;
  /** Called as weights are verified, with bytes done and bytes in all. */
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
  /** Ends the inspection; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** How many planned tensors of each memory a report lists. */
const LARGEST_COUNT = 3;

/** Describes a program file. Throws as `readProgram` does, and InvalidFileError for weights that contradict their use. */
export async function inspectProgram(path: string, options: InspectOptions = {}): Promise<ProgramReport> {
  checkOptions(options);
  const files: ByteSource[] = [];
  try {
    for (const name of [path, ...(options.data ?? [])]) files.push(await openFile(name));
    const [source, ...data] = files;
    return await inspectSource(source!, data, options);
  } finally {
    await Promise.all(files.map((file) => file.close()));
  }
}

async function inspectSource(
  source: ByteSource,
  data: readonly ByteSource[],
  options: InspectOptions,
): Promise<ProgramReport> {
  const { registry = operators } = options;
  const program = await readProgram(source, { data });
  const metadata = readMetadata(program);
  const listed = listedOf(source.name, program, registry);
  return {
    file: source.name,
    parts: await programLayout(source),
    methods: program.methods.filter(({ name }) => !metadata.has(name)).map((method) => methodReport(method, registry)),
    metadata: Object.fromEntries(metadata),
    weights: await weightReports(source.name, listed, options),
    bitsPerWeight: bitsPerWeight(listed),
    namedData: [...namedDataOf(program)],
  };
}

function listedOf(file: string, program: Program, registry: OperatorRegistry): readonly ListedWeight[] {
  try {
    return listWeights(program, registry);
  } catch (cause) {
    if (!(cause instanceof LowbitError)) throw cause;
    throw new InvalidFileError(file, cause.message, { cause });
  }
}

function* namedDataOf({ namedData }: Program): Generator<{ key: string; byteLength: number }> {
  for (const [key, { byteLength }] of namedData) yield { key, byteLength };
}

function methodReport(method: Method, registry: OperatorRegistry): MethodReport {
  const calls = new Map<string, number>(method.operators.map((operator) => [qualifiedName(operator), 0]));
  for (const instruction of method.instructions) {
    if (instruction.kind !== "kernel") continue;
    const name = qualifiedName(method.operators[instruction.operator]!);
    calls.set(name, calls.get(name)! + 1);
  }
  return {
    name: method.name,
    inputs: method.inputs.map((index) => valueReport(method.values[index]!)),
    outputs: method.outputs.map((index) => valueReport(method.values[index]!)),
    operators: [...calls]
      .map(([name, count]) => ({ name, calls: count, known: registry.has(name) }))
      .sort((a, b) => b.calls - a.calls),
    delegates: method.delegates,
    scratchBytes: method.memorySizes[SCRATCH_MEMORY] ?? 0,
    stateBytes: method.memorySizes[STATE_MEMORY] ?? 0,
    stateTypes: stateTypes(method),
    largest: largestTensors(method),
  };
}

function valueReport(value: Value): ValueReport {
  if (value.kind !== "tensor") return { kind: value.kind, dtype: null, sizes: null, dynamic: false };
  return { kind: "tensor", dtype: value.dtype, sizes: value.sizes, dynamic: value.dynamism !== "static" };
}

function stateTypes(method: Method): Record<string, number> {
  const types: Record<string, number> = {};
  for (const value of method.values)
    if (value.kind === "tensor" && value.allocation?.memoryId === STATE_MEMORY)
      types[value.dtype] = (types[value.dtype] ?? 0) + elementCount(value.sizes) * byteSize(value.dtype);
  return types;
}

function largestTensors(method: Method): PlannedTensorReport[] {
  const makers = new Map<number, string>();
  for (const instruction of method.instructions)
    if (instruction.kind === "kernel" && instruction.args.length > 0)
      makers.set(instruction.args.at(-1)!, qualifiedName(method.operators[instruction.operator]!));
  const planned = method.values.flatMap((value, index): PlannedTensorReport[] => {
    if (value.kind !== "tensor" || !value.allocation) return [];
    const { memoryId, offset } = value.allocation;
    if (memoryId !== SCRATCH_MEMORY && memoryId !== STATE_MEMORY) return [];
    const name = value.name ?? makers.get(index) ?? (method.inputs.includes(index) ? "input" : "unnamed");
    const memory = memoryId === SCRATCH_MEMORY ? "scratch" : "state";
    const { dtype, sizes } = value;
    return [{ name, memory, offset, byteLength: elementCount(sizes) * byteSize(dtype), dtype, sizes }];
  });
  planned.sort((a, b) => b.byteLength - a.byteLength);
  return (["scratch", "state"] as const).flatMap((memory) =>
    planned.filter((tensor) => tensor.memory === memory).slice(0, LARGEST_COUNT),
  );
}

async function weightReports(
  file: string,
  listed: readonly ListedWeight[],
  { verify = false, signal, onProgress }: InspectOptions,
): Promise<WeightReport[]> {
  const total = listed.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const reports: WeightReport[] = [];
  let done = 0;
  for (const weight of listed) {
    signal?.throwIfAborted();
    try {
      reports.push(await weightReport(weight, verify));
    } catch (cause) {
      if (!(cause instanceof ShapeError)) throw cause;
      throw new InvalidFileError(file, `weight ${weight.name}: ${cause.message}`, { cause });
    }
    done += weight.byteLength;
    if (verify) onProgress?.(done, total);
  }
  return reports;
}

async function weightReport(weight: ListedWeight, verify: boolean): Promise<WeightReport> {
  const { name, operators: users, shape, dtype, byteLength, groupSize } = weight;
  const base = { name, operators: users, shape, dtype, byteLength, bitsPerWeight: bitsPerWeight([weight]), form: null };
  const isEmbedding = weight.kind === "embedding";
  const { matrix } = weight;
  if (matrix)
    return {
      ...base,
      layout: matrix.layout,
      form: matrix.form ?? null,
      bits: matrix.bits,
      groupSize,
      scaleType: matrix.scaleType,
      levels: null,
      hasZeros: false,
      oddZero: null,
      hasMinima: false,
      hasBias: false,
      intact: verify ? (matrix.intact?.(await weight.data.read()) ?? null) : null,
    };
  if (weight.kind !== "packed")
    return {
      ...base,
      layout: isEmbedding ? "torchao_embedding" : null,
      bits: weight.bits!,
      groupSize,
      scaleType: isEmbedding ? "f32" : null,
      levels: null,
      hasZeros: isEmbedding,
      oddZero: null,
      hasMinima: false,
      hasBias: false,
      intact: null,
    };
  const [n, k] = shape.slice(-2) as [number, number];
  const experts = shape.length === 3 ? shape[0]! : 1;
  const wanted = { n, k, groupSize: groupSize! };
  const bytes = await (verify ? weight.data.read() : start(weight.data));
  // Matrices of experts follow each other, each with a header of its own.
  const length = weight.data.byteLength / experts;
  const { layout, spec, hasBias, levels } = describePacked(bytes, length, wanted);
  const parts = () => Array.from({ length: experts }, (_, i) => bytes.subarray(i * length, (i + 1) * length));
  return {
    ...base,
    layout: layout.name,
    bits: spec.bits,
    groupSize: spec.groupSize,
    scaleType: spec.scaleDType,
    levels: levels && [...levels],
    hasZeros: storesZeros(spec),
    oddZero: spec.oddZero ?? null,
    hasMinima: spec.hasMinima ?? false,
    hasBias,
    intact: verify ? areIntact(parts().map((part) => verifyPacked(openPacked(part, wanted)))) : null,
  };
}

/** Whether all checksums match; null where none is known. */
function areIntact(parts: readonly (boolean | null)[]): boolean | null {
  return parts.includes(null) ? null : parts.every(Boolean);
}

/** The first bytes of a weight's data, enough for any header. */
async function start(data: DataSource): Promise<Uint8Array> {
  const length = Math.min(HEADER_BYTES, data.byteLength);
  return data.readRange ? data.readRange(0, length) : (await data.read()).subarray(0, length);
}
