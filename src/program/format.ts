/** A method as text: an instruction a line, in the form that graphs have before they are written. */
import type { Instruction, Method, Value } from "./program.ts";

export function formatMethod(method: Method): string {
  const { name, values, inputs, outputs, instructions } = method;
  const names = new Map<number, string>(inputs.map((index, i) => [index, `input${i}`]));
  let unnamed = 0;
  const nameOf = (index: number) => {
    const value = values[index]!;
    const known = names.get(index) ?? (value.kind === "tensor" ? value.name : null);
    if (known) return known;
    const next = `%${unnamed++}`;
    names.set(index, next);
    return next;
  };
  const show = (index: number): string => {
    const value = values[index]!;
    if (value.kind === "tensor") return nameOf(index);
    if (value.kind === "tensorList" || value.kind === "intList") return `[${value.items.map(show).join(", ")}]`;
    if (value.kind === "optionalTensorList")
      return `[${value.items.map((item) => (item < 0 ? "null" : show(item))).join(", ")}]`;
    return names.get(index) ?? showLiteral(value);
  };
  const typed = (index: number) => `${nameOf(index)}${typeOf(values[index]!)}`;
  const line = (instruction: Instruction) => {
    if (instruction.kind !== "kernel") return `  ${instruction.kind}`;
    const { name: operator, overload } = method.operators[instruction.operator]!;
    const fullName = `${operator}${overload ? `.${overload}` : ""}`;
    const out = instruction.args.at(-1);
    // Only damaged files have calls without arguments.
    if (out === undefined) return `  ${fullName}()`;
    // The last two arguments are the out tensor and the returned value, which are one.
    const args = instruction.args.slice(0, instruction.args.at(-2) === out ? -2 : -1);
    return `  ${typed(out)} = ${fullName}(${args.map(show).join(", ")})`;
  };
  const head = `${name}(${inputs.map(typed).join(", ")})`;
  return [head, ...instructions.map(line), `  return ${outputs.map(show).join(", ")}`].join("\n");
}

function typeOf(value: Value): string {
  if (value.kind !== "tensor") return "";
  const { dtype, sizes, dynamism, allocation } = value;
  const bound = dynamism === "static" ? "" : "<=";
  const place = allocation ? ` at ${allocation.memoryId}:${allocation.offset}` : "";
  return `: ${dtype}[${bound}${sizes.join(", ")}]${place}`;
}

function showLiteral(value: Value): string {
  switch (value.kind) {
    case "null":
      return "null";
    case "int":
    case "double":
    case "bool":
      return String(value.value);
    case "string":
      return JSON.stringify(value.value);
    case "doubleList":
    case "boolList":
      return `[${value.items.join(", ")}]`;
    default:
      return value.kind;
  }
}
