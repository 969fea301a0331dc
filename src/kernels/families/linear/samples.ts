/** Sample calls of kernels of linear layers, for tests and printed code. */
import { floats } from "../../cases.ts";
import type { Kernel } from "../../contract.ts";
import { callOf, packed, type SampleCall } from "../sample-call.ts";
import type { PackedLinearArgs } from "./fields.ts";
import {
  linearA8BlocksReference,
  linearA8Reference,
  linearFloatReference,
  linearWeightOnlyReference,
} from "./reference.ts";
import { linearFloatWasm } from "./wasm/float.ts";
import { linearA8BlocksWasm, linearA8Wasm } from "./wasm/linear.ts";
import { linearWeightOnlyWasm } from "./wasm/weight-only.ts";

const M = 11;
const WIDTHS = [2, 3, 4, 8];

/** Calls with one row of activations, for kernels that serve it, and with more rows than a kernel's tile. */
function packedCalls(kernels: readonly Kernel<PackedLinearArgs>[], reference: Kernel<PackedLinearArgs>): SampleCall[] {
  const [n, k] = [64, 512];
  return kernels.flatMap((kernel) =>
    WIDTHS.flatMap((bits) =>
      [1, M]
        .filter((m) => m >= kernel.mStep)
        .map((m) => {
          const weights = packed(n, k, bits, kernel.layouts![0]!);
          const make = () => ({ m, x: floats(m * k), weights, y: new Float32Array(m * n) });
          return callOf(kernel, reference, make, ({ y }) => y, `${bits} bits, ${m} rows`);
        }),
    ),
  );
}

function floatCalls(): SampleCall[] {
  const [n, k] = [32, 128];
  const make = () => ({
    ...{ m: M, n, k, x: floats(M * k), weights: { dtype: "f32", data: floats(n * k, 2) } as const },
    ...{ bias: null, y: new Float32Array(M * n) },
  });
  return linearFloatWasm.map((kernel) => callOf(kernel, linearFloatReference, make, ({ y }) => y));
}

export function linearCalls(): SampleCall[] {
  return [
    ...packedCalls(linearA8Wasm, linearA8Reference),
    ...packedCalls(linearA8BlocksWasm, linearA8BlocksReference),
    ...packedCalls(linearWeightOnlyWasm, linearWeightOnlyReference),
    ...floatCalls(),
  ];
}
