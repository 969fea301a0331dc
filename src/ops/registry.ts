/** The operators of this package, and the registry that programs look them up in. */

import { shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { creationOperators } from "./aten/creation.ts";
import { functionOperators } from "./aten/functions.ts";
import { indexingOperators } from "./aten/indexing.ts";
import { movementOperators, movementRoutines } from "./aten/movement.ts";
import { pointwiseOperators } from "./aten/pointwise.ts";
import { reductionOperators, reductionRoutines } from "./aten/reduction.ts";
import { attentionOperator } from "./attention.ts";
import { literalProblem } from "./call-arguments.ts";
import { selectOperator, softcapOperator } from "./elementwise.ts";
import { embeddingFloatOperator, embeddingPackedOperators, embeddingSharedOperators } from "./embedding.ts";
import { expertOperators } from "./experts.ts";
import { clampedGateOperator, gateHalvesOperator, gateOperator } from "./gate.ts";
import { geluOperator } from "./gelu.ts";
import { int4Operators } from "./int4.ts";
import {
  linearA8BlocksOperator,
  linearA8Operators,
  linearA8SwigluOperators,
  linearFloatOperator,
  linearWeightOnlyOperator,
} from "./linear.ts";
import { llamaOperators } from "./llama.ts";
import { groupSumsOperator } from "./minima.ts";
import { addRmsNormOperator, layerNormOperator, rmsNormOperator } from "./norm.ts";
import { numberOperators } from "./number.ts";
import { defineOperator, type Operator, type OperatorDefinition } from "./operator.ts";
import { OperatorRegistry } from "./operator-registry.ts";
import { partOperators } from "./parts.ts";
import { quantizedDecomposedOperators, quantizedDecomposedRoutines } from "./quantized-decomposed.ts";
import { recurrentOperators } from "./recurrent.ts";
import { sequenceOperators } from "./sequences.ts";
import { textOperators } from "./texts.ts";
import { ropeAnglesOperator, ropeOperator } from "./transformer.ts";

/** Every operator that programs loaded by this process may call. */
export const operators = new OperatorRegistry(
  [
    ...linearA8Operators,
    linearA8BlocksOperator,
    ...linearA8SwigluOperators,
    linearWeightOnlyOperator,
    linearFloatOperator,
    ...int4Operators,
    ...embeddingPackedOperators,
    ...embeddingSharedOperators,
    embeddingFloatOperator,
    rmsNormOperator,
    addRmsNormOperator,
    layerNormOperator,
    ropeAnglesOperator,
    ropeOperator,
    attentionOperator,
    gateOperator,
    gateHalvesOperator,
    clampedGateOperator,
    ...expertOperators,
    softcapOperator,
    groupSumsOperator,
    selectOperator,
    ...pointwiseOperators,
    ...functionOperators,
    ...movementOperators,
    ...indexingOperators,
    ...creationOperators,
    ...reductionOperators,
    ...llamaOperators,
    ...sequenceOperators,
    ...recurrentOperators,
    ...partOperators,
    ...textOperators,
    geluOperator,
    ...quantizedDecomposedOperators,
  ],
  { numbers: numberOperators, routines: [...movementRoutines, ...reductionRoutines, ...quantizedDecomposedRoutines] },
);

/** InvalidArgumentError where a definition, or one of its kernels, lacks what JavaScript does not ask for. */
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

/** InvalidArgumentError where kernels or the arguments that a definition names cannot be. */
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

/** Adds an operator of the user's own, for eager calls, capture, export and loaded programs alike; InvalidArgumentError says what is wrong with it. */
export function registerOperator<A>(definition: OperatorDefinition<A>): Operator {
  checkFields(definition);
  const operator = defineOperator(definition);
  checkDefinition(operator, definition);
  operators.register(operator);
  return operator;
}
