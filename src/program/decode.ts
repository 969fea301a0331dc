/**
 * Decodes the FlatBuffer `Program` into methods and places of data. It gives what the tables say: verify.ts checks whether
 * indices and sizes fit each other, read.ts checks segments and constants.
 */
import { dtypes } from "../dtype.ts";
import { UnsupportedError } from "../errors.ts";
import { type FlatTable, rootTable } from "./flatbuffer-reader.ts";
import type { Allocation, Instruction, Method, TensorValue, Value } from "./program.ts";
import * as schema from "./schema.ts";

/** The root table of a program: methods, and the places of data in segments. */
export interface ProgramTable {
  readonly methods: readonly Method[];
  /** Offsets count from the segment base. */
  readonly segments: readonly { readonly offset: number; readonly size: number }[];
  /** Offsets of constants in segment number `segment`; entry 0 is reserved. Null without constants. */
  readonly constants: { readonly segment: number; readonly offsets: readonly number[] } | null;
  readonly namedData: readonly { readonly key: string; readonly segment: number }[];
}

export interface DecodedProgram extends ProgramTable {
  /** Names of tensors in other files; `TensorValue.constant` counts them after the file's own constants. */
  readonly externals: readonly string[];
}

/** State of decoding: constants of the file, and names of external tensors so far. */
interface Context {
  readonly file: string;
  readonly constantCount: number;
  readonly externals: Map<string, number>;
}

/** Throws InvalidFileError or UnsupportedError naming `file` and the field. */
export function decodeProgram(file: string, bytes: Uint8Array): DecodedProgram {
  const root = rootTable(file, bytes);
  const version = root.uint32(schema.Program.version);
  if (version !== schema.VERSION)
    throw new UnsupportedError(
      `${file}: version: expected schema version ${schema.VERSION}, which is the newest known, but found ${version}`,
    );
  const constants = decodeConstants(file, root);
  const externals = new Map<string, number>();
  const context = { file, constantCount: Math.max(0, (constants?.offsets.length ?? 0) - 1), externals };
  const methods = tables(root, schema.Program.execution_plan).map((plan) => decodeMethod(context, plan));
  return {
    methods,
    externals: [...externals.keys()],
    segments: tables(root, schema.Program.segments).map((segment) => ({
      offset: segment.uint64(schema.DataSegment.offset),
      size: segment.uint64(schema.DataSegment.size),
    })),
    constants,
    namedData: tables(root, schema.Program.named_data).map((named) => ({
      key: text(named, schema.NamedData.key),
      segment: named.uint32(schema.NamedData.segment_index),
    })),
  };
}

function decodeConstants(file: string, root: FlatTable): ProgramTable["constants"] {
  // Entry 0 of the buffer is reserved, so that a buffer of one entry has no constants.
  if (tables(root, schema.Program.constant_buffer).length > 1)
    throw new UnsupportedError(
      `${file}: constant_buffer: inline constants are not supported; export the model again with a current ExecuTorch`,
    );
  const table = root.table(schema.Program.constant_segment);
  const offsets = table?.int64s(schema.SubsegmentOffsets.offsets) ?? [];
  if (!table || offsets.length < 2) return null;
  return { segment: table.uint32(schema.SubsegmentOffsets.segment_index), offsets };
}

function decodeMethod(context: Context, plan: FlatTable): Method {
  const { file } = context;
  const chains = tables(plan, schema.ExecutionPlan.chains);
  if (chains.length > 1)
    throw new UnsupportedError(`${file}: ${plan.path}.chains: expected one chain but found ${chains.length}`);
  const instructions = chains.flatMap((chain) => tables(chain, schema.Chain.instructions));
  return {
    name: text(plan, schema.ExecutionPlan.name),
    values: tables(plan, schema.ExecutionPlan.values).map((value) => decodeValue(context, value)),
    inputs: plan.int32s(schema.ExecutionPlan.inputs) ?? [],
    outputs: plan.int32s(schema.ExecutionPlan.outputs) ?? [],
    operators: tables(plan, schema.ExecutionPlan.operators).map((operator) => ({
      name: text(operator, schema.Operator.name),
      overload: operator.string(schema.Operator.overload) ?? "",
    })),
    instructions: instructions.map(decodeInstruction),
    delegates: tables(plan, schema.ExecutionPlan.delegates).map((each) => text(each, schema.BackendDelegate.id)),
    memorySizes: plan.int64s(schema.ExecutionPlan.non_const_buffer_sizes) ?? [],
  };
}

function decodeInstruction(table: FlatTable): Instruction {
  const tag = table.uint8(schema.InstructionTable.instr_args_type);
  const args = table.table(schema.InstructionTable.instr_args);
  switch (args && kindOf(schema.instructionTags, tag)) {
    case "kernel":
      return {
        kind: "kernel",
        operator: args!.int32(schema.KernelCall.op_index),
        args: args!.int32s(schema.KernelCall.args) ?? [],
      };
    case "delegate":
      return {
        kind: "delegate",
        delegate: args!.int32(schema.DelegateCall.delegate_index),
        args: args!.int32s(schema.DelegateCall.args) ?? [],
      };
    case "move":
      return { kind: "move", from: args!.int32(schema.MoveCall.move_from), to: args!.int32(schema.MoveCall.move_to) };
    case "jumpFalse":
      return {
        kind: "jumpFalse",
        condition: args!.int32(schema.JumpFalseCall.cond_value_index),
        destination: args!.int32(schema.JumpFalseCall.destination_instruction),
      };
    case "free":
      return { kind: "free", value: args!.int32(schema.FreeCall.value_index) };
    default:
      return table.fail(schema.InstructionTable.instr_args, `expected an instruction but found tag ${tag}`);
  }
}

