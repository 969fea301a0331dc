/** Sample calls of kernels of mixtures of experts. */

import { floats } from "../../cases.ts";
import type { Kernel } from "../../contract.ts";
import type { FloatLinearArgs, PackedLinearArgs } from "../linear/fields.ts";
import { linearFloatWasm } from "../linear/wasm/float.ts";
import { linearA8Wasm } from "../linear/wasm/linear.ts";
import { callOf, packed, type SampleCall } from "../sample-call.ts";
import type { ExpertLinearArgs, ExpertMatrices } from "./fields.ts";
import * as reference from "./reference.ts";
import { routingLength } from "./routing.ts";
import { expertLinearFloatWasm, expertLinearPackedWasm } from "./wasm/expert-linear.ts";
import { combineExpertsWasm, expertRowsWasm, routeWasm } from "./wasm/router.ts";

const DIM = 64;
const N = 48;
const [ROWS, EXPERTS, TOP_K] = [13, 5, 2];
const PLACES = ROWS * TOP_K;

/** A routing in which some experts have few rows and some many, by the reference router. */
function routed(): Int32Array {
  const routing = new Int32Array(routingLength(ROWS, EXPERTS, TOP_K));
  reference.routeReference.bind({ ...router(), routing }, new Uint8Array(8 * EXPERTS + 8), 1)();
  return routing;
}

function router() {
  const logits = floats(ROWS * EXPERTS, 3).map((logit, i) => (i % EXPERTS === 1 ? logit + 1 : logit));
  const rules = { scores: "softmax" as const, normalize: true, eps: 0, scale: 1, bias: null, factors: null };
  return { rows: ROWS, experts: EXPERTS, topK: TOP_K, logits, ...rules };
}

function routerCalls(): SampleCall[] {
  const kinds = [
    ["softmax", {}],
    ["sigmoid", { scores: "sigmoid", bias: floats(EXPERTS), factors: floats(EXPERTS, 2) }],
  ] as const;
  const moved = (from: number, to: number) => () => ({
    ...{ rows: ROWS, experts: EXPERTS, topK: TOP_K, dim: DIM },
    ...{ x: floats(from * DIM), routing: routed(), y: new Float32Array(to * DIM) },
  });
  return [
    ...kinds.map(([what, kind]) =>
      callOf(
        routeWasm,
        reference.routeReference,
        () => ({ ...router(), ...kind, routing: new Int32Array(routingLength(ROWS, EXPERTS, TOP_K)) }),
        ({ routing }) => routing,
        what,
      ),
    ),
    callOf(expertRowsWasm, reference.expertRowsReference, moved(ROWS, PLACES), ({ y }) => y),
    callOf(combineExpertsWasm, reference.combineExpertsReference, moved(PLACES, ROWS), ({ y }) => y),
  ];
}

/** Kernels that every engine with SIMD has, by the least number of rows that they serve. */
function choicesOf<A>(kernels: readonly Kernel<A>[]): ExpertMatrices<A>["choices"] {
  return kernels
    .filter(({ needs, layouts }) => needs.join() === "simd128" && (layouts?.includes("panel16") ?? true))
    .sort((a, b) => a.mStep - b.mStep)
    .map((kernel) => ({ from: kernel.mStep, kernel }));
}

function packedMatrices(): ExpertMatrices<PackedLinearArgs> {
  const part = packed(N, DIM, 4, "panel16");
  const whole = new Uint8Array(EXPERTS * part.bytes.length);
  const weights = Array.from({ length: EXPERTS }, (_, expert) => {
    whole.set(part.bytes, expert * part.bytes.length);
    return { ...part, bytes: whole.subarray(expert * part.bytes.length, (expert + 1) * part.bytes.length) };
  });
  const choices = choicesOf(linearA8Wasm);
  return { wholes: [whole], choices, of: (expert, m, x, y) => ({ m, x, weights: weights[expert]!, y }) };
}

function floatMatrices(): ExpertMatrices<FloatLinearArgs> {
  const [data, biases] = [floats(EXPERTS * N * DIM, 2), floats(EXPERTS * N, 4)];
  return {
    wholes: [data, biases],
    choices: choicesOf(linearFloatWasm),
    of: (expert, m, x, y) => ({
      ...{ m, n: N, k: DIM, x, y },
      weights: { dtype: "f32", data: data.subarray(expert * N * DIM, (expert + 1) * N * DIM) },
      bias: biases.subarray(expert * N, (expert + 1) * N),
    }),
  };
}

/** A call of an expert layer, compared with a plain loop over experts that calls the same linear kernels. */
function layerCall<A>(
  kernel: Kernel<ExpertLinearArgs<A>>,
  plain: Kernel<ExpertLinearArgs<A>>,
  matricesOf: () => ExpertMatrices<A>,
): SampleCall {
  const make = () => ({
    ...{ places: PLACES, experts: EXPERTS, n: N, k: DIM, x: floats(PLACES * DIM), routing: routed() },
    ...{ y: new Float32Array(PLACES * N), matrices: matricesOf() },
  });
  return callOf(kernel, plain, make, ({ y }) => y);
}

export function expertCalls(): SampleCall[] {
  return [
    ...routerCalls(),
    layerCall(expertLinearPackedWasm, reference.expertLinearPackedReference, packedMatrices),
    layerCall(expertLinearFloatWasm, reference.expertLinearFloatReference, floatMatrices),
  ];
}
