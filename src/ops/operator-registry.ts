/**
 * Registry of the operators that programs may call: those with one out tensor, and further kinds in other exporters'
 * programs.
 */

import type { DType } from "../dtype.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Tensor } from "../tensor.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import type { Operator } from "./operator.ts";
import { nameOf, parseAnySchema, type Schema } from "./schema.ts";

/** An operator whose result is a number, which later calls take as an argument. */
export interface NumberOperator {
  /** Name, arguments and their types. */
  readonly schema: Schema;
  /** Full name with namespace and overload. */
  readonly name: string;
  /** Computes the result. */
  evaluate(args: Arguments<Tensor>): number | boolean;
}

/** Makes a number operator of its schema and its rule. */
export function numberOperator(schema: string, evaluate: NumberOperator["evaluate"]): NumberOperator {
  let parsed: Schema | undefined;
  return {
    get schema() {
      parsed ??= parseAnySchema(schema);
      return parsed;
    },
    name: nameOf(schema),
    evaluate,
  };
}

/**
 * An operator with several results, or without one of its own: written in place, or a view. Programs compiled here call
 * none.
 */
export interface Routine {
  /** Name, arguments and their types. */
  readonly schema: Schema;
  /** Full name with namespace and overload. */
  readonly name: string;
  /** Specs of the out tensors, given the arguments and the planned dtypes. */
  outs(args: Arguments<TensorSpec>, planned: readonly DType[]): readonly TensorSpec[];
  /** Runs the routine; null for a view, whose result is its first tensor's data with the out tensor's shape. */
  readonly run: ((args: Arguments<Tensor>) => void) | null;
  /** Arguments that what the routine writes in place may lie exactly over. */
  readonly inPlace: readonly string[];
}

/** Makes a routine of its schema. */
export function routine(
  schema: string,
  outs: Routine["outs"],
  run: Routine["run"],
  inPlace: Routine["inPlace"] = [],
): Routine {
  let parsed: Schema | undefined;
  return {
    get schema() {
      parsed ??= parseAnySchema(schema);
      return parsed;
    },
    name: nameOf(schema),
    ...{ outs, run, inPlace },
  };
}

/** Operators that models of this package never call, but other exporters' programs do. */
export interface OtherOperators {
  /** Operators whose result is a number or a boolean. */
  readonly numbers?: Iterable<NumberOperator>;
  /** Operators with several results or none. */
  readonly routines?: Iterable<Routine>;
}

/** The operators that a program may call, by name. */
export class OperatorRegistry {
  readonly #operators = new Map<string, Operator>();
  readonly #numbers: ReadonlyMap<string, NumberOperator>;
  readonly #routines: ReadonlyMap<string, Routine>;

  constructor(operators: Iterable<Operator> = [], { numbers = [], routines = [] }: OtherOperators = {}) {
    this.#numbers = new Map([...numbers].map((operator) => [operator.name, operator]));
    this.#routines = new Map([...routines].map((operator) => [operator.name, operator]));
    for (const operator of operators) this.register(operator);
  }

  /** Adds an operator. InvalidArgumentError when the name is taken. */
  register(operator: Operator): void {
    if (this.has(operator.name)) throw new InvalidArgumentError(`operator ${operator.name} is registered already`);
    this.#operators.set(operator.name, operator);
  }

  /** Whether there is an operator of this full name. */
  has(name: string): boolean {
    return this.#operators.has(name) || this.#numbers.has(name) || this.#routines.has(name);
  }

  /** The operator of this name, if its result is a number. */
  number(name: string): NumberOperator | undefined {
    return this.#numbers.get(name);
  }

  /** The operator of this name, if it is a routine. */
  routine(name: string): Routine | undefined {
    return this.#routines.get(name);
  }

  /** The schema of any operator. UnsupportedError when there is none of this name. */
  schema(name: string): Schema {
    return (this.#numbers.get(name) ?? this.#routines.get(name) ?? this.get(name)).schema;
  }

  /** The operator of this name, if it writes one tensor. */
  find(name: string): Operator | undefined {
    return this.#operators.get(name);
  }

  /** The operator of this full name. UnsupportedError when there is none. */
  get(name: string): Operator {
    const operator = this.find(name);
    if (!operator) throw new UnsupportedError(`operator ${name} is not registered; ${this.#remedy(name)}`);
    return operator;
  }

  /** A hint for names without an overload: programs must name the out variant. */
  #remedy(name: string): string {
    const overloads = [...this.#operators.keys()].filter((known) => known.startsWith(`${name}.`));
    return overloads.length > 0 ? `expected ${overloads.join(" or ")}` : "register it with registerOperator";
  }

  /** Iterates over the operators in the order in which they were added. */
  [Symbol.iterator](): Iterator<Operator> {
    return this.#operators.values();
  }
}
