/**
 * Reference kernels of mixtures of experts (Shazeer et al. 2017; Fedus et al. 2022): routing, rows by expert, weighted sums.
 */

import { type Kernel, referenceRow } from "../../contract.ts";
import type { FloatLinearArgs, PackedLinearArgs } from "../linear/fields.ts";
import type { ExpertLinearArgs, ExpertMatrices, ExpertRowsArgs, RouteArgs, ScatterExpertsArgs } from "./fields.ts";
import { expertRuns, type RoutingParts, routingParts } from "./routing.ts";

export const routeReference: Kernel<RouteArgs> = {
  ...referenceRow,
  name: "route_f32_1x1x1_reference",
  scratchBytes: ({ experts }) => 8 * experts + 8,
  bind(args, { buffer, byteOffset }) {
    const parts = routingParts(args.routing, args);
    const scores = new Float64Array(buffer, byteOffset + (-byteOffset & 7), args.experts);
    return () => {
      for (let row = 0; row < args.rows; row++) routeRow(args, row, scores, parts);
      orderByExpert(args, parts);
    };
  },
};

/** Chooses a row's experts; their ids are written to `places` for now. */
function routeRow(args: RouteArgs, row: number, scores: Float64Array, { places, weights }: RoutingParts): void {
  const { experts, topK, bias, factors, normalize, eps, scale } = args;
  const logits = args.logits.subarray(row * experts, (row + 1) * experts);
  if (args.scores === "softmax") {
    const max = logits.reduce((most, logit) => Math.max(most, logit), Number.NEGATIVE_INFINITY);
    let total = 0;
    for (let e = 0; e < experts; e++) total += scores[e] = Math.exp(logits[e]! - max);
    for (let e = 0; e < experts; e++) scores[e]! /= total;
  } else for (let e = 0; e < experts; e++) scores[e] = 1 / (1 + Math.exp(-logits[e]!));
  const rank = (e: number) => (bias ? Math.fround(scores[e]!) + bias[e]! : logits[e]!);
  const chosen = places.subarray(row * topK, (row + 1) * topK);
  let sum = 0;
  for (let j = 0; j < topK; j++) {
    let best = -1;
    for (let e = 0; e < experts; e++)
      if (!chosen.subarray(0, j).includes(e) && (best < 0 || rank(e) > rank(best))) best = e;
    chosen[j] = best;
    sum += scores[best]!;
  }
  for (let j = 0; j < topK; j++) {
    const weight = normalize ? scores[chosen[j]!]! / (sum + eps) : scores[chosen[j]!]!;
    weights[row * topK + j] = weight * scale * (factors ? factors[chosen[j]!]! : 1);
  }
}

/** Replaces expert ids by places: rows of one expert are consecutive, in their order. */
function orderByExpert({ experts, topK }: RouteArgs, { starts, sources, places }: RoutingParts): void {
  starts.fill(0);
  for (const expert of places) starts[expert + 1]!++;
  for (let expert = 0; expert < experts; expert++) starts[expert + 1]! += starts[expert]!;
  const next = starts.slice();
  for (const [i, expert] of places.entries()) {
    const place = next[expert]!++;
    sources[place] = Math.floor(i / topK);
    places[i] = place;
  }
}

export const expertRowsReference: Kernel<ExpertRowsArgs> = {
  ...referenceRow,
  name: "expert_rows_f32_1x1x1_reference",
  bind(args) {
    const { rows, dim, x, y } = args;
    const { sources } = routingParts(args.routing, args);
    return () => {
      for (const [place, row] of sources.entries())
        if (row >= 0 && row < rows) y.set(x.subarray(row * dim, (row + 1) * dim), place * dim);
        else y.fill(Number.NaN, place * dim, (place + 1) * dim);
    };
  },
};

export const combineExpertsReference: Kernel<ExpertRowsArgs> = {
  ...referenceRow,
  name: "combine_experts_f32_1x1x1_reference",
  bind(args) {
    const { rows, topK, dim, x, y } = args;
    const { places, weights } = routingParts(args.routing, args);
    return () => {
      for (let row = 0; row < rows; row++)
        for (let c = 0; c < dim; c++) {
          let sum = 0;
          for (let i = row * topK; i < (row + 1) * topK; i++)
            sum += weights[i]! * (x[places[i]! * dim + c] ?? Number.NaN);
          y[row * dim + c] = sum;
        }
    };
  },
};

/** The only kernel: for the 262,144 tokens of Gemma's vocabulary it takes 0.1 ms, most of it to fill them. */
export const scatterExpertsReference: Kernel<ScatterExpertsArgs> = {
  ...referenceRow,
  name: "scatter_experts_f32_1x1x1_reference",
  bind(args) {
    const { rows, topK, experts, dim, size, x, routing, columns, y } = args;
    const { sources } = routingParts(routing, args);
    const least = new Float32Array(rows);
    return () => {
      least.fill(Number.POSITIVE_INFINITY);
      for (const [place, row] of sources.entries())
        for (let i = place * dim; i < (place + 1) * dim; i++) least[row] = Math.min(least[row]!, x[i]!);
      for (let row = 0; row < rows; row++) y.fill(least[row]! - 1, row * size, (row + 1) * size);
      for (const { expert, first, count } of expertRuns(routing, experts, rows * topK))
        for (let place = first; place < first + count; place++)
          for (let c = 0; c < dim; c++) {
            const column = columns[expert * dim + c]!;
            // Rows that a routing should not have lie outside of y, where nothing is written.
            if (column >= 0 && column < size) y[sources[place]! * size + column] = x[place * dim + c]!;
          }
    };
  },
};

/** The linear kernel for m rows of an expert. */
function kernelFor<A>({ choices }: ExpertMatrices<A>, m: number): Kernel<A> {
  return choices.findLast(({ from }) => m >= from)!.kernel;
}

/** Multiplies expert by expert, with the linear kernel for its number of rows. */
function expertLinear<A>(name: string): Kernel<ExpertLinearArgs<A>> {
  return {
    ...referenceRow,
    name,
    scratchBytes({ places, n, k, x, y, matrices }, threads) {
      const call = matrices.of(0, places, x.subarray(0, places * k), y.subarray(0, places * n));
      return Math.max(0, ...matrices.choices.map(({ kernel }) => kernel.scratchBytes?.(call, threads) ?? 0));
    },
    bind({ places, experts, n, k, x, routing, y, matrices }, scratch, threads) {
      return () => {
        y.fill(Number.NaN);
        for (const { expert, first, count } of expertRuns(routing, experts, places)) {
          const [inputs, results] = [
            x.subarray(first * k, (first + count) * k),
            y.subarray(first * n, (first + count) * n),
          ];
          kernelFor(matrices, count).bind(matrices.of(expert, count, inputs, results), scratch, threads)();
        }
      };
    },
  };
}

export const expertLinearPackedReference: Kernel<ExpertLinearArgs<PackedLinearArgs>> = expertLinear(
  "expert_linear_packed_any_1x1x1_reference",
);

export const expertLinearFloatReference: Kernel<ExpertLinearArgs<FloatLinearArgs>> = expertLinear(
  "expert_linear_float_any_1x1x1_reference",
);
