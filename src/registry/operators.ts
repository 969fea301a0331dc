/** Every operator of this package: its own, and those that ExecuTorch's programs call. */

import { creationOperators } from "../executorch/operators/creation.ts";
import { functionOperators } from "../executorch/operators/functions.ts";
import { indexingOperators } from "../executorch/operators/indexing.ts";
import { kvcacheOperators } from "../executorch/operators/kvcache.ts";
import { llamaOperators } from "../executorch/operators/llama.ts";
import { movementOperators, movementRoutines } from "../executorch/operators/movement.ts";
import { numberOperators } from "../executorch/operators/numbers.ts";
import { gelu, pointwiseOperators } from "../executorch/operators/pointwise.ts";
import {
  quantizedDecomposedOperators,
  quantizedDecomposedRoutines,
} from "../executorch/operators/quantized-decomposed.ts";
import { reductionOperators, reductionRoutines } from "../executorch/operators/reduction.ts";
import { attentionOperator } from "../ops/attention.ts";
import { selectOperator, softcapOperator } from "../ops/elementwise.ts";
import { embeddingFloatOperator, embeddingPackedOperators, embeddingSharedOperators } from "../ops/embedding.ts";
import { embeddingRowsOperator } from "../ops/embedding-rows.ts";
import { expertOperators } from "../ops/experts.ts";
import { clampedGateOperator, gateHalvesOperator, gateOperator } from "../ops/gate.ts";
import { int4Operators } from "../ops/int4.ts";
import {
  linearA8BlocksOperator,
  linearA8Operators,
  linearA8SwigluOperators,
  linearFloatOperator,
  linearWeightOnlyOperator,
} from "../ops/linear.ts";
import { groupSumsOperator } from "../ops/minima.ts";
import { addRmsNormOperator, layerNormOperator, rmsNormOperator } from "../ops/norm.ts";
import { OperatorRegistry } from "../ops/operator-registry.ts";
import { packedSequenceOperators } from "../ops/packed-sequences.ts";
import { partOperators } from "../ops/parts.ts";
import { recurrentOperators } from "../ops/recurrent.ts";
import { sequenceOperators } from "../ops/sequences.ts";
import { ropeAnglesOperator, ropeOperator } from "../ops/transformer.ts";

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
    embeddingRowsOperator,
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
    ...kvcacheOperators,
    ...sequenceOperators,
    ...recurrentOperators,
    ...partOperators,
    ...packedSequenceOperators,
    gelu,
    ...quantizedDecomposedOperators,
  ],
  { numbers: numberOperators, routines: [...movementRoutines, ...reductionRoutines, ...quantizedDecomposedRoutines] },
);
