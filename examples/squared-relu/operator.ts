// operator.ts: y = max(x, 0)^2, an operator of one's own; docs/custom-operator.md explains it
import {
  type Kernel,
  loadNativeKernels,
  type NativeArguments,
  nativeKernels,
  registerOperator,
} from "lowbit/extension";
import { wasm } from "./wasm.ts";

export interface SquaredReluArgs {
  readonly x: Float32Array;
  readonly y: Float32Array;
}

/** The definition: plain loops, for every CPU. */
const reference: Kernel<SquaredReluArgs> = {
  name: "squared_relu_f32_1x1x1_reference",
  target: "reference",
  layouts: null, // it reads no packed weights
  bits: null,
  needs: [], // no CPU features
  mStep: 1, // rows and columns that it works on at once
  nStep: 1,
  bind:
    ({ x, y }) =>
    () => {
      for (let i = 0; i < x.length; i++) y[i] = Math.max(x[i]!, 0) ** 2;
    },
};

/** scalars: count; buffers: x, y. squared-relu.cc reads them in this order. */
const nativeArguments = ({ x, y }: SquaredReluArgs): NativeArguments => ({ scalars: [x.length], buffers: [x, y] });

/** Registers `example::squared_relu.out`; with a library of kernels, these come first. */
export function registerSquaredRelu(library?: string): void {
  if (library !== undefined) loadNativeKernels(library);
  registerOperator<SquaredReluArgs>({
    schema: "example::squared_relu.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    kernels: [...nativeKernels("squared_relu", nativeArguments), wasm, reference],
    shape: (args) => args.tensor("x", "f32"),
    prepare: (args) => ({ x: args.tensor("x").data as Float32Array, y: args.tensor("out").data as Float32Array }),
  });
}
