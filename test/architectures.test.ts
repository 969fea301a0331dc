/**
 * Every architecture in several configurations against transformers in float32: logits, greedy tokens, and a prompt that
 * is longer than windows and original contexts. The weights are made from their names, here as in
 * scripts/goldens/architecture-goldens.py, which wrote the expected values. Rows of the kernel table and the reference alone.
 */
import { readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { writeSafetensors } from "../src/formats/safetensors-writer.ts";
import { EagerModel, type LanguageModel, loadCheckpoint, type Model } from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { scalarCpu } from "../src/kernels/cpu.ts";
import { architectures, buildDecoder } from "../src/model/architectures.ts";
import { compileModel, loadProgramObject } from "../src/tools/index.ts";
import { temporaryFolder } from "./support/folders.ts";
import { models2026 } from "./support/models-2026.ts";
import { Random } from "./support/random.ts";
import { expectSame } from "./support/same.ts";
import { changeByScaling, seedOf } from "./support/scaled-channels.ts";

interface Golden {
  readonly config: Readonly<Record<string, unknown>>;
  readonly ids: readonly number[];
  readonly logits: readonly (readonly number[])[];
  readonly greedy: readonly number[];
  readonly long_last_logits: readonly number[];
}

const goldens = JSON.parse(
  readFileSync(fileURLToPath(new URL("architectures.json.golden", import.meta.url)), "utf8"),
) as { readonly prompt: number; readonly rows: readonly number[]; readonly models: Readonly<Record<string, Golden>> };

/** Matrices spread over -0.4 .. 0.4, vectors over 0.5 .. 1.5. */
function valuesOf(name: string, shape: readonly number[]): Float32Array {
  const random = new Random(seedOf(name));
  const length = shape.reduce((a, b) => a * b, 1);
  return Float32Array.from({ length }, () =>
    shape.length === 1 ? 0.5 + random.next() : 0.4 * (2 * random.next() - 1),
  );
}

async function writeModel(folder: string, config: Golden["config"]): Promise<void> {
  await mkdir(folder);
  await writeFile(join(folder, "config.json"), JSON.stringify(config));
  const slots = buildDecoder("config.json", config).slots.filter(({ tiedTo }) => tiedTo === null);
  const entries = slots.map(({ name, shape }) => ({
    name,
    dtype: "f32" as const,
    shape,
    data: async () => valuesOf(name, shape),
  }));
  await writeSafetensors(join(folder, "model.safetensors"), entries);
}

function expectClose(found: ArrayLike<number>, expected: readonly number[]): void {
  expect(found.length).toBe(expected.length);
  for (let i = 0; i < found.length; i++)
    if (!(Math.abs(found[i]! - expected[i]!) < 1e-4)) expect(found[i], `logit ${i}`).toBe(expected[i]);
}

function argmax(logits: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i]! > logits[best]!) best = i;
  return best;
}

const folder = await temporaryFolder();

/**
 * Architectures under another name: Gemma 4's with other defaults, which src/model/architectures.test.ts has, and Qwen 2's with a draft
 * layer, which src/api/multi-token.test.ts has.
 */
const ALIASES = ["Gemma4UnifiedForCausalLM", "MiMoForCausalLM"];

it("there are expected values of every architecture, here or in models-2026.test.ts", () => {
  const tested = new Set(Object.values(goldens.models).flatMap(({ config }) => config.architectures));
  for (const architecture of Object.values(models2026)) tested.add(architecture);
  for (const { name } of architectures) if (!ALIASES.includes(name)) expect(tested).toContain(name);
});

describe.each(Object.entries(goldens.models))("%s", (name, golden) => {
  const prompt = golden.ids.slice(0, goldens.prompt);
  const opened = (async (): Promise<Model> => {
    await writeModel(join(folder, name), golden.config);
    return loadCheckpoint(join(folder, name));
  })();
  const load = async (options: Parameters<typeof compileModel>[1], cpu?: Cpu) =>
    loadProgramObject(compileModel(await opened, { ...options, ...(cpu ? { cpu } : {}) }), name, cpu ? { cpu } : {});
  const loaded = new Map<Cpu | undefined, Promise<LanguageModel>>();
  const decoderOn = async (cpu?: Cpu) => {
    const model = loaded.get(cpu) ?? load({}, cpu);
    loaded.set(cpu, model);
    return (await model).createDecoder();
  };
  afterAll(async () => {
    for (const model of loaded.values()) await (await model).dispose();
  });

  it.each([
    ["the kernels of this CPU", undefined],
    ["the kernels of any CPU", scalarCpu],
  ])("logits on %s", async (_, cpu) => {
    const decoder = await decoderOn(cpu);
    const logits = await decoder.allLogits(prompt);
    const width = decoder.vocabularySize;
    for (const [i, row] of goldens.rows.entries())
      expectClose(logits.subarray(row * width, (row + 1) * width), golden.logits[i]!);
    const last = await decoderOn(cpu);
    expectClose(await last.prefill(golden.ids), golden.long_last_logits);
  });

  it("greedy tokens, eager and compiled bit by bit the same on the reference kernels", async () => {
    const decoder = await decoderOn(scalarCpu);
    const eager = await EagerModel.load(await opened, { cpu: scalarCpu });
    let next = await decoder.prefill(prompt);
    expectSame(next, eager.forward(prompt, 0).data as Float32Array);
    for (const [i, id] of golden.greedy.entries()) {
      expect(argmax(next)).toBe(id);
      next = await decoder.step(id);
      expectSame(next, eager.forward([id], prompt.length + i).data as Float32Array);
    }
  });

  it("greedy tokens, eager and compiled the same to roundings on this CPU", async () => {
    const decoder = await decoderOn();
    const eager = await EagerModel.load(await opened);
    let next = await decoder.prefill(prompt);
    expectClose(next, [...(eager.forward(prompt, 0).data as Float32Array)]);
    for (const [i, id] of golden.greedy.entries()) {
      expect(argmax(next)).toBe(id);
      next = await decoder.step(id);
      expectClose(next, [...(eager.forward([id], prompt.length + i).data as Float32Array)]);
    }
  });

  it("prompts in chunks give the same", async () => {
    const model = await load({ maxSeqLen: 7 });
    const decoder = model.createDecoder();
    expectClose(await decoder.prefill(golden.ids), golden.long_last_logits);
    decoder.rewind(5);
    const again = await decoder.prefill(golden.ids.slice(5, goldens.prompt));
    expectClose(again, golden.logits.at(-1)!);
    await model.dispose();
  });

  it("says which channels may be scaled without a change of the logits", async () => {
    const scaled = await loadCheckpoint(join(folder, name));
    expect(scaled.decoder.scalable.length).toBeGreaterThanOrEqual(2 * scaled.decoder.layers);
    expect(await changeByScaling(await opened, scaled, prompt)).toBeLessThan(1e-5);
    await scaled.close();
  });
});
