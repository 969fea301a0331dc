/** Quantizing and exporting keep parts of a tensor in memory, however many the checkpoint has and however large one is. */
import { mkdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { writeSafetensors } from "../src/formats/safetensors-writer.ts";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  type QuantizationConfig,
  quantize,
  sharedEmbedding,
} from "../src/index.ts";
import { elementCount } from "../src/tensor.ts";
import { temporaryFolder } from "./support/folders.ts";
import { type TinyConfig, tinyConfig, tinyShapes } from "./support/tiny-checkpoint.ts";

const MIB = 2 ** 20;
/** Nine matrices of 16 MiB in bf16, and some small ones. */
const config: TinyConfig = { hidden_size: 1024, intermediate_size: 8192, num_hidden_layers: 3, vocab_size: 512 };

/** 1 to 2 in steps of 1/128, as bf16. */
const block = Uint16Array.from({ length: 1024 }, (_, i) => 0x3f80 + (i % 128));

function repeated(part: Uint16Array, length: number): Uint16Array {
  const whole = new Uint16Array(length);
  for (let start = 0; start < length; start += part.length) whole.set(part.subarray(0, length - start), start);
  return whole;
}

const parent = await temporaryFolder();

/** Writes a checkpoint of these sizes, quantizes it, and returns by how many MiB memory grew meanwhile. */
async function growth(name: string, config: TinyConfig, configs: readonly QuantizationConfig[]): Promise<number> {
  const folder = join(parent, name);
  await mkdir(folder);
  await writeFile(join(folder, "config.json"), JSON.stringify({ ...tinyConfig, ...config }));
  const entries = [...tinyShapes(config)].map(([name, shape]) => ({
    name,
    dtype: "bf16" as const,
    shape,
    data: async () => repeated(block, elementCount(shape)),
  }));
  await writeSafetensors(join(folder, "model.safetensors"), entries);

  const model = await loadCheckpoint(folder);
  quantize(model, configs);
  const before = process.memoryUsage().rss / MIB;
  let peak = 0;
  const sample = () => {
    peak = Math.max(peak, process.memoryUsage().rss / MIB - before);
  };
  const timer = setInterval(sample, 5);
  await exportProgram(model, join(folder, "out.pte"), { onProgress: sample });
  clearInterval(timer);
  await model.close();
  return peak;
}

it("a checkpoint of 144 MiB is quantized in less than 128 MiB", async () => {
  const peak = await growth("layers", config, [int8DynamicActivationIntxWeight({ bits: 4 })]);
  // One tensor as bf16, float32 and integers is 56 MiB; the rest is what the garbage collector has not seen yet.
  expect(peak).toBeLessThan(128);
});

it("a table that takes 160 MiB in 8 bits is quantized in less than 96 MiB", async () => {
  const table = { ...config, intermediate_size: 1024, vocab_size: 144 * 1024, tie_word_embeddings: true };
  const peak = await growth("table", table, [sharedEmbedding({ bits: 8 })]);
  expect((await stat(join(parent, "table", "out.pte"))).size / MIB).toBeGreaterThan(160);
  expect(peak).toBeLessThan(96);
});
