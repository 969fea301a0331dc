/**
 * Reference kernels of linear layers with gated columns, composed of the reference kernels of linear layer and gate, bit for
 * bit.
 */

import type { Kernel } from "../../contract.ts";
import { gateRows } from "../gate/gate-halves.ts";
import type { PackedLinearArgs } from "./fields.ts";
import { linearA8BlocksReference, linearA8Reference } from "./reference.ts";

/** Runs the linear layer into scratch memory [m, n], then the gate. */
function gated(name: string, linear: Kernel<PackedLinearArgs>): Kernel<PackedLinearArgs> {
  return {
    ...linear,
    name,
    scratchBytes: (args, threads) =>
      Math.ceil((args.m * args.weights.spec.n) / 2) * 8 + linear.scratchBytes!(args, threads),
    bind({ m, x, weights, y }, scratch, threads) {
      const whole = new Float32Array(scratch.buffer, scratch.byteOffset, m * weights.spec.n);
      const rest = scratch.subarray(Math.ceil(whole.length / 2) * 8);
      const multiply = linear.bind({ m, x, weights, y: whole }, rest, threads);
      const gate = { rows: m, dim: y.length / m, gateUp: whole, y, activation: "silu" } as const;
      return () => {
        multiply();
        gateRows(gate);
      };
    },
  };
}

export const linearA8SwigluReference = gated("linear_a8_swiglu_wx_1x1x1_reference", linearA8Reference);
export const linearA8BlocksSwigluReference = gated("linear_a8b32_swiglu_wx_1x1x1_reference", linearA8BlocksReference);
