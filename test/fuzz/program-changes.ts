/** Changes of a program's graph, each of a kind that an attacker would try; a few of them make one input. */
import { byteSize, type DType, dtypes } from "../../src/dtype.ts";
import { LowbitError } from "../../src/errors.ts";
import { checksum, HEADER_BYTES, MAGIC } from "../../src/kernels/layout/header.ts";
import { type Argument, Arguments, type TensorSpec } from "../../src/ops/call-arguments.ts";
import type { Operator } from "../../src/ops/operator.ts";
import type { SchemaArgument } from "../../src/ops/schema.ts";
import type { Method, Program, Value } from "../../src/program/program.ts";
import { isTensorList, SCRATCH_MEMORY, STATE_MEMORY } from "../../src/program/program.ts";
import { tensorBytes } from "../../src/program/verify.ts";
import { operators } from "../../src/registry/operators.ts";
import { elementCount } from "../../src/tensor.ts";
import { numbers } from "../support/damage.ts";
import type { Random } from "../support/random.ts";
import {
  add,
  anyValue,
  type Draft,
  instructionAt,
  kernel,
  type MutableMethod,
  type MutableTensor,
  place,
  tensorsOf,
  wild,
  wildDoubles,
} from "./draft.ts";
import { oddChanges } from "./odd-changes.ts";

/** Part of the changes that are to what no compiler writes: most of those programs are refused before they run. */
const ODD = 0.12;

/** One to four changes of a copy of `base`. */
export function changeProgram(base: Program, random: Random): Program {
  const methods = structuredClone(base.methods) as MutableMethod[];
  const constants = [...base.constants];
  const real = methods.filter(({ instructions }) => instructions.length > 0);
  for (let changes = random.integer(1, 4); changes > 0; changes--)
    random.pick(random.next() < ODD ? oddChanges : kinds)({ method: random.pick(real), methods, constants, random });
  return { ...base, methods: methods as Method[], constants };
}

const kinds: readonly ((draft: Draft) => void)[] = [
  placeOver,
  placeOver,
  placeOver,
  moveToConstant,
  moveToMemory,
  changeSizes,
  changeMetadata,
  changeLiteral,
  changeArgument,
  changeArgument,
  changeOperator,
  insertCall,
  insertCall,
  insertCall,
  insertView,
  insertView,
  insertMove,
  insertJump,
  insertFree,
  repeatInstruction,
  dropInstruction,
  changeMemorySize,
  changePackedHeader,
  growList,
  changeInputsAndOutputs,
];

/** A tensor's place becomes that of another, or some elements beside it. */
function placeOver(draft: Draft): void {
  const planned = tensorsOf(draft.method).filter(({ allocation }) => allocation !== null);
  if (planned.length > 1) placeAt(draft, draft.random.pick(planned), draft.random.pick(planned));
}

function placeAt({ method, random }: Draft, tensor: MutableTensor, other: MutableTensor): void {
  const bytes = byteSize(tensor.dtype);
  const shift = random.next() < 0.5 ? 0 : bytes * random.pick([1, 2, 3, 4, 8, 16, 31, 100]);
  const offset = Math.floor((other.allocation!.offset + shift) / bytes) * bytes;
  tensor.allocation = { memoryId: other.allocation!.memoryId, offset };
  const size = method.memorySizes[tensor.allocation.memoryId]!;
  const end = offset + (tensor.dynamism === "unbound" ? 0 : tensorBytes(tensor));
  if (end > size && random.next() < 0.9) method.memorySizes[tensor.allocation.memoryId] = end;
}

/** A planned tensor becomes a constant. */
function moveToConstant(draft: Draft): void {
  const { method, constants, random } = draft;
  const tensors = tensorsOf(method);
  if (tensors.length === 0 || constants.length === 0) return;
  const tensor = random.pick(tensors);
  const index = constants.findIndex(({ data }) => data.byteLength >= tensorBytes(tensor));
  if (index < 0) return;
  tensor.allocation = null;
  tensor.constant = random.next() < 0.5 ? index : random.integer(0, constants.length - 1);
}

/** A constant becomes planned memory, which a copy of it is written to at first, now and then. */
function moveToMemory(draft: Draft): void {
  const { method, random } = draft;
  const constants = tensorsOf(method).filter(({ constant }) => constant !== null);
  if (constants.length === 0) return;
  const tensor = random.pick(constants);
  const source = { ...tensor, sizes: [...tensor.sizes], dimOrder: [...tensor.dimOrder] };
  tensor.constant = null;
  tensor.allocation = { memoryId: random.pick([SCRATCH_MEMORY, STATE_MEMORY]), offset: 0 };
  place(draft, tensor);
  if (random.next() < 0.3) return;
  const from = add(draft, source);
  const to = method.values.indexOf(tensor);
  const none = add(draft, { kind: "null" });
  method.instructions.unshift(kernel(draft, "aten::clone.out", [from, none, to, to]));
}

