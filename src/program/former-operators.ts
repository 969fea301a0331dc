/** Maps former operators to those that replaced them by one operator with an argument, so that older programs still run. */
import type { Method, Value } from "./program.ts";

/** Activations of the gates that had operators of their own; `_halves` took both halves as one input. */
const activations: ReadonlyMap<string, string> = new Map(
  Object.entries({
    swiglu: "silu",
    geglu: "geluTanh",
    erf_geglu: "gelu",
    quick_geglu: "quickGelu",
    reglu: "relu",
    squared_reglu: "squaredRelu",
    sigmoid_gate: "sigmoid",
    swiglu_halves: "silu",
    geglu_halves: "geluTanh",
  }).map(([gate, activation]) => [`lowbit::${gate}`, activation]),
);

/** The method with today's operators, `gate` and `gate_halves`, whose activation is an argument after their inputs. */
export function renewOperators(method: Method): Method {
  const former = method.operators.map(({ name }) => activations.get(name));
  if (former.every((value) => value === undefined)) return method;
  const values: Value[] = [...method.values];
  const halves = method.operators.map(({ name }) => name.endsWith("_halves"));
  const instructions = method.instructions.map((instruction) => {
    const value = instruction.kind === "kernel" ? former[instruction.operator] : undefined;
    if (instruction.kind !== "kernel" || value === undefined) return instruction;
    const index = values.push({ kind: "string", value }) - 1;
    return { ...instruction, args: instruction.args.toSpliced(halves[instruction.operator] ? 1 : 2, 0, index) };
  });
  const operators = method.operators.map((operator, i) =>
    former[i] === undefined ? operator : { ...operator, name: halves[i] ? "lowbit::gate_halves" : "lowbit::gate" },
  );
  return { ...method, values, operators, instructions };
}
