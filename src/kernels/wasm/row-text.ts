/** Prints WebAssembly kernels as text. */
import { checkString } from "../../arguments.ts";
import { InvalidArgumentError } from "../../errors.ts";
import { sampleCalls } from "../families/sample-calls.ts";
import { Module } from "./assembler/module.ts";
import { printModule } from "./assembler/print.ts";
import { moduleMemory } from "./engine/engine-memory.ts";
import type { KernelCode } from "./kernel-code.ts";

/** Bits of the printed code, for kernels that support several widths. */
const WIDTH = "4 bits";

/**
 * Text of the module of a kernel for a small call, with 4-bit weights if it has weights. InvalidArgumentError for an unknown
 * kernel.
 */
export function wasmKernelText(kernel: string): string {
  checkString("kernel", kernel);
  const calls = sampleCalls();
  const ofRow = calls.filter((call) => call.kernel === kernel);
  const call = ofRow.find(({ what }) => what.startsWith(WIDTH)) ?? ofRow[0];
  if (!call) {
    const names = [...new Set(calls.map((other) => other.kernel))].join(", ");
    throw new InvalidArgumentError(`"${kernel}" is no WebAssembly row: expected one of ${names}`);
  }
  return printModule(moduleOf(call.step().step.phases.map(({ code }) => code)));
}

/** A module of these codes, for one thread. */
export function moduleOf(codes: readonly KernelCode[], isWide = false): Module {
  const distinct = [...new Map(codes.map((code) => [code.key, code])).values()];
  const memory = moduleMemory({ isWide, isShared: false });
  return new Module(
    { isWide, memory, imports: [], hasTable: false },
    distinct.flatMap((code) => code.build()),
  );
}