function decodeValue(context: Context, table: FlatTable): Value {
  const tag = table.uint8(schema.EValue.val_type);
  const kind = kindOf(schema.valueTags, tag);
  if (kind === "null") return { kind };
  const val = table.table(schema.EValue.val);
  if (!kind || !val) return table.fail(schema.EValue.val, `expected a value but found tag ${tag}`);
  switch (kind) {
    case "int":
      return { kind, value: decodeInt(context.file, val) };
    case "bool":
      return { kind, value: val.bool(schema.Scalar.value) };
    case "double":
      return { kind, value: val.float64(schema.Scalar.value) };
    case "string":
      return { kind, value: val.string(schema.Scalar.value) ?? "" };
    case "intList":
      return { kind, items: val.int64s(schema.List.items) ?? [] };
    case "doubleList":
      return { kind, items: val.float64s(schema.List.items) ?? [] };
    case "boolList":
      return { kind, items: (val.uint8s(schema.List.items) ?? []).map((item) => item !== 0) };
    case "tensorList":
    case "optionalTensorList":
      return { kind, items: val.int32s(schema.List.items) ?? [] };
    case "tensor":
      return decodeTensor(context, val);
  }
}

/**
 * Numbers are exact to 2^53; beyond, only the largest int64 is accepted, which exporters write for "to the end", as 2^63.
 */
function decodeInt(file: string, table: FlatTable): number {
  const value = table.int64(schema.Scalar.value);
  const number = Number(value);
  if (BigInt(number) !== value && value !== 2n ** 63n - 1n)
    throw new UnsupportedError(`${file}: ${table.path}: integers beyond 2^53 are not supported, found ${value}`);
  return number;
}

function decodeTensor(context: Context, table: FlatTable): TensorValue {
  const { file } = context;
  const unsupported = (problem: string): never => {
    throw new UnsupportedError(`${file}: ${table.path}: ${problem}`);
  };
  const scalarType = table.uint8(schema.Tensor.scalar_type);
  const dtype = schema.dtypeOfScalarType(scalarType);
  if (!dtype) return unsupported(`scalar type ${scalarType} is not supported, only those of ${dtypes.join(", ")}`);
  const dynamism = schema.dynamisms[table.uint8(schema.Tensor.shape_dynamism)];
  if (!dynamism) return table.fail(schema.Tensor.shape_dynamism, "expected 0, 1 or 2");
  if (table.int32(schema.Tensor.storage_offset) !== 0) unsupported("storage offsets other than 0 are not supported");
  const extra = table.table(schema.Tensor.extra_tensor_info);
  if (extra?.uint8(schema.ExtraTensorInfo.device_type))
    unsupported("tensors on devices other than the CPU are not supported");
  const buffer = table.uint32(schema.Tensor.data_buffer_idx);
  const allocation = decodeAllocation(table);
  const name = extra?.string(schema.ExtraTensorInfo.fully_qualified_name) ?? null;
  const external = extra?.uint8(schema.ExtraTensorInfo.location) === schema.EXTERNAL;
  if ((buffer > 0 || external) && allocation) unsupported("state with initial data is not supported");
  return {
    kind: "tensor",
    dtype,
    sizes: table.int32s(schema.Tensor.sizes) ?? [],
    dimOrder: table.uint8s(schema.Tensor.dim_order) ?? [],
    dynamism,
    constant: external ? externalConstant(context, table, name) : buffer > 0 ? buffer - 1 : null,
    allocation,
    name,
  };
}

/** Index of an external tensor, which is the same for all values of its name. */
function externalConstant({ constantCount, externals }: Context, table: FlatTable, name: string | null): number {
  if (name === null) return table.fail(schema.Tensor.extra_tensor_info, "a tensor stored elsewhere has no name");
  if (!externals.has(name)) externals.set(name, constantCount + externals.size);
  return externals.get(name)!;
}

function decodeAllocation(tensor: FlatTable): Allocation | null {
  const table = tensor.table(schema.Tensor.allocation_info);
  if (!table) return null;
  const { memory_id, memory_offset_low, memory_offset_high } = schema.AllocationDetails;
  const offset = table.uint32(memory_offset_high) * 2 ** 32 + table.uint32(memory_offset_low);
  return { memoryId: table.uint32(memory_id), offset };
}

function kindOf<Kind extends string>(tags: Readonly<Record<Kind, number>>, tag: number): Kind | undefined {
  for (const kind in tags) if (tags[kind] === tag) return kind;
  return undefined;
}

function tables(table: FlatTable, field: schema.Field): FlatTable[] {
  return table.tables(field) ?? [];
}

function text(table: FlatTable, field: schema.Field): string {
  return table.string(field) ?? table.fail(field, "expected a text but found none");
}
