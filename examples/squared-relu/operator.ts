/**
 * An operator of one's own, outside the package: y = max(x, 0)^2. In TypeScript, in WebAssembly, and in C++ where the
 * library made of squared-relu.cc is given. docs/custom-operator.md explains every part.
 */
import {
  type Kernel,
  loadNativeKernels,
  type NativeArguments,
  nativeKernels,
  type OperatorDefinition,
  registerOperator,
} from "lowbit";
import {
  ArgumentBlock,
  elementAt,
  f32,
  float,
  i32,
  int,
  kernelFunction,
  smaller,
  wasmKernel,
  whileDo,
} from "lowbit/wasm";

interface SquaredReluArgs {
  readonly x: Float32Array;
  readonly y: Float32Array;
}

/** The definition: plain loops, for every CPU. */
const reference: Kernel<SquaredReluArgs> = {
  name: "squared_relu_f32_1x1x1_reference",
  target: "reference",
  layouts: null,
  bits: null,
  needs: [],
  mStep: 1,
  nStep: 1,
  bind:
    ({ x, y }) =>
    () => {
      for (let i = 0; i < x.length; i++) y[i] = Math.max(x[i]!, 0) ** 2;
    },
};

/** Values of one tile: threads take tiles until there are none. */
const TILE = 4096;

const block = new ArgumentBlock({ x: "ptr", y: "ptr", count: "i32" });

const code = {
  key: "squared_relu",
  build: () => [
    kernelFunction("squared_relu", block, ({ x, y, count }, { tile }, scope) => {
      const [at, end] = [scope.local("i32", "at"), scope.local("i32", "end")];
      const value = f32.max(f32.load(elementAt(x, at, 4)), float(0));
      const kept = scope.local("f32", "kept");
      return [
        at.set(i32.mul(tile, int(TILE))),
        end.set(i32.add(at, int(TILE))),
        smaller(end, count, end),
        whileDo(i32.lt_u(at, end), [
          kept.set(value),
          f32.store(elementAt(y, at, 4), f32.mul(kept, kept)),
          at.set(i32.add(at, int(1))),
        ]),
      ];
    }),
  ],
};

const wasm = wasmKernel<SquaredReluArgs>({
  name: "squared_relu_f32_1x1x1_wasm",
  layouts: null,
  bits: null,
  needs: ["simd128"],
  mStep: 1,
  nStep: 1,
  step({ x, y }, place) {
    const args = block.encode({ x: place.read(x), y: place.write(y), count: x.length });
    return { phases: [{ code, tiles: Math.ceil(x.length / TILE), args }] };
  },
});

/** scalars: count; buffers: x, y. squared-relu.cc reads them in this order. */
const nativeArguments = ({ x, y }: SquaredReluArgs): NativeArguments => ({ scalars: [x.length], buffers: [x, y] });

/** Registers `example::squared_relu.out`; with a library of kernels, these come first. */
export function registerSquaredRelu(library?: string): void {
  if (library !== undefined) loadNativeKernels(library);
  const definition: OperatorDefinition<SquaredReluArgs> = {
    schema: "example::squared_relu.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    kernels: [...nativeKernels("squared_relu", nativeArguments), wasm, reference],
    shape: (args) => args.tensor("x", "f32"),
    prepare: (args) => ({ x: args.tensor("x").data as Float32Array, y: args.tensor("out").data as Float32Array }),
  };
  registerOperator(definition);
}
