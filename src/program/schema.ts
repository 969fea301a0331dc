/**
 * The tables, union tags and scalar types of ExecuTorch's schema/program.fbs and scalar_type.fbs (identifier ET12) that
 * lowbit uses. Names are the schema's, in its order, since a field's slot is its index.
 */
import { type DType, dtypes } from "../dtype.ts";
import type { Instruction, TensorValue, Value } from "./program.ts";

export const FILE_IDENTIFIER = "ET12";

/** Version of the tables of `.pte` and of `.ptd` files, the only one so far. */
export const VERSION = 0;

/** A field of a table: its name, for messages, and its slot in the vtable. */
export interface Field {
  readonly name: string;
  readonly slot: number;
}

type Table<Name extends string> = { readonly [N in Name]: Field };

/** A union takes two slots, `x_type` and `x`. */
function table<Name extends string>(...names: Name[]): Table<Name> {
  return Object.fromEntries<Field>(names.map((name, slot) => [name, { name, slot }])) as Table<Name>;
}

export const Program = table(
  "version",
  "execution_plan",
  "constant_buffer",
  "backend_delegate_data",
  "segments",
  "constant_segment",
  "mutable_data_segments",
  "named_data",
);
export const DataSegment = table("offset", "size");
export const SubsegmentOffsets = table("segment_index", "offsets");
export const NamedData = table("key", "segment_index");

/** Tables of tensor files: extension/flat_tensor/serialize/flat_tensor.fbs. */
export const FlatTensor = table("version", "segments", "named_data");
export const TensorData = table("key", "segment_index", "tensor_layout");
export const TensorLayout = table("scalar_type", "sizes", "dim_order");

export const ExecutionPlan = table(
  "name",
  "container_meta_type",
  "values",
  "inputs",
  "outputs",
  "chains",
  "operators",
  "delegates",
  "non_const_buffer_sizes",
  "non_const_buffer_device",
);
export const ContainerMetadata = table("encoded_inp_str", "encoded_out_str");
export const Operator = table("name", "overload");
export const BackendDelegate = table("id", "processed", "compile_specs");

export const Chain = table("inputs", "outputs", "instructions", "stacktrace");
export const InstructionTable = table("instr_args_type", "instr_args");
export const KernelCall = table("op_index", "args");
export const DelegateCall = table("delegate_index", "args");
export const MoveCall = table("move_from", "move_to");
export const JumpFalseCall = table("cond_value_index", "destination_instruction");
export const FreeCall = table("value_index");

/** Tags of the union InstructionArguments. */
export const instructionTags: Readonly<Record<Instruction["kind"], number>> = {
  kernel: 1,
  delegate: 2,
  move: 3,
  jumpFalse: 4,
  free: 5,
};

export const EValue = table("val_type", "val");
/** Null, Int, Bool, Double, String and the lists: one field each, none in Null. */
export const Scalar = table("value");
export const List = table("items");
export const Tensor = table(
  "scalar_type",
  "storage_offset",
  "sizes",
  "dim_order",
  "requires_grad",
  "data_buffer_idx",
  "allocation_info",
  "layout",
  "shape_dynamism",
  "extra_tensor_info",
);
export const AllocationDetails = table("memory_id", "memory_offset_low", "memory_offset_high");
export const ExtraTensorInfo = table(
  "mutable_data_segments_idx",
  "fully_qualified_name",
  "location",
  "device_type",
  "device_index",
);

/** TensorDataLocation of tensors that are not in the program's file. */
export const EXTERNAL = 1;

/** Tags of the union KernelTypes. */
export const valueTags: Readonly<Record<Value["kind"], number>> = {
  null: 1,
  int: 2,
  bool: 3,
  double: 4,
  tensor: 5,
  string: 6,
  intList: 7,
  doubleList: 8,
  boolList: 9,
  tensorList: 10,
  optionalTensorList: 11,
};

/** TensorShapeDynamism. */
export const dynamisms: readonly TensorValue["dynamism"][] = ["static", "bound", "unbound"];

/** ScalarType of each element type. Sub-byte weights are packed in tensors of bytes. */
export const scalarTypes: Readonly<Record<DType, number>> = {
  u8: 0,
  i8: 1,
  i16: 2,
  i32: 3,
  i64: 4,
  f16: 5,
  f32: 6,
  f64: 7,
  bool: 11,
  bf16: 15,
  u16: 27,
  u32: 28,
  u64: 29,
};

/** Dtype of a ScalarType; undefined for those that lowbit does not have. */
export function dtypeOfScalarType(scalarType: number): DType | undefined {
  return dtypes.find((dtype) => scalarTypes[dtype] === scalarType);
}
