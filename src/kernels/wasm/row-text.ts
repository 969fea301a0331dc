/** WebAssembly rows as text. */
import { checkString } from "../../arguments.ts";
import { InvalidArgumentError } from "../../errors.ts";
import { sampleCalls } from "../families/sample-calls.ts";
import { Module } from "./assembler/module.ts";
import { printModule } from "./assembler/print.ts";
import { moduleMemory } from "./engine/engine-memory.ts";
import type { KernelCode } from "./kernel-code.ts";

/** Where rows serve several widths, that of the text. */
const WIDTH = "4 bits";

/** The module that a row is for a small call, of weights of 4 bits where it has some. InvalidArgumentError for an unknown row. */
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

/** The codes as a module for one thread. */
export function moduleOf(codes: readonly KernelCode[], isWide = false): Module {
  const distinct = [...new Map(codes.map((code) => [code.key, code])).values()];
  const memory = moduleMemory({ isWide, isShared: false });
  return new Module(
    { isWide, memory, imports: [], hasTable: false },
    distinct.flatMap((code) => code.build()),
  );
}
