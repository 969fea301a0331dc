/**
 * Verifies a program: every index in range and of the right kind, every tensor inside its memory or constant. Both reader
 * and writer call it; it does not know operators.
 */
import { byteSize } from "../dtype.ts";
import { elementCount } from "../tensor.ts";
import type { Allocation, Constant, Instruction, Method, Program, TensorValue, Value } from "./program.ts";

/** Throws an error about `problem` at `place`, such as `method forward, value 3`. */
export type FailAt = (place: string, problem: string) => never;

/** Reports a problem at one place. */
type Fail = (problem: string) => never;

/** ExecuTorch's kTensorDimensionLimit. */
const RANK_MAX = 16;
const INT32_MAX = 2 ** 31 - 1;

/** Least alignment of constants in the format. */
export const CONSTANT_ALIGNMENT_MIN = 16;
/** Bytes of a page, the largest alignment that mapping the file preserves. */
export const PAGE_BYTES = 4096;

/** Bytes of a tensor with its sizes, which in an untrusted file can exceed 2^53. */
export function tensorBytes(tensor: TensorValue): number {
  return elementCount(tensor.sizes) * byteSize(tensor.dtype);
}

/** Calls `fail` for the first problem found. */
export function verifyProgram(program: Program, fail: FailAt): void {
  program.constants.forEach((constant, index) => {
    verifyConstant(constant, (problem) => fail(`constant ${index}`, problem));
  });
  const names = new Set<string>();
  for (const method of program.methods) {
    if (names.has(method.name)) fail(`method ${method.name}`, "there are two of this name");
    names.add(method.name);
    verifyMethod(program, method, fail);
  }
}

function verifyConstant({ data, alignment }: Constant, fail: Fail): void {
  const powerOfTwo = Number.isInteger(Math.log2(alignment));
  if (!powerOfTwo || alignment < CONSTANT_ALIGNMENT_MIN || alignment > PAGE_BYTES)
    fail(`expected a power of two from ${CONSTANT_ALIGNMENT_MIN} to ${PAGE_BYTES} as alignment but found ${alignment}`);
  if (!isSize(data.byteLength)) fail(`expected a byte length but found ${data.byteLength}`);
}

function verifyMethod(program: Program, method: Method, fail: FailAt): void {
  const place = `method ${method.name}`;
  const count = method.values.length;
  method.memorySizes.forEach((size, index) => {
    if (!isSize(size)) fail(`${place}, memory ${index}`, `expected a size in bytes but found ${size}`);
  });
  method.values.forEach((value, index) => {
    const name = value.kind === "tensor" && value.name !== null ? ` (${value.name})` : "";
    const failHere: Fail = (problem) => fail(`${place}, value ${index}${name}`, problem);
    if (value.kind === "tensor") verifyTensor(program, method, value, failHere);
    else verifyValue(method.values, value, index, failHere);
  });
  verifyIndices(method.inputs, count, "value", (problem) => fail(`${place}, inputs`, problem));
  verifyIndices(method.outputs, count, "value", (problem) => fail(`${place}, outputs`, problem));
  method.instructions.forEach((instruction, index) => {
    verifyInstruction(method, instruction, (problem) => fail(`${place}, instruction ${index}`, problem));
  });
}

function verifyValue(values: readonly Value[], value: Exclude<Value, TensorValue>, index: number, fail: Fail): void {
  const verifyItems = (items: readonly number[], count: number, kinds: readonly Value["kind"][]): void => {
    verifyIndices(items, count, "value", fail);
    for (const item of items) {
      const { kind } = values[item]!;
      if (!kinds.includes(kind)) fail(`expected items of kind ${kinds[0]} but value ${item} is of kind ${kind}`);
    }
  };
  if (value.kind === "int" && (!Number.isInteger(value.value) || Math.abs(value.value) > 2 ** 63))
    fail(`expected an integer of 64 bits but found ${value.value}`);
  if (value.kind === "intList") verifyItems(value.items, values.length, ["int"]);
  // ExecuTorch makes values in order and refuses a list with later tensors, hence `index` as the count.
  if (value.kind === "tensorList") verifyItems(value.items, index, ["tensor"]);
  if (value.kind === "optionalTensorList")
    verifyItems(
      value.items.filter((item) => item !== -1),
      index,
      ["tensor", "null"],
    );
}

