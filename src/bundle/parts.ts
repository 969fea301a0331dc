/** The modules of operators and of kernels that a bundle takes its parts from, by their paths under the package's modules. */

import * as elementwiseReference from "../kernels/reference/elementwise.ts";
import * as embeddingReference from "../kernels/reference/embedding.ts";
import * as fusedReference from "../kernels/reference/fused.ts";
import * as int4Reference from "../kernels/reference/int4.ts";
import * as linearReference from "../kernels/reference/linear.ts";
import * as transformerReference from "../kernels/reference/transformer.ts";
import * as table from "../kernels/table.ts";
import * as attentionWasm from "../kernels/wasm/attention/attention.ts";
import * as ropeWasm from "../kernels/wasm/attention/rope.ts";
import * as elementwiseWasm from "../kernels/wasm/elementwise.ts";
import * as embeddingWasm from "../kernels/wasm/embedding.ts";
import * as embeddingPackedWasm from "../kernels/wasm/embedding-packed.ts";
import * as fusedWasm from "../kernels/wasm/fused.ts";
import * as linearFloatWasm from "../kernels/wasm/linear/float.ts";
import * as linearWasm from "../kernels/wasm/linear/linear.ts";
import * as linearWeightOnlyWasm from "../kernels/wasm/linear/weight-only.ts";
import * as rowsWasm from "../kernels/wasm/rows.ts";
import * as creation from "../ops/aten/creation.ts";
import * as functions from "../ops/aten/functions.ts";
import * as indexing from "../ops/aten/indexing.ts";
import * as movement from "../ops/aten/movement.ts";
import * as pointwise from "../ops/aten/pointwise.ts";
import * as reduction from "../ops/aten/reduction.ts";
import * as attention from "../ops/attention.ts";
import * as elementwise from "../ops/elementwise.ts";
import * as embedding from "../ops/embedding.ts";
import * as fused from "../ops/fused.ts";
import * as int4 from "../ops/int4.ts";
import * as linear from "../ops/linear.ts";
import * as llama from "../ops/llama.ts";
import * as minima from "../ops/minima.ts";
import * as number from "../ops/number.ts";
import * as quantizedDecomposed from "../ops/quantized-decomposed.ts";
import * as transformer from "../ops/transformer.ts";

/** Exports by name: operators or kernels, or lists of them, and anything else. */
export type Part = Readonly<Record<string, unknown>>;

export const operatorModules: Readonly<Record<string, Part>> = {
  "ops/attention": attention,
  "ops/elementwise": elementwise,
  "ops/embedding": embedding,
  "ops/fused": fused,
  "ops/int4": int4,
  "ops/linear": linear,
  "ops/llama": llama,
  "ops/minima": minima,
  "ops/number": number,
  "ops/quantized-decomposed": quantizedDecomposed,
  "ops/transformer": transformer,
  "ops/aten/creation": creation,
  "ops/aten/functions": functions,
  "ops/aten/indexing": indexing,
  "ops/aten/movement": movement,
  "ops/aten/pointwise": pointwise,
  "ops/aten/reduction": reduction,
};

export const kernelModules: Readonly<Record<string, Part>> = {
  "kernels/wasm/attention/attention": attentionWasm,
  "kernels/wasm/elementwise": elementwiseWasm,
  "kernels/wasm/embedding": embeddingWasm,
  "kernels/wasm/embedding-packed": embeddingPackedWasm,
  "kernels/wasm/fused": fusedWasm,
  "kernels/wasm/linear/linear": linearWasm,
  "kernels/wasm/linear/float": linearFloatWasm,
  "kernels/wasm/linear/weight-only": linearWeightOnlyWasm,
  "kernels/wasm/attention/rope": ropeWasm,
  "kernels/wasm/rows": rowsWasm,
  "kernels/reference/elementwise": elementwiseReference,
  "kernels/reference/embedding": embeddingReference,
  "kernels/reference/fused": fusedReference,
  "kernels/reference/int4": int4Reference,
  "kernels/reference/linear": linearReference,
  "kernels/reference/transformer": transformerReference,
};

/** Lists of rows by family, as operators use them. */
export const families: Part = table;
