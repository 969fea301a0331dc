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
import { writeAqlmCheckpoint } from "../support/aqlm-checkpoint.ts";
import { writeTinyCheckpoint } from "../support/tiny-checkpoint.ts";

const quantizations: readonly (readonly QuantizationConfig[])[] = [
  [],
  [int8DynamicActivationIntxWeight({ bits: 4 }), sharedEmbedding({ bits: 3 })],
  [int8DynamicActivationIntxWeight({ bits: 2, scaleDType: "f16" }), embedding({ bits: 4 })],
  [int8DynamicActivationIntxWeight({ bits: 8, mappingType: "asymmetric" }), embedding({ bits: 8 })],
  [intxWeightOnly({ bits: 4 })],
];

/** AQLM's codes of 8 bits in upstream's form, and of 6 bits in groups of two outputs. */
const codes = [
  { codebooks: 2, bits: 8, inGroup: 8, outGroup: 1 },
  { codebooks: 1, bits: 6, inGroup: 16, outGroup: 2 },
];

const exports = ["custom-sdpa", "portable-attention", "quantized-cache", "parts"];
const goldens = ["branch", "picked", "state"];

/** All of them, read from memory, so that reading one again gives the same bytes. */
export async function basePrograms(): Promise<readonly Program[]> {
  const folder = await mkdtemp(join(tmpdir(), "lowbit-fuzz-"));
  try {
    const config = { num_hidden_layers: 1, max_position_embeddings: 32 };
    await writeTinyCheckpoint(folder, { config });
    const programs: Program[] = [];
    for (const configs of quantizations)
      for (const target of configs.length > 0 ? (["lowbit"] as const) : (["lowbit", "executorch"] as const))
        programs.push(await exported(folder, configs, target));
    programs.push(await exported(folder, [], "executorch"));
    for (const [i, form] of codes.entries()) {
      const aqlm = join(folder, `aqlm-${i}`);
      await writeAqlmCheckpoint(aqlm, { ...form, config });
      programs.push(await exported(aqlm, [], "lowbit"));
    }
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
