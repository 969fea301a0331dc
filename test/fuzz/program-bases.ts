/** Honest programs that changes start from: small language models in every quantization, and exports of ExecuTorch. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memorySource } from "../../src/byte-source.ts";
import {
  embedding,
  exportProgram,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  type QuantizationConfig,
  quantize,
  sharedEmbedding,
} from "../../src/index.ts";
import type { Program } from "../../src/program/program.ts";
import { readProgram } from "../../src/program/read.ts";
import { writeTinyCheckpoint } from "../support/tiny-checkpoint.ts";

const quantizations: readonly (readonly QuantizationConfig[])[] = [
  [],
  [int8DynamicActivationIntxWeight({ bits: 4 }), sharedEmbedding({ bits: 3 })],
  [int8DynamicActivationIntxWeight({ bits: 2, scaleDType: "f16" }), embedding({ bits: 4 })],
  [int8DynamicActivationIntxWeight({ bits: 8, mappingType: "asymmetric" }), embedding({ bits: 8 })],
  [intxWeightOnly({ bits: 4 })],
];

const exports = ["custom-sdpa", "portable-attention", "quantized-cache", "parts"];
const goldens = ["branch", "picked", "state"];

/** All of them, read from memory, so that reading one again gives the same bytes. */
export async function basePrograms(): Promise<readonly Program[]> {
  const folder = await mkdtemp(join(tmpdir(), "lowbit-fuzz-"));
  try {
    await writeTinyCheckpoint(folder, { config: { num_hidden_layers: 1, max_position_embeddings: 32 } });
    const programs: Program[] = [];
    for (const configs of quantizations)
      for (const target of configs.length > 0 ? (["lowbit"] as const) : (["lowbit", "executorch"] as const))
        programs.push(await exported(folder, configs, target));
    for (const name of exports) programs.push(await stored(`../../test/executorch-exports/${name}.pte.golden`));
    for (const name of goldens) programs.push(await stored(`../../src/program/golden/${name}.pte.golden`));
    return programs;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function exported(folder: string, configs: readonly QuantizationConfig[], target: "lowbit" | "executorch") {
  const model = await loadCheckpoint(folder);
  if (configs.length > 0) quantize(model, [...configs]);
  const path = join(folder, "base.pte");
  await exportProgram(model, path, { target });
  await model.close();
  return readProgram(memorySource(path, new Uint8Array(await readFile(path))));
}

/** A file of this repository; the path holds from this folder and from where the fuzzer's module is built. */
async function stored(path: string): Promise<Program> {
  return readProgram(memorySource(path, new Uint8Array(await readFile(new URL(path, import.meta.url)))));
}
