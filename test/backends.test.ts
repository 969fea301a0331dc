/** Whole programs on WebAssembly and native kernels against the reference kernels: the same text, from no other kernels. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { describe, expect, it, vi } from "vitest";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  type LanguageModel,
  loadCheckpoint,
  loadCompiled,
  loadProgram,
  quantize,
  sharedEmbedding,
} from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { hostCpu, scalarCpu } from "../src/kernels/cpu.ts";
import { hasNative } from "../src/kernels/native/rows.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { temporaryFolder } from "./support/folders.ts";
import { collectGarbage } from "./support/garbage.ts";

const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const backends: [Cpu, number][] = [1, 3].flatMap((threads) => [
  [wasmCpu, threads],
  ...(hasNative() ? [[hostCpu(), threads] as [Cpu, number]] : []),
]);
const stories = fileURLToPath(new URL("../../shared/models/stories260K", import.meta.url));
const demo = fileURLToPath(new URL("../models/shakespeare", import.meta.url));

async function load(folder: string, bits: number, cpu: Cpu, threads: number): Promise<LanguageModel> {
  const model = await loadCheckpoint(folder);
  const scheme = int8DynamicActivationIntxWeight({ bits, groupSize: 32 });
  quantize(model, [scheme, sharedEmbedding({ bits, groupSize: 32 })]);
  return loadCompiled(model, { cpu, threads });
}

async function textOf(model: LanguageModel, prompt: string): Promise<string> {
  let text = "";
  for await (const piece of model.generate(prompt, { maxTokens: 16, temperature: 0, ignoreEos: true })) text += piece;
  return text;
}

// Texts after which no two tokens are nearly alike, where a step of the 8-bit activations decides: logits of the demo model's
// first two differ by 0.1 and more. Prompts have fewer rows than AMX multiplies in bf16.
describe.each([
  ["the demo model", demo, "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:"],
  ["stories260K", stories, "Once upon a time, there was a little girl"],
])("%s", (_, folder, prompt) => {
  const isHere = existsSync(join(folder, "config.json"));
  it.skipIf(!isHere).each([8, 4])(
    `writes the same at temperature 0, %i bits${isHere ? "" : " (skipped: ../shared is not here)"}`,
    async (bits) => {
      const reference = await load(folder, bits, scalarCpu, 1);
      const expected = await textOf(reference, prompt);
      for (const [cpu, threads] of backends) {
        const model = await load(folder, bits, cpu, threads);
        expect(await textOf(model, prompt), cpu.name).toBe(expected);
        for (const [operator, kernels] of model.program.activeKernels)
          for (const kernel of kernels)
            if (cpu === wasmCpu) expect(kernel, operator).toContain("_wasm_");
            else expect(kernel, operator).not.toContain("_reference");
        await model.dispose();
      }
    },
    240_000,
  );
});

it("writes the same when warmed up again", async () => {
  const model = await load(demo, 4, wasmCpu, 2);
  const expected = await textOf(model, "To be, or not to be");
  for (let i = 0; i < 2; i++) await model.warmUp({ warmUpMs: 1 });
  for (let i = 0; i < 2; i++) expect(await textOf(model, "To be, or not to be")).toBe(expected);
  await model.dispose();
});

it("tells of the one thread that serves where memory cannot be shared", async () => {
  vi.stubGlobal("SharedArrayBuffer", undefined);
  const model = await load(demo, 4, wasmCpu, 3).finally(() => vi.unstubAllGlobals());
  expect(model.program.threads).toBe(1);
  expect(await textOf(model, "To be, or not to be")).not.toBe("");
  await model.dispose();
});

it("a program that was disposed of does not touch the memory that another has by now", async () => {
  const first = await load(demo, 4, wasmCpu, 2);
  const decoder = first.createDecoder();
  await decoder.prefill([1, 2, 3]);
  const running = decoder.prefill(Array.from({ length: 60 }, (_, i) => i));
  running.catch(() => {});
  await first.dispose();
  await expect(running).rejects.toThrow(/disposed/);
  const second = await load(demo, 4, wasmCpu, 2);
  const before = second.program.constants.map((bytes) => bytes.slice());
  expect(second.program.constants[0]!.buffer).toBe(first.program.constants[0]!.buffer);
  await expect(decoder.step(5)).rejects.toThrow(/disposed/);
  expect(() => first.createDecoder()).toThrow(/disposed/);
  for (const [i, bytes] of second.program.constants.entries()) expect(Buffer.compare(bytes, before[i]!)).toBe(0);
  await second.dispose();
});

const folder = await temporaryFolder();

it("a program loaded and disposed of again and again leaves memory flat", async () => {
  const path = join(folder, "demo.pte");
  const checkpoint = await loadCheckpoint(demo);
  quantize(checkpoint, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 })]);
  await exportProgram(checkpoint, path);
  const bytesAfter = async (loads: number) => {
    for (let i = 0; i < loads; i++) {
      const model = await loadProgram(path, { cpu: wasmCpu, threads: 2 });
      await model.createDecoder().prefill([1, 2, 3]);
      await model.dispose();
    }
    await collectGarbage();
    return process.memoryUsage().rss;
  };
  const before = await bytesAfter(6);
  expect((await bytesAfter(24)) - before).toBeLessThan(24e6);
}, 240_000);

it("a program that was disposed of is forgotten with its memory", async () => {
  const use = async () => {
    const model = await load(demo, 4, wasmCpu, 2);
    await model.createDecoder().prefill([1, 2, 3]);
    await model.dispose();
    return [model, model.program, model.program.constants[0]!.buffer].map((object) => new WeakRef(object));
  };
  const references = await use();
  for (let i = 0; i < 5; i++) {
    await pause(50);
    await collectGarbage();
  }
  expect(references.map((reference) => reference.deref() === undefined)).toEqual([true, true, true]);
});