function changeSizes({ method, random }: Draft): void {
  const tensors = tensorsOf(method);
  if (tensors.length === 0) return;
  const tensor = random.pick(tensors);
  const kind = random.integer(0, 4);
  if (kind === 0) tensor.dtype = random.pick(dtypes as DType[]);
  else if (kind === 1) tensor.dynamism = random.pick(["static", "bound", "unbound"]);
  else if (kind === 2) tensor.dimOrder.reverse();
  else if (kind === 3) {
    // No elements, and loops of many rounds outside of them.
    const rank = random.integer(1, 5);
    tensor.sizes = Array.from({ length: rank }, () => random.pick([0, 1, 2 ** 31 - 1, 2 ** 30]));
    tensor.sizes[random.integer(0, rank - 1)] = 0;
    tensor.dimOrder = tensor.sizes.map((_, i) => i);
  } else if (tensor.sizes.length > 0) {
    const dim = random.integer(0, tensor.sizes.length - 1);
    tensor.sizes[dim] = random.pick([0, 1, 2, tensor.sizes[dim]! + 1, tensor.sizes[dim]! * 2, ...wild]);
  }
}

function changeMetadata({ methods, random }: Draft): void {
  const metadata = methods.filter(({ instructions }) => instructions.length === 0);
  if (metadata.length === 0) return;
  const { values } = random.pick(metadata);
  if (values.length === 0) return;
  values[random.integer(0, values.length - 1)] = random.pick([
    () => ({ kind: "int" as const, value: random.pick(wild) }),
    () => ({ kind: "double" as const, value: random.pick(wildDoubles) }),
    () => ({ kind: "bool" as const, value: true }),
    () => ({ kind: "null" as const }),
  ])();
}

function changeLiteral(draft: Draft): void {
  const index = anyValue(draft, ({ kind }) => kind === "int" || kind === "double" || kind === "bool");
  if (index === null) return;
  const value = draft.method.values[index]!;
  const { random } = draft;
  if (value.kind === "int")
    value.value = random.pick([value.value - 1, value.value + 1, value.value * 2, random.integer(0, 40), ...wild]);
  if (value.kind === "double") value.value = random.pick(wildDoubles);
  if (value.kind === "bool") value.value = !value.value;
}

function changeArgument(draft: Draft): void {
  const { method, random } = draft;
  const calls = method.instructions.filter((instruction) => instruction.kind === "kernel");
  if (calls.length === 0) return;
  const { args } = random.pick(calls);
  if (args.length === 0) return;
  const place = random.integer(0, args.length - 1);
  const old = method.values[args[place]!];
  const alike = anyValue(draft, ({ kind }) => kind === old?.kind);
  const other = random.next() < 0.8 ? alike : anyValue(draft);
  if (other === null) return;
  // Out arguments are listed twice.
  const previous = args[place];
  for (let i = 0; i < args.length; i++)
    if (i === place || (args[i] === previous && random.next() < 0.5)) args[i] = other;
}

function operatorNames(): string[] {
  return [...operators].map(({ name }) => name);
}

/** Operators that give a number, or views and results in place. */
const otherOperators = [
  "aten::sym_size.int",
  "aten::_local_scalar_dense",
  "executorch_prim::add.Scalar",
  "executorch_prim::et_view.default",
  "aten::copy_",
  "aten::index_put_",
  "aten::split_copy.Tensor_out",
  "aten::split_with_sizes_copy.out",
  "aten::unbind_copy.int_out",
  "aten::topk.values",
  "aten::max.dim_max",
].filter((name) => operators.has(name));

function changeOperator({ method, random }: Draft): void {
  if (method.operators.length === 0) return;
  const [name, overload = ""] = random.pick([...operatorNames(), ...otherOperators]).split(".") as [string, string?];
  method.operators[random.integer(0, method.operators.length - 1)] = { name, overload };
}

/** Tries to find arguments that an operator's shape rule accepts. */
const ATTEMPTS = 40;

/** A call of any operator on values that its schema takes, most of them there already and most often in shapes that fit. */
function insertCall(draft: Draft): void {
  const { method, random } = draft;
  const name = random.pick([...operatorNames(), ...otherOperators]);
  const { args } = operators.schema(name);
  const like = tensorsOf(method).filter((tensor) => elementCount(tensor.sizes) <= 1 << 16);
  const operator = operators.find(name);
  for (let attempt = 0; operator && attempt < ATTEMPTS; attempt++) {
    const count = method.values.length;
    const inputs = args.filter(({ isOut }) => !isOut).map((argument) => argumentFor(draft, argument, like));
    const spec = specOf(operator, method, inputs);
    if (spec && elementCount(spec.shape) <= 1 << 20) {
      const out = outFor(draft, spec);
      method.instructions.splice(instructionAt(draft), 0, kernel(draft, name, [...inputs, out, out]));
      return;
    }
    method.values.length = count;
  }
  const indices = args.map((argument) => argumentFor(draft, argument, like));
  const out = args.flatMap(({ isOut }, i) => (isOut ? [indices[i]!] : []));
  if (random.next() < 0.9) indices.push(...out.slice(0, 1));
  method.instructions.splice(instructionAt(draft), 0, kernel(draft, name, indices));
}

