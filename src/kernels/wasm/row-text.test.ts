/** The text of modules, read by WABT's parser: it must be the binary that was assembled. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import makeWabt from "wabt";
import { sampleCalls } from "../families/sample-calls.ts";
import { bytes16, drop, type Node, type Statement } from "./assembler/expression.ts";
import { double, float, int, long, size } from "./assembler/instructions.ts";
import { defineFunction, defineFunctionOf, Module } from "./assembler/module.ts";
import { type Opcode, type OpName, opcodes, type ValueType } from "./assembler/opcodes.ts";
import { printModule } from "./assembler/print.ts";
import { moduleMemory } from "./engine/engine-memory.ts";
import { nowImport, runnerFunctions } from "./engine/runner.ts";
import { moduleOf, wasmKernelText } from "./row-text.ts";

const wabt = await makeWabt();
const features = { threads: true, memory64: true, relaxed_simd: true, simd: true, bulk_memory: true } as const;

function parsed(text: string): Uint8Array {
  const module = wabt.parseWat("module.wat", text, features);
  const { buffer } = module.toBinary({ canonicalize_lebs: true });
  module.destroy();
  return buffer;
}

function expectSameModule(module: Module): void {
  const [found, expected] = [parsed(printModule(module)), module.encode()];
  if (Buffer.compare(found, expected) !== 0) expect([...found]).toEqual([...expected]);
}

it.each([false, true])("is the binary of every row, 64-bit addresses: %s", (isWide) => {
  const codes = sampleCalls().flatMap((call) => call.step().step.phases.map(({ code }) => code));
  const distinct = [...new Map(codes.map((code) => [code.key, code])).values()];
  for (const code of distinct) expectSameModule(moduleOf([code], isWide));
});

it.each([false, true])("is the binary of the plan loop, 64-bit addresses: %s", (isWide) => {
  const memory = moduleMemory({ isWide, isShared: true });
  expectSameModule(new Module({ isWide, memory, imports: [nowImport], hasTable: true }, runnerFunctions()));
});

/** A statement that has an instruction, with zeros as operands. */
function statementOf(name: string, operands: readonly string[], { immediate, result }: Opcode): Statement {
  const zeros = { i32: int(0), i64: long(0n), f32: float(0), f64: double(0), ptr: size(0), v128: bytes16(0) };
  const given = operands.map((type) => zeros[type as ValueType].node);
  const immediates = { none: [], lane: [1], memory: [8], memoryLane: [1, 8], memoryPair: [] }[immediate];
  const node: Node = { kind: "op", name: name as OpName, operands: given, immediates };
  return result === null ? { node } : drop({ type: result, node });
}

it.each([false, true])("is the binary of every instruction there is, 64-bit addresses: %s", (isWide) => {
  const table = readFileSync(new URL("assembler/opcodes.ts", import.meta.url), "utf8");
  const signatures = [...table.matchAll(/^ {2}"?([\w.]+)"?: \[.*?"([\w,]*):\w*"/gm)];
  expect(signatures.map(([, name]) => name)).toEqual([...opcodes.keys()]);
  const functions = signatures.map(([, name = "", types = ""]) =>
    defineFunction(name, {}, () => [statementOf(name, types === "" ? [] : types.split(","), opcodes.get(name)!)]),
  );
  const memory = moduleMemory({ isWide, isShared: true });
  expectSameModule(new Module({ isWide, memory, imports: [], hasTable: false }, functions));
});

it("has constants that are no ordinary numbers", () => {
  const values = [0, -0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0.1, 1e-45, -3.4e38, 1e300];
  const functions = values.flatMap((value, i) => [
    defineFunctionOf(`f${i}`, {}, () => ({ body: [], returned: float(value) })),
    defineFunctionOf(`d${i}`, {}, () => ({ body: [], returned: double(value) })),
  ]);
  const memory = moduleMemory({ isWide: false, isShared: false });
  expectSameModule(new Module({ isWide: false, memory, imports: [], hasTable: false }, functions));
});

it("is found by a row's name", () => {
  expect(wasmKernelText("linear_a8_wx_1x16x32_wasm_relaxed")).toMatch(
    /^\(module\n.*\(func \$gemv1_relaxed_w4_.*relaxed_dot/s,
  );
  expect(() => wasmKernelText("linear")).toThrow(
    /"linear" is no WebAssembly row: expected one of linear_a8_wx_8x16x32/,
  );
});
