/** Maps former operators to those that replaced them by one operator with an argument, so that older programs still run. */
import type { Method, OperatorName, Value } from "./program.ts";

/** The operator that replaced another, with `word` as a further argument at index `at`. */
interface Successor {
  readonly name: string;
  readonly at: number;
  readonly word: string;
}

const gate = (word: string): Successor => ({ name: "lowbit::gate", at: 2, word });
const halves = (word: string): Successor => ({ name: "lowbit::gate_halves", at: 1, word });

const successors: ReadonlyMap<string, Successor> = new Map([
  ["lowbit::swiglu", gate("silu")],
  ["lowbit::geglu", gate("geluTanh")],
  ["lowbit::erf_geglu", gate("gelu")],
  ["lowbit::quick_geglu", gate("quickGelu")],
  ["lowbit::reglu", gate("relu")],
  ["lowbit::squared_reglu", gate("squaredRelu")],
  ["lowbit::sigmoid_gate", gate("sigmoid")],
  ["lowbit::swiglu_halves", halves("silu")],
  ["lowbit::geglu_halves", halves("geluTanh")],
]);

/** The method with today's operators. */
export function renewOperators(method: Method): Method {
  if (!method.operators.some(({ name }) => successors.has(name))) return method;
  const values: Value[] = [...method.values];
  const operators = method.operators.map((operator): OperatorName => {
    const successor = successors.get(operator.name);
    return successor ? { ...operator, name: successor.name } : operator;
  });
  const instructions = method.instructions.map((instruction) => {
    if (instruction.kind !== "kernel") return instruction;
    const successor = successors.get(method.operators[instruction.operator]?.name ?? "");
    if (!successor) return instruction;
    const index = values.push({ kind: "string", value: successor.word }) - 1;
    return { ...instruction, args: instruction.args.toSpliced(successor.at, 0, index) };
  });
  return { ...method, values, operators, instructions };
}