/** What an operator's rule says of its result; null where it refuses the arguments. */
function specOf(operator: Operator, method: MutableMethod, inputs: readonly number[]): TensorSpec | null {
  const specAt = (index: number): Argument<TensorSpec> => {
    const value = method.values[index]!;
    if (value.kind === "tensor") return { dtype: value.dtype, shape: value.sizes };
    if (value.kind === "null") return null;
    if ("value" in value) return value.value;
    if (value.kind === "intList") return value.items.map((item) => specAt(item) as number);
    if (isTensorList(value as Value)) return value.items.map((item) => specAt(item as number) as TensorSpec);
    return value.items as Argument<TensorSpec>;
  };
  try {
    return operator.shape(new Arguments<TensorSpec>(operator.schema, inputs.map(specAt)));
  } catch (error) {
    if (error instanceof LowbitError) return null;
    throw error;
  }
}

/** A tensor for a result: in memory of its own, over another tensor or a part of one, or a constant. */
function outFor(draft: Draft, { dtype, shape }: TensorSpec): number {
  const { method, random } = draft;
  const out = addTensor(draft, []);
  const tensor = method.values[out] as MutableTensor;
  Object.assign(tensor, { dtype, sizes: [...shape], dimOrder: shape.map((_, i) => i), dynamism: "static" });
  place(draft, tensor);
  const others = tensorsOf(method).filter(({ allocation }) => allocation !== null);
  const other = random.pick(others);
  if (random.next() < 0.5) placeAt(draft, tensor, other);
  return out;
}

function argumentFor(draft: Draft, { type, isOut }: SchemaArgument, like: readonly MutableTensor[]): number {
  const { random } = draft;
  if (type.endsWith("?") && random.next() < 0.3) return add(draft, { kind: "null" });
  const plain = type.replace("?", "");
  const small = () => random.pick([0, 1, 2, -1, 3, 4, 8, 32, 64, ...(random.next() < 0.2 ? wild : [])]);
  const tensor = () =>
    (random.next() < (isOut ? 0.5 : 0.85) ? anyValue(draft, ({ kind }) => kind === "tensor") : null) ??
    addTensor(draft, like);
  if (plain === "Tensor") return tensor();
  if (plain === "Tensor[]") {
    // Lists name tensors before them.
    const items = Array.from({ length: random.integer(0, 3) }, tensor);
    return add(draft, { kind: type === "Tensor?[]" ? "optionalTensorList" : "tensorList", items });
  }
  if (plain === "int" || (plain === "Scalar" && random.next() < 0.5))
    return add(draft, { kind: "int", value: small() });
  if (plain === "float" || plain === "Scalar")
    return add(draft, { kind: "double", value: random.next() < 0.7 ? random.next() : random.pick(wildDoubles) });
  if (plain === "bool") return add(draft, { kind: "bool", value: random.next() < 0.5 });
  if (plain === "str")
    return add(draft, { kind: "string", value: random.pick(["none", "tanh", "floor", "trunc", ""]) });
  const items = Array.from({ length: random.integer(0, 4) }, () => add(draft, { kind: "int", value: small() }));
  return add(draft, { kind: "intList", items });
}

/** A new tensor like one that is there, in memory of its own or over that of another. */
function addTensor(draft: Draft, like: readonly MutableTensor[]): number {
  const { random } = draft;
  const model = like.length > 0 ? random.pick(like) : null;
  const sizes =
    model && random.next() < 0.7 ? [...model.sizes] : [1, random.integer(1, 4), random.pick([1, 8, 32, 64])];
  const tensor: MutableTensor = {
    kind: "tensor",
    dtype: model && random.next() < 0.7 ? model.dtype : random.pick(dtypes as DType[]),
    sizes,
    dimOrder: sizes.map((_, i) => i),
    dynamism: random.pick(["static", "static", "bound", "unbound"]),
    constant: null,
    allocation: { memoryId: SCRATCH_MEMORY, offset: 0 },
    name: null,
  };
  place(draft, tensor);
  return add(draft, tensor);
}

