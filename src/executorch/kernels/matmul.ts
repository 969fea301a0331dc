/** Batched matrix products, in double precision and rounded once. */
import type { Tensor } from "../../tensor.ts";
import { denseKernel, numbersOf, storeInto } from "./dense.ts";

export interface MatmulArgs {
  /** y [batch, m, n] = beta * bias + alpha * a [batch, m, k] b [batch, k, n] */
  readonly batch: number;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly a: Tensor;
  readonly b: Tensor;
  readonly alpha: number;
  /** Added unchanged; of the size of a row, of the result, or of one element. */
  readonly bias: Tensor | null;
  readonly beta: number;
  readonly out: Tensor;
}

export const matmulReference = denseKernel<MatmulArgs>("matmul", (args) => {
  const { batch, m, n, k, alpha, beta } = args;
  const a = numbersOf(args.a);
  const b = numbersOf(args.b);
  const bias = args.bias ? numbersOf(args.bias) : null;
  const store = storeInto(args.out);
  const sums = new Float64Array(n);
  for (let row = 0; row < batch * m; row++) {
    const first = Math.floor(row / m) * k * n;
    sums.fill(0);
    // Loops along rows of b, whose elements are adjacent.
    for (let c = 0; c < k; c++) {
      const factor = a[row * k + c]!;
      const start = first + c * n;
      for (let column = 0; column < n; column++) sums[column]! += factor * b[start + column]!;
    }
    for (let column = 0; column < n; column++) {
      const place = row * n + column;
      store(place, alpha * sums[column]! + (bias ? beta * bias[place % bias.length]! : 0));
    }
  }
});
