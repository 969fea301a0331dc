/** Entry with the WebAssembly assembler and what makes kernels of it; re-exports only. */
export * from "../kernels/wasm/assembler/expression.ts";
export * from "../kernels/wasm/assembler/instructions.ts";
export {
  defineFunction,
  defineFunctionOf,
  Module,
  type ModuleOptions,
  Scope,
} from "../kernels/wasm/assembler/module.ts";
export { printFunction, printModule } from "../kernels/wasm/assembler/print.ts";
export * from "../kernels/wasm/generate/float-panels.ts";
export { type Lanes, lanesOf, type StoredType, storedBytes } from "../kernels/wasm/generate/lanes.ts";
export * from "../kernels/wasm/generate/loops.ts";
export { VectorConstants } from "../kernels/wasm/generate/weight-fields.ts";
export { type WasmRow, wasmKernel } from "../kernels/wasm/kernel.ts";
export {
  ArgumentBlock,
  type KernelCode,
  kernelFunction,
  type Placement,
  type WasmPhase,
  type WasmStep,
} from "../kernels/wasm/kernel-code.ts";
