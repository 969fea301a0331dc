/** AQLM's kernels, best first: native, WebAssembly, then the definition. */
import { type Kernel, type NativeArguments, nativeKernels } from "../extension/index.ts";
import type { AqlmArgs } from "./arguments.ts";
import { aqlmReference } from "./reference.ts";
import { aqlmPanelsWasm } from "./wasm-panels.ts";
import { aqlmTablesWasm } from "./wasm-tables.ts";
import { aqlmWordsWasm } from "./wasm-words.ts";

/** scalars: m, 1 for f16 vectors, 1 for f16 scales; buffers: x, packed codes, vectors, scales, bias or null, y. */
export function aqlmNativeArguments({ m, x, codes, vectors, scales, bias, y }: AqlmArgs): NativeArguments {
  const isHalf = (data: ArrayBufferView) => (data instanceof Uint16Array ? 1 : 0);
  const buffers = [x, codes.bytes, vectors, scales, bias ?? new Float32Array(0), y];
  return { scalars: [m, isHalf(vectors), isHalf(scales), bias ? 1 : 0], buffers };
}

export const aqlmKernels: readonly Kernel<AqlmArgs>[] = [
  ...nativeKernels("aqlm", aqlmNativeArguments),
  aqlmWordsWasm,
  ...aqlmTablesWasm,
  aqlmPanelsWasm,
  aqlmReference,
];
