/** The operators of this package, and the registry that programs look them up in. */

import { InvalidArgumentError } from "../errors.ts";
import { creationOperators } from "./aten/creation.ts";
import { functionOperators } from "./aten/functions.ts";
import { indexingOperators } from "./aten/indexing.ts";
import { movementOperators, movementRoutines } from "./aten/movement.ts";
import { pointwiseOperators } from "./aten/pointwise.ts";
import { reductionOperators, reductionRoutines } from "./aten/reduction.ts";
import { attentionInt8Operator, attentionOperator } from "./attention.ts";
import { selectOperator, softcapOperator } from "./elementwise.ts";
import { embeddingFloatOperator, embeddingPackedOperators, embeddingSharedOperators } from "./embedding.ts";
import { fusedOperators } from "./fused.ts";
import { int4Operators } from "./int4.ts";
import { linearA8Operators, linearA8SwigluOperator, linearFloatOperator, linearWeightOnlyOperator } from "./linear.ts";
import { llamaOperators } from "./llama.ts";
import { groupSumsOperator } from "./minima.ts";
import { numberOperators } from "./number.ts";
import { defineOperator, type Operator, type OperatorDefinition } from "./operator.ts";
import { OperatorRegistry } from "./operator-registry.ts";
import { quantizedDecomposedOperators, quantizedDecomposedRoutines } from "./quantized-decomposed.ts";
import { gatedOperators, rmsNormOperator, ropeAnglesOperator, ropeOperator } from "./transformer.ts";

/** Every operator that programs loaded by this process may call. */
export const operators = new OperatorRegistry(
  [
    ...linearA8Operators,
    linearA8SwigluOperator,
    linearWeightOnlyOperator,
    linearFloatOperator,
    ...int4Operators,
    ...embeddingPackedOperators,
    ...embeddingSharedOperators,
    embeddingFloatOperator,
    rmsNormOperator,
    ropeAnglesOperator,
    ropeOperator,
    attentionOperator,
    attentionInt8Operator,
    ...gatedOperators,
    ...fusedOperators,
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
    ...quantizedDecomposedOperators,
  ],
  { numbers: numberOperators, routines: [...movementRoutines, ...reductionRoutines, ...quantizedDecomposedRoutines] },
);

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
  const operator = defineOperator(definition);
  checkDefinition(operator, definition);
  operators.register(operator);
  return operator;
}