/** A view of any tensor, then something that writes to the view. */
function insertView(draft: Draft): void {
  const { method, random } = draft;
  const from = anyValue(draft, ({ kind }) => kind === "tensor");
  if (from === null) return;
  const source = method.values[from] as MutableTensor;
  const view = addTensor(draft, [source]);
  const tensor = method.values[view] as MutableTensor;
  if (random.next() < 0.8) {
    tensor.dtype = source.dtype;
    tensor.sizes = random.next() < 0.5 ? [elementCount(source.sizes)] : [...source.sizes];
    tensor.dimOrder = tensor.sizes.map((_, i) => i);
    if (tensor.sizes.every((size) => size <= 2 ** 31 - 1)) place(draft, tensor);
  }
  const items = tensor.sizes.map((size) => add(draft, { kind: "int", value: size }));
  const sizes = add(draft, { kind: "intList", items });
  const at = instructionAt(draft);
  const calls = [kernel(draft, "executorch_prim::et_view.default", [from, sizes, view])];
  if (random.next() < 0.6) {
    const other = addTensor(draft, [tensor]);
    const flag = add(draft, { kind: "bool", value: false });
    calls.push(kernel(draft, "aten::copy_", [view, other, flag, view]));
  } else {
    const factor = add(draft, { kind: "double", value: 2 });
    calls.push(kernel(draft, "aten::mul.Scalar_out", [view, factor, view, view]));
  }
  method.instructions.splice(at, 0, ...calls);
}

function insertMove(draft: Draft): void {
  const from = anyValue(draft);
  const to =
    anyValue(draft, ({ kind }) => from !== null && kind === draft.method.values[from]!.kind) ?? anyValue(draft);
  if (from === null || to === null) return;
  draft.method.instructions.splice(instructionAt(draft), 0, { kind: "move", from, to });
}

function insertJump(draft: Draft): void {
  const { method, random } = draft;
  const condition = anyValue(draft, ({ kind }) => kind === "bool") ?? add(draft, { kind: "bool", value: false });
  const destination = random.integer(0, method.instructions.length);
  method.instructions.splice(instructionAt(draft), 0, { kind: "jumpFalse", condition, destination });
}

function insertFree(draft: Draft): void {
  const value = anyValue(draft);
  if (value !== null) draft.method.instructions.splice(instructionAt(draft), 0, { kind: "free", value });
}

function repeatInstruction(draft: Draft): void {
  const { method, random } = draft;
  const instruction = structuredClone(random.pick(method.instructions));
  method.instructions.splice(instructionAt(draft), 0, instruction);
}

function dropInstruction({ method, random }: Draft): void {
  method.instructions.splice(random.integer(0, method.instructions.length - 1), 1);
}

function changeMemorySize({ method, random }: Draft): void {
  const id = random.integer(0, Math.max(0, method.memorySizes.length - 1));
  const size = method.memorySizes[id] ?? 0;
  method.memorySizes[id] = random.pick([0, size - 1, size + 1, Math.floor(size / 2), size * 2, 2 ** 33, 2 ** 50]);
}

/** A header of packed weights with other numbers, its checksum right. */
function changePackedHeader({ constants, random }: Draft): void {
  if (constants.length === 0) return;
  const index = random.integer(0, constants.length - 1);
  const { data, alignment } = constants[index]!;
  const word = 4 * random.integer(0, HEADER_BYTES / 4 - 2);
  const number = random.pick(numbers);
  const keepsSum = random.next() < 0.8;
  const isByte = random.next() < 0.3;
  const read = async (): Promise<Uint8Array> => {
    const bytes = (await data.read()).slice();
    const view = new DataView(bytes.buffer);
    if (bytes.length < HEADER_BYTES || view.getUint32(0, true) !== MAGIC) return bytes;
    if (isByte) bytes[word] = number & 0xff;
    else view.setInt32(word, number, true);
    if (keepsSum) view.setUint32(HEADER_BYTES - 4, checksum(bytes.subarray(0, HEADER_BYTES - 4)), true);
    return bytes;
  };
  constants[index] = { alignment, data: { byteLength: data.byteLength, read } };
}

function growList(draft: Draft): void {
  const list = anyValue(draft, (value) => isTensorList(value as Value) || value.kind === "intList");
  if (list === null) return;
  const { items } = draft.method.values[list] as { items: number[] };
  const item = anyValue(draft, ({ kind }) => kind === "tensor" || kind === "int" || kind === "null");
  if (item !== null) items.splice(draft.random.integer(0, items.length), draft.random.integer(0, 1), item);
}

function changeInputsAndOutputs(draft: Draft): void {
  const { method, random } = draft;
  const list = random.next() < 0.5 ? method.inputs : method.outputs;
  const value = anyValue(draft);
  if (value !== null) list.splice(random.integer(0, list.length), random.integer(0, 1), value);
}
