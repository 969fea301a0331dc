/** Changes to what no compiler writes: delegates, orders of dimensions, lists of anything, long names, indices of nothing. */
import type { Method, Value } from "../../src/program/program.ts";
import { isTensorList } from "../../src/program/program.ts";
import {
  anyValue,
  type Draft,
  instructionAt,
  type Mutable,
  type MutableMethod,
  tensorsOf,
  wild,
  wildDoubles,
} from "./draft.ts";

const texts = [
  "",
  "forward",
  "__proto__",
  "constructor",
  "get_max_seq_len",
  "\u0000",
  "\u001b[2J\u001b]0;title\u0007",
  "é\ud83d\ude00",
  "../../etc/passwd",
  "x".repeat(100_000),
];

/** A delegate, and a call of it or of one that is not there. */
function insertDelegate(draft: Draft): void {
  const { method, random } = draft;
  if (random.next() < 0.8) method.delegates.push(random.pick(["XnnpackBackend", ...texts]));
  const args = Array.from({ length: random.integer(0, 3) }, () => anyValue(draft) ?? 0);
  if (random.next() < 0.8)
    method.instructions.splice(instructionAt(draft), 0, {
      kind: "delegate",
      delegate: random.pick([0, 0, 0, ...wild]),
      args,
    });
}

/** Dimensions that lie in memory in another order, once or more often. */
function changeOrder({ method, random }: Draft): void {
  const tensors = tensorsOf(method).filter(({ sizes }) => sizes.length > 0);
  if (tensors.length === 0) return;
  const tensor = random.pick(tensors);
  const [a, b] = [0, 1].map(() => random.integer(0, tensor.sizes.length - 1)) as [number, number];
  const { dimOrder } = tensor;
  if (random.next() < 0.7) [dimOrder[a], dimOrder[b]] = [dimOrder[b]!, dimOrder[a]!];
  else if (random.next() < 0.5) dimOrder[a] = random.pick([0, 1, 255, dimOrder[b]!]);
  else tensor.dimOrder = random.pick([[], [0], [...dimOrder, 0], new Array<number>(17).fill(0)]);
}

/** A value of any kind, in place of one that is there or as an argument. */
function changeKind(draft: Draft): void {
  const { method, random } = draft;
  const index = anyValue(draft);
  if (index === null) return;
  const anything = () => (random.next() < 0.1 ? random.pick(wild) : random.integer(0, method.values.length - 1));
  const items = (item: () => number) => Array.from({ length: random.pick([0, 1, 2, 5, 1000]) }, item);
  const near = () => random.pick([index, Math.max(0, index - 1), index + 1, anything()]);
  method.values[index] = random.pick<() => Mutable<Value>>([
    () => ({ kind: "null" }),
    () => ({ kind: "int", value: random.pick(wild) }),
    () => ({ kind: "double", value: random.pick(wildDoubles) }),
    () => ({ kind: "bool", value: random.next() < 0.5 }),
    () => ({ kind: "string", value: random.pick(texts) }),
    () => ({ kind: "intList", items: items(random.next() < 0.5 ? near : anything) }),
    () => ({ kind: "doubleList", items: items(() => random.pick(wildDoubles)) }),
    () => ({ kind: "boolList", items: items(() => 1).map((_, i) => i % 2 === 0) }),
    () => ({ kind: "tensorList", items: items(random.next() < 0.5 ? near : anything) }),
    () => ({ kind: "optionalTensorList", items: items(() => (random.next() < 0.3 ? -1 : anything())) }),
  ])();
}

/** One tensor, or all of them, in a list very often. */
function repeatInList(draft: Draft): void {
  const { method, random } = draft;
  const list = anyValue(draft, (value) => isTensorList(value as Value));
  if (list === null) return;
  const { items } = method.values[list] as { items: number[] };
  const times = random.pick([2, 100, 20_000]);
  if (items.length > 0) (method.values[list] as { items: number[] }).items = new Array(times).fill(random.pick(items));
}

function changeText(draft: Draft): void {
  const { method, random } = draft;
  const text = random.pick(texts);
  const kind = random.integer(0, 4);
  const operator = method.operators[random.integer(0, Math.max(0, method.operators.length - 1))];
  const tensors = tensorsOf(method);
  const string = anyValue(draft, (value) => value.kind === "string");
  if (kind === 0 && operator) operator.name = text;
  else if (kind === 1 && operator) operator.overload = text;
  else if (kind === 2 && tensors.length > 0) random.pick(tensors).name = text;
  else if (kind === 3) method.name = text;
  else if (string !== null) (method.values[string] as { value: string }).value = text;
}

/** Methods that are missing, there twice, empty, or metadata with instructions. */
function changeMethods({ methods, random }: Draft): void {
  if (methods.length === 0) return;
  const at = random.integer(0, methods.length - 1);
  const method = methods[at]!;
  const kind = random.integer(0, 4);
  if (kind === 0) methods.splice(at, 1);
  else if (kind === 1) methods.push(structuredClone(method));
  else if (kind === 2) methods.push({ ...structuredClone(method), name: random.pick(texts) });
  else if (kind === 3) method.name = random.pick(methods).name;
  else method.outputs = random.next() < 0.5 ? [] : [0, 0, 0, 0];
}

/** The number of a value, operator, constant, memory or instruction that is not there. */
function changeIndex(draft: Draft): void {
  const { method, random } = draft;
  const number = random.pick([
    method.values.length,
    method.instructions.length,
    method.instructions.length + 1,
    ...wild,
  ]);
  const replaceIn = (list: number[]) => {
    if (list.length > 0) list[random.integer(0, list.length - 1)] = number;
  };
  const kind = random.integer(0, 3);
  if (kind === 0) replaceIn(random.pick([method.inputs, method.outputs, method.memorySizes]));
  if (kind === 1) changeTensorIndex(method, draft, number);
  if (kind >= 2 && method.instructions.length > 0) {
    const instruction = random.pick(method.instructions);
    if ("args" in instruction && random.next() < 0.7) replaceIn(instruction.args);
    else {
      const fields = Object.keys(instruction).filter((field) => field !== "kind" && field !== "args");
      (instruction as unknown as Record<string, number>)[random.pick(fields)] = number;
    }
  }
}

function changeTensorIndex(method: MutableMethod, { random }: Draft, number: number): void {
  const tensors = tensorsOf(method);
  if (tensors.length === 0) return;
  const tensor = random.pick(tensors);
  const { allocation } = tensor;
  if (!allocation) tensor.constant = number;
  else if (random.next() < 0.5) allocation.memoryId = number;
  else allocation.offset = number;
}

/** One of these changes is as likely as any other change of a program. */
export const oddChanges: readonly ((draft: Draft) => void)[] = [
  insertDelegate,
  changeOrder,
  changeKind,
  changeKind,
  repeatInList,
  changeText,
  changeMethods,
  changeIndex,
  changeIndex,
];

/** Whether methods could be a program at all, however wrong: what the writer of tables takes. */
export function isWritable(methods: readonly Method[]): boolean {
  const isWhole = (value: number) => Number.isInteger(value) && Math.abs(value) <= 2 ** 63;
  return methods.every(
    ({ values, memorySizes }) =>
      memorySizes.every(isWhole) && values.every((value) => value.kind !== "int" || isWhole(value.value)),
  );
}
