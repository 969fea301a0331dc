/** Dense matrix products outside of models, by the float linear operator with its native kernels. */
import { hostCpu } from "../kernels/cpu.ts";
import { type Matrix, matrix } from "../matrix.ts";
import { EagerBuilder } from "./eager.ts";
import { linearFloatOperator } from "./linear.ts";
import { OperatorRegistry } from "./operator-registry.ts";

let builder: EagerBuilder | undefined;

/** Computes a b^T for a [m, k] and b [n, k], to [m, n], within about 1e-5 of float32 sums. */
export function multiplyTransposed(a: Matrix, b: Matrix): Matrix {
  builder ??= new EagerBuilder(new OperatorRegistry([linearFloatOperator]), hostCpu());
  const tensor = ({ rows, columns, data }: Matrix) => ({ dtype: "f32" as const, shape: [rows, columns], data });
  const { data } = builder.call("aten::linear.out", tensor(a), tensor(b), null);
  return matrix(a.rows, b.rows, data as Float32Array);
}

/** Reuses the memory of a product that is not read any more for later ones. */
export function recycleProduct({ rows, columns, data }: Matrix): void {
  builder?.recycle({ dtype: "f32", shape: [rows, columns], data });
}