function verifyTensor(program: Program, method: Method, tensor: TensorValue, fail: Fail): void {
  const { sizes, dimOrder, constant, allocation } = tensor;
  if (sizes.length > RANK_MAX) fail(`has ${sizes.length} dimensions, more than ${RANK_MAX}`);
  for (const size of sizes)
    if (!isSize(size) || size > INT32_MAX) fail(`expected sizes of 0 to ${INT32_MAX} but found ${size}`);
  if (dimOrder.length !== sizes.length || sizes.some((_, dim) => !dimOrder.includes(dim)))
    fail(`expected an order of ${sizes.length} dimensions but found [${dimOrder.slice(0, RANK_MAX).join(", ")}]`);
  if (constant !== null && allocation !== null)
    fail("is a constant and has planned memory; it can have only one of them");
  if (constant !== null) verifyConstantTensor(program, tensor, constant, fail);
  if (allocation !== null) verifyAllocation(method, tensor, allocation, fail);
}

function verifyConstantTensor(program: Program, tensor: TensorValue, index: number, fail: Fail): void {
  verifyIndices([index], program.constants.length, "constant", fail);
  const found = program.constants[index]!.data.byteLength;
  const expected = tensorBytes(tensor);
  if (expected > found)
    fail(`${tensor.dtype} [${tensor.sizes.join(", ")}] needs ${expected} bytes but constant ${index} has ${found}`);
}

function verifyAllocation(method: Method, tensor: TensorValue, { memoryId, offset }: Allocation, fail: Fail): void {
  const memory = method.memorySizes[memoryId];
  if (memoryId === 0 || memory === undefined)
    fail(`expected a memory from 1 to ${method.memorySizes.length - 1} but found ${memoryId}`);
  const elementBytes = byteSize(tensor.dtype);
  if (!isSize(offset) || offset % elementBytes !== 0)
    fail(`expected an offset that is a multiple of ${elementBytes} but found ${offset}`);
  // The sizes of an unbound tensor do not limit the memory that it will need.
  const bytes = tensor.dynamism === "unbound" ? 0 : tensorBytes(tensor);
  if (offset + bytes > memory)
    fail(`lies at bytes ${offset} to ${offset + bytes} of memory ${memoryId}, which has ${memory}`);
}

function verifyInstruction(method: Method, instruction: Instruction, fail: Fail): void {
  const verifyValues = (...indices: readonly number[]): void =>
    verifyIndices(indices, method.values.length, "value", fail);
  switch (instruction.kind) {
    case "kernel":
      verifyIndices([instruction.operator], method.operators.length, "operator", fail);
      verifyIndices(instruction.args, method.values.length, "value", fail);
      break;
    case "delegate":
      verifyIndices([instruction.delegate], method.delegates.length, "delegate", fail);
      verifyIndices(instruction.args, method.values.length, "value", fail);
      break;
    case "move":
      verifyValues(instruction.from, instruction.to);
      break;
    case "jumpFalse":
      verifyValues(instruction.condition);
      // A jump may go to the end, just after the last instruction.
      verifyIndices([instruction.destination], method.instructions.length + 1, "instruction", fail);
      break;
    case "free":
      verifyValues(instruction.value);
  }
}

function verifyIndices(indices: readonly number[], count: number, what: string, fail: Fail): void {
  for (const index of indices)
    if (!isSize(index) || index >= count) fail(`expected the index of one of ${count} ${what}s but found ${index}`);
}

function isSize(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}
