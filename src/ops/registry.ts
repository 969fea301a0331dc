/** The operators of this package, and the registry that programs look them up in. */

import { creationOperators } from "./aten/creation.ts";
import { indexingOperators } from "./aten/indexing.ts";
import { movementOperators, movementRoutines } from "./aten/movement.ts";
import { pointwiseOperators } from "./aten/pointwise.ts";
import { reductionOperators } from "./aten/reduction.ts";
import { attentionInt8Operator, attentionOperator } from "./attention.ts";
import { argmaxOperator, selectOperator, softcapOperator } from "./elementwise.ts";
import { embeddingFloatOperator, embeddingPackedOperators, embeddingSharedOperators } from "./embedding.ts";
import { fusedOperators } from "./fused.ts";
import { int4Operators } from "./int4.ts";
import { linearA8Operators, linearA8SwigluOperator, linearFloatOperator, linearWeightOnlyOperator } from "./linear.ts";
import { llamaOperators } from "./llama.ts";
import { groupSumsOperator } from "./minima.ts";
import { numberOperators } from "./number.ts";
import { defineOperator, type Operator, type OperatorDefinition, OperatorRegistry } from "./operator.ts";
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
    argmaxOperator,
    ...pointwiseOperators,
    ...movementOperators,
    ...indexingOperators,
    ...creationOperators,
    ...reductionOperators,
    ...llamaOperators,
    ...quantizedDecomposedOperators,
  ],
  { numbers: numberOperators, routines: [...movementRoutines, ...quantizedDecomposedRoutines] },
);

/** Adds an operator of the user's own, for eager calls, capture, export and loaded programs alike. */
export function registerOperator<A>(definition: OperatorDefinition<A>): Operator {
  const operator = defineOperator(definition);
  operators.register(operator);
  return operator;
}
