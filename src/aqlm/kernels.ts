/** AQLM's kernels, best first: native, WebAssembly, then the definition. */
import { type Kernel, type NativeArguments, nativeKernels, orderArguments } from "../extension/index.ts";
import { type AqlmArgs, aqlmNames } from "./arguments.ts";
import { aqlmReference } from "./reference.ts";
import { aqlmPanelsWasm } from "./wasm-panels.ts";
import { aqlmTablesWasm } from "./wasm-tables.ts";
import { aqlmWordsWasm } from "./wasm-words.ts";

function aqlmNativeArguments({ m, x, codes, vectors, scales, bias, y }: AqlmArgs): NativeArguments {
  const isHalf = (data: ArrayBufferView) => (data instanceof Uint16Array ? 1 : 0);
  return orderArguments(aqlmNames, {
    ...{ m, x, codes: codes.bytes, vectors, scales, y },
    halfVectors: isHalf(vectors),
    halfScales: isHalf(scales),
    bias: bias ?? new Float32Array(0),
    hasBias: bias ? 1 : 0,
  });
}

export const aqlmKernels: readonly Kernel<AqlmArgs>[] = [
  ...nativeKernels("aqlm", aqlmNativeArguments),
  aqlmWordsWasm,
  ...aqlmTablesWasm,
  aqlmPanelsWasm,
  aqlmReference,
];
