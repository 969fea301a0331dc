/** Registers operators of users, after checking their definitions. */
import { shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { literalProblem } from "../ops/call-arguments.ts";
import { defineOperator, type Operator, type OperatorDefinition } from "../ops/operator.ts";
import { operators } from "./operators.ts";

/** InvalidArgumentError where a definition, or one of its kernels, lacks required fields. */
function checkFields<A>(definition: OperatorDefinition<A>): void {
  const check = (
    what: string,
    object: object | undefined,
    fields: Readonly<Record<string, (value: unknown) => boolean>>,
  ) => {
    const found = (object ?? {}) as Readonly<Record<string, unknown>>;
    const missing = Object.keys(fields).find((field) => !fields[field]!(found[field]));
    if (missing !== undefined)
      throw new InvalidArgumentError(
        `${what}: expected ${Object.keys(fields).join(", ")} but found ${shown(found[missing])} as ${missing}`,
      );
  };
  const isText = (value: unknown) => typeof value === "string";
  const isFunction = (value: unknown) => typeof value === "function";
  const isCount = (value: unknown) => Number.isInteger(value) && (value as number) >= 1;
  const fields = { schema: isText, kernels: Array.isArray, shape: isFunction, prepare: isFunction };
  check("registerOperator", definition, fields);
  const rowFields = {
    name: isText,
    target: isText,
    needs: Array.isArray,
    mStep: isCount,
    nStep: isCount,
    bind: isFunction,
  };
  for (const kernel of definition.kernels) check(`registerOperator, ${definition.schema}, a kernel`, kernel, rowFields);
}

/** InvalidArgumentError for impossible kernels, and for arguments that a definition names but its schema lacks. */
function checkDefinition<A>({ schema, name }: Operator, definition: OperatorDefinition<A>): void {
  const { kernels, inPlace = [], rowwise = [], indices } = definition;
  const last = kernels.at(-1);
  if (!last) throw new InvalidArgumentError(`operator ${name}: expected at least one kernel but found none`);
  if (last.needs.length > 0 || last.mStep > 1)
    throw new InvalidArgumentError(
      `operator ${name}: expected a last kernel that serves every call on every CPU but found ${last.name}, which ` +
        (last.needs.length > 0 ? `needs ${last.needs.join(", ")}` : `serves m >= ${last.mStep}`),
    );
  for (const { name: argument, type, default: value } of schema.args) {
    const expected = value === undefined ? null : literalProblem(type, value);
    if (expected !== null)
      throw new InvalidArgumentError(
        `operator ${name}, argument ${argument}: expected ${expected} as default but found ${value}`,
      );
  }
  const inputs = schema.args.filter(({ isOut, type }) => !isOut && type.startsWith("Tensor"));
  for (const argument of [...inPlace, ...rowwise, ...(indices ? [indices.argument] : [])])
    if (!inputs.some((input) => input.name === argument))
      throw new InvalidArgumentError(
        `operator ${name}: expected tensors of its schema (${inputs.map((input) => input.name).join(", ")}) in inPlace, ` +
          `rowwise and indices but found ${argument}`,
      );
}

/**
 * Adds a user's operator, for eager calls, capture, export and loaded programs. InvalidArgumentError says what is wrong
 * with it.
 */
export function registerOperator<A>(definition: OperatorDefinition<A>): Operator {
  checkFields(definition);
  const operator = defineOperator(definition);
  checkDefinition(operator, definition);
  operators.register(operator);
  return operator;
}
