/** Built-in functions with Python's argument passing. */
import { typeError } from "./faults.ts";
import { Callable, type Keywords, type Value } from "./values.ts";

/** A function's parameters and body. Absent arguments are passed as undefined. */
export interface Signature {
  readonly parameters: readonly string[];
  readonly required: number;
  readonly positionalOnly: boolean;
  // biome-ignore lint/suspicious/noExplicitAny: parameters differ by function; `bind` sees to their number.
  readonly run: (...args: any[]) => Value;
}

/**
 * Makes a signature. `parameters` are names separated by spaces: optional ones end with "?", and a leading "/" says that none
 * can be passed by name. Leading arguments of `run` that the callee binds, such as a method's object, are not listed.
 */
export function signature(parameters: string, run: Signature["run"]): Signature {
  const words = parameters.split(" ").filter((word) => word !== "" && word !== "/");
  return {
    parameters: words.map((word) => word.replace("?", "")),
    required: words.filter((word) => !word.endsWith("?")).length,
    positionalOnly: parameters.startsWith("/"),
    run,
  };
}

/** Arranges arguments in the order of the parameters; TypeError when they do not fit. */
export function bind(
  name: string,
  { parameters, required, positionalOnly }: Signature,
  args: readonly Value[],
  keywords: Keywords,
): readonly (Value | undefined)[] {
  if (args.length > parameters.length) {
    const most =
      parameters.length === 0
        ? "no arguments"
        : `at most ${parameters.length} argument${parameters.length === 1 ? "" : "s"}`;
    typeError(`${name}() takes ${most} (${args.length} given)`);
  }
  if (keywords.size === 0) {
    if (args.length < required) missing(name, parameters.slice(args.length, required));
    return args;
  }
  if (positionalOnly) typeError(`${name}() takes no keyword arguments`);
  const bound: (Value | undefined)[] = [...args];
  for (const [key, value] of keywords) {
    const at = parameters.indexOf(key);
    if (at === -1) typeError(`${name}() got an unexpected keyword argument '${key}'`);
    if (at < args.length) typeError(`${name}() got multiple values for argument '${key}'`);
    bound[at] = value;
  }
  const absent = parameters.slice(0, required).filter((_, i) => bound[i] === undefined);
  if (absent.length > 0) missing(name, absent);
  return bound;
}

function missing(name: string, parameters: readonly string[]): never {
  const plural = parameters.length === 1 ? "" : "s";
  const list = parameters.map((parameter) => `'${parameter}'`).join(" and ");
  typeError(`${name}() missing ${parameters.length} required positional argument${plural}: ${list}`);
}

/** A built-in function or bound method; `name` is its printed form, without the address. */
export class Builtin extends Callable {
  readonly typeName: string;
  readonly #name: string;
  readonly #call: (args: readonly Value[], keywords: Keywords) => Value;

  constructor(name: string, call: (args: readonly Value[], keywords: Keywords) => Value, typeName = "function") {
    super();
    this.#name = name;
    this.#call = call;
    this.typeName = typeName;
  }

  call(args: readonly Value[], keywords: Keywords): Value {
    return this.#call(args, keywords);
  }

  override describe(): string {
    return `<${this.#name} at 0x7f0000000000>`;
  }
}

/** Makes a built-in function with these parameters. */
export function builtin(name: string, parameters: string, run: Signature["run"]): Builtin {
  const own = signature(parameters, run);
  return new Builtin(`function ${name}`, (args, keywords) => run(...bind(name, own, args, keywords)));
}
