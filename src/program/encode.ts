/** Encodes methods and places of data as the FlatBuffer `Program`, without the extended header. */
import { Builder, type Offset } from "flatbuffers";
import type { ProgramTable } from "./decode.ts";
import {
  child,
  float64,
  int8,
  int32,
  int64,
  type Put,
  writeFloat64s,
  writeInt8s,
  writeInt32s,
  writeInt64s,
  writeOffsets,
  writeTable,
  writtenInt32,
} from "./flatbuffer-writer.ts";
import type { Instruction, Method, TensorValue, Value } from "./program.ts";
import * as schema from "./schema.ts";

const INT64_MAX = 2n ** 63n - 1n;

/** A finished FlatBuffer with the identifier ET12; equal tables give equal bytes. */
export function encodeProgram(program: ProgramTable): Uint8Array {
  const builder = new Builder(1 << 16);
  const segments = program.segments.map(({ offset, size }) =>
    writeTable(builder, schema.DataSegment, { offset: int64(BigInt(offset)), size: int64(BigInt(size)) }),
  );
  const named = program.namedData.map(({ key, segment }) =>
    writeTable(builder, schema.NamedData, { key: text(builder, key), segment_index: int32(segment) }),
  );
  const constants = writeTable(builder, schema.SubsegmentOffsets, {
    segment_index: int32(program.constants?.segment ?? 0),
    // The reserved first entry is written even without constants: its absence would mean an inline constant_buffer.
    offsets: writeInt64s(builder, program.constants?.offsets ?? [0]),
  });
  const root = writeTable(builder, schema.Program, {
    version: writtenInt32(schema.VERSION),
    execution_plan: each(builder, program.methods, writeMethod),
    segments: writeOffsets(builder, segments),
    constant_segment: child(constants),
    named_data: writeOffsets(builder, named),
  });
  builder.finish(root, schema.FILE_IDENTIFIER);
  return builder.asUint8Array();
}

function writeMethod(builder: Builder, method: Method): Offset {
  const chain = writeTable(builder, schema.Chain, {
    inputs: writeInt32s(builder, []),
    outputs: writeInt32s(builder, []),
    instructions: each(builder, method.instructions, writeInstruction),
  });
  const container = writeTable(builder, schema.ContainerMetadata, {
    encoded_inp_str: text(builder, ""),
    encoded_out_str: text(builder, ""),
  });
  return writeTable(builder, schema.ExecutionPlan, {
    name: text(builder, method.name),
    container_meta_type: child(container),
    values: each(builder, method.values, writeValue),
    inputs: writeInt32s(builder, method.inputs),
    outputs: writeInt32s(builder, method.outputs),
    chains: writeOffsets(builder, [chain]),
    operators: each(builder, method.operators, (_, { name, overload }) =>
      writeTable(builder, schema.Operator, { name: text(builder, name), overload: text(builder, overload) }),
    ),
    delegates: each(builder, method.delegates, (_, id) =>
      writeTable(builder, schema.BackendDelegate, { id: text(builder, id) }),
    ),
    non_const_buffer_sizes: writeInt64s(builder, method.memorySizes),
  });
}

function writeInstruction(builder: Builder, instruction: Instruction): Offset {
  return writeTable(builder, schema.InstructionTable, {
    instr_args_type: int8(schema.instructionTags[instruction.kind]),
    instr_args: child(writeInstructionArguments(builder, instruction)),
  });
}

function writeInstructionArguments(builder: Builder, instruction: Instruction): Offset {
  switch (instruction.kind) {
    case "kernel":
      return writeTable(builder, schema.KernelCall, {
        op_index: int32(instruction.operator),
        args: writeInt32s(builder, instruction.args),
      });
    case "delegate":
      return writeTable(builder, schema.DelegateCall, {
        delegate_index: int32(instruction.delegate),
        args: writeInt32s(builder, instruction.args),
      });
    case "move":
      return writeTable(builder, schema.MoveCall, {
        move_from: int32(instruction.from),
        move_to: int32(instruction.to),
      });
    case "jumpFalse":
      return writeTable(builder, schema.JumpFalseCall, {
        cond_value_index: int32(instruction.condition),
        destination_instruction: int32(instruction.destination),
      });
    case "free":
      return writeTable(builder, schema.FreeCall, { value_index: int32(instruction.value) });
  }
}

function writeValue(builder: Builder, value: Value): Offset {
  return writeTable(builder, schema.EValue, {
    val_type: int8(schema.valueTags[value.kind]),
    val: child(writeValueTable(builder, value)),
  });
}

function writeValueTable(builder: Builder, value: Value): Offset {
  const scalar = (field: Put): Offset => writeTable(builder, schema.Scalar, { value: field });
  const list = (field: Put): Offset => writeTable(builder, schema.List, { items: field });
  switch (value.kind) {
    case "null":
      return writeTable(builder, {}, {});
    case "int":
      return scalar(int64(toInt64(value.value)));
    case "bool":
      return scalar(int8(Number(value.value)));
    case "double":
      return scalar(float64(value.value));
    case "string":
      return scalar(text(builder, value.value));
    case "intList":
      return list(writeInt64s(builder, value.items));
    case "doubleList":
      return list(writeFloat64s(builder, value.items));
    case "boolList":
      return list(writeInt8s(builder, value.items.map(Number)));
    case "tensorList":
    case "optionalTensorList":
      return list(writeInt32s(builder, value.items));
    case "tensor":
      return writeTensor(builder, value);
  }
}

function writeTensor(builder: Builder, tensor: TensorValue): Offset {
  const { allocation, constant, name } = tensor;
  return writeTable(builder, schema.Tensor, {
    scalar_type: int8(schema.scalarTypes[tensor.dtype]),
    sizes: writeInt32s(builder, tensor.sizes),
    dim_order: writeInt8s(builder, tensor.dimOrder),
    data_buffer_idx: int32(constant === null ? 0 : constant + 1),
    shape_dynamism: int8(schema.dynamisms.indexOf(tensor.dynamism)),
    ...(allocation && {
      allocation_info: child(
        writeTable(builder, schema.AllocationDetails, {
          memory_id: int32(allocation.memoryId),
          memory_offset_low: int32(allocation.offset % 2 ** 32),
          memory_offset_high: int32(Math.floor(allocation.offset / 2 ** 32)),
        }),
      ),
    }),
    ...(name !== null && {
      extra_tensor_info: child(
        writeTable(builder, schema.ExtraTensorInfo, { fully_qualified_name: text(builder, name) }),
      ),
    }),
  });
}

/** 2^63 stands for the largest int64, as in the reader. */
function toInt64(value: number): bigint {
  const integer = BigInt(value);
  return integer > INT64_MAX ? INT64_MAX : integer;
}

function each<T>(builder: Builder, items: readonly T[], write: (builder: Builder, item: T) => Offset): Put {
  return writeOffsets(
    builder,
    items.map((item) => write(builder, item)),
  );
}

function text(builder: Builder, value: string): Put {
  return child(builder.createString(value));
}
