/**
 * Operator schemas in PyTorch's notation: "ns::name.overload(Tensor x, int n, *, Tensor(a!) out) -> Tensor(a!)", or
 * "ns::name(Tensor x, int dim) -> SymInt" for operators that give a number.
 */
import { InvalidArgumentError } from "../errors.ts";

export type ArgumentType =
  | "Tensor"
  | "Tensor?"
  | "int"
  | "int?"
  | "float"
  | "float?"
  | "bool"
  | "Scalar"
  | "Scalar?"
  | "str"
  | "str?"
  | "int[]"
  | "int[]?"
  | "Tensor[]"
  | "Tensor?[]";

/** Value of an argument that a call leaves out. */
export type Default = number | boolean | string | null | readonly number[];

export interface SchemaArgument {
  /** Name of the argument. */
  readonly name: string;
  /** Type of the argument. */
  readonly type: ArgumentType;
  /** Whether the operator writes the argument: a state, or the out tensor. */
  readonly mutable: boolean;
  /** Whether the argument is an out tensor, which the result is written to. */
  readonly isOut: boolean;
  /** The value when a call leaves the argument out; undefined when it is required. */
  readonly default: Default | undefined;
}

export interface Schema {
  /** Name with its namespace, such as "torchao::_shared_embedding_4bit". */
  readonly name: string;
  /** Name of the overload, such as "out"; empty for the default one. */
  readonly overload: string;
  /** All arguments, out arguments last. */
  readonly args: readonly SchemaArgument[];
  /**
   * What the operator returns: one tensor, written to the only out argument; a number; or several out arguments or an input
   * written in place.
   */
  readonly returns: "tensor" | "number" | "other";
}

/** Return types of operators whose result is a number or a boolean. */
const numberTypes = ["int", "SymInt", "float", "bool", "Scalar"];

const types: readonly ArgumentType[] = [
  "Tensor",
  "Tensor?",
  "int",
  "int?",
  "float",
  "float?",
  "bool",
  "Scalar",
  "Scalar?",
  "str",
  "str?",
  "int[]",
  "int[]?",
  "Tensor[]",
  "Tensor?[]",
];

/** Most characters of an operator's name, since ExecuTorch keeps it in a buffer of this size. */
const NAME_MAX = 100;

/** Full name of an operator, such as "torchao::_shared_embedding_4bit.out". */
export function qualifiedName({ name, overload }: { name: string; overload: string }): string {
  return overload ? `${name}.${overload}` : name;
}

/** Full name of the operator that a schema's text is of. */
export function nameOf(text: string): string {
  return text.slice(0, text.indexOf("(")).trim();
}

/** Index of an argument; -1 when there is none of this name. */
export function argumentIndex({ args }: Schema, name: string): number {
  return args.findIndex((arg) => arg.name === name);
}

/** Parses the schema of an out variant with one out argument. InvalidArgumentError says what is wrong with it. */
export function parseSchema(text: string): Schema {
  const schema = parseAnySchema(text);
  if (schema.returns !== "tensor")
    throw new InvalidArgumentError(`schema "${text}": expected exactly one out argument after "*", the last of all`);
  const [, alias, result] = /(\(\w+!\))\s+\w+\s*\)\s*->\s*(.+)$/s.exec(text.trim())!;
  if (result !== `Tensor${alias}`)
    throw new InvalidArgumentError(
      `schema "${text}": expected the out argument, Tensor${alias}, as the result but found ${result}`,
    );
  return schema;
}

/** Parses the schema of any operator. */
export function parseAnySchema(text: string): Schema {
  const match = /^([\w:]+)(?:\.(\w+))?\((.*)\)\s*->\s*(.+)$/s.exec(text.trim());
  if (!match) throw new InvalidArgumentError(`schema "${text}": expected "ns::name.out(Tensor x, …) -> Tensor(a!)"`);
  const [, name, overload = "", list, result] = match;
  if (!/^\w+::\w+$/.test(name!)) throw new InvalidArgumentError(`schema "${text}": expected a name such as ns::name`);
  if (name!.length + overload.length + 1 > NAME_MAX)
    throw new InvalidArgumentError(`schema "${text}": the name must have at most ${NAME_MAX} characters`);
  const parts = splitArguments(list!);
  const star = parts.indexOf("*");
  const args = parts.filter((part) => part !== "*").map((part, i) => parseArgument(text, part, star >= 0 && i >= star));
  const outs = args.filter((arg) => arg.isOut).length;
  const returns = outs === 1 && args.at(-1)!.isOut ? "tensor" : numberTypes.includes(result!) ? "number" : "other";
  const twice = args.find((arg, i) => args.findIndex((other) => other.name === arg.name) < i);
  if (twice) throw new InvalidArgumentError(`schema "${text}": there are two arguments named ${twice.name}`);
  return { name: name!, overload, args, returns };
}

/** Splits a list of arguments at commas outside of brackets and quotes. */
function splitArguments(list: string): string[] {
  const parts = list.match(/(?:\([^)]*\)|\[[^\]]*\]|"[^"]*"|'[^']*'|[^,])+/g) ?? [];
  return parts.map((part) => part.trim()).filter((part) => part !== "");
}

function parseArgument(schema: string, part: string, afterStar: boolean): SchemaArgument {
  const match = /^(\w+)(\(\w+!?\))?((?:\?|\[\d*\])*)\s+(\w+)(?:\s*=\s*(.+))?$/s.exec(part);
  if (!match) throw new InvalidArgumentError(`schema "${schema}": cannot read argument "${part}"`);
  const [, base, alias, suffix = "", name, value] = match;
  const type = `${base === "SymInt" ? "int" : base}${suffix.replace(/\[\d+\]/, "[]")}` as ArgumentType;
  if (!types.includes(type))
    throw new InvalidArgumentError(`schema "${schema}": argument type "${type}", expected one of ${types.join(", ")}`);
  const mutable = alias?.includes("!") ?? false;
  const defaultValue = value === undefined ? undefined : parseDefault(value, /\[(\d+)\]/.exec(suffix)?.[1]);
  if (Number.isNaN(defaultValue)) {
    const written = /str|\[/.test(type) ? "a string in quotes or numbers in brackets" : "a number, True, False or None";
    throw new InvalidArgumentError(
      `schema "${schema}": argument ${name}: expected ${written} as default but found ${value}`,
    );
  }
  return { name: name!, type, mutable, isOut: afterStar && mutable, default: defaultValue };
}

/** Parses a default. A single number stands for a whole list of `size` numbers. NaN for text that is no value. */
function parseDefault(text: string, size: string | undefined): Default {
  if (text === "None") return null;
  if (text === "True" || text === "False") return text === "True";
  try {
    const value = JSON.parse(text.replace(/^'(.*)'$/, '"$1"'));
    return size && typeof value === "number" ? Array(Number(size)).fill(value) : value;
  } catch {
    return Number(text);
  }
}
