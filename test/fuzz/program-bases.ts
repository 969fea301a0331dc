/**
 * Honest programs that changes start from: small language models in every quantization, with experts, recurrent layers and
 * sinks, a model of vectors, and exports of ExecuTorch.
 */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
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
import { hybridConfigs, mixtureConfigs, writeDecoderCheckpoint } from "../support/hybrid-checkpoint.ts";
import { writeTinyCheckpoint } from "../support/tiny-checkpoint.ts";

const quantizations: readonly (readonly QuantizationConfig[])[] = [
  [],
  [int8DynamicActivationIntxWeight({ bits: 4 }), sharedEmbedding({ bits: 3 })],
  [int8DynamicActivationIntxWeight({ bits: 2, scaleDType: "f16" }), embedding({ bits: 4 })],
  [int8DynamicActivationIntxWeight({ bits: 8, mappingType: "asymmetric" }), embedding({ bits: 8 })],
  [intxWeightOnly({ bits: 4 }), sharedEmbedding({ bits: 4, ranges: [{ rows: 64, bits: 6 }] })],
];

/** AQLM's codes of 8 bits in upstream's form, and of 6 bits in groups of two outputs. */
const codes = [
  { codebooks: 2, bits: 8, inGroup: 8, outGroup: 1 },
  { codebooks: 1, bits: 6, inGroup: 16, outGroup: 2 },
];

const int4 = [int8DynamicActivationIntxWeight({ bits: 4 })];

/** Decoders whose layers are not all attention and an MLP, and how they are quantized. */
const decoders: readonly (readonly [
  config: Readonly<Record<string, unknown>>,
  quantization: readonly QuantizationConfig[],
])[] = [
  [{ ...hybridConfigs.lfm2, num_hidden_layers: 2, layer_types: ["conv", "full_attention"] }, int4],
  [{ ...hybridConfigs.qwen3_5, num_hidden_layers: 2, layer_types: ["linear_attention", "full_attention"] }, []],
  [{ ...hybridConfigs.granite_h, num_hidden_layers: 1, layer_types: ["mamba"] }, [intxWeightOnly({ bits: 4 })]],
  [hybridConfigs.gemma4, [...int4, embedding({ bits: 4 })]],
  [{ ...mixtureConfigs.qwen3_moe, num_hidden_layers: 1 }, [...int4, sharedEmbedding({ bits: 4 })]],
  [{ ...mixtureConfigs.qwen3_moe, num_hidden_layers: 1 }, [intxWeightOnly({ bits: 8 })]],
  [{ ...mixtureConfigs.gpt_oss, num_hidden_layers: 2 }, []],
];

const exports = ["custom-sdpa", "portable-attention", "quantized-cache", "parts"];
const goldens = ["branch", "picked", "state"];

/** All of them by kind, read from memory, so that reading one again gives the same bytes. */
export async function basePrograms(): Promise<Readonly<Record<"plain" | "layers" | "stored", readonly Program[]>>> {
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
    const layers: Program[] = [];
    for (const [i, [decoder, configs]] of decoders.entries()) {
      const own = join(folder, `decoder-${i}`);
      await writeDecoderCheckpoint(own, { ...decoder, max_position_embeddings: 32 });
      layers.push(await exported(own, configs, "lowbit"));
    }
    layers.push(
      await exported(fileURLToPath(new URL("../../models/tiny-bge", import.meta.url)), int4, "lowbit", folder),
    );
    const others: Program[] = [];
    for (const name of exports) others.push(await stored(`../../test/executorch-exports/${name}.pte.golden`));
    for (const name of goldens) others.push(await stored(`../../src/program/golden/${name}.pte.golden`));
    return { plain: programs, layers, stored: others };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function exported(
  folder: string,
  configs: readonly QuantizationConfig[],
  target: "lowbit" | "executorch",
  outputFolder = folder,
) {
  const model = await loadCheckpoint(folder);
  if (configs.length > 0) quantize(model, [...configs]);
  const path = join(outputFolder, "base.pte");
  await exportProgram(model, path, { target });
  await model.close();
  return readProgram(memorySource(path, new Uint8Array(await readFile(path))));
}

/** A file of this repository; the path holds from this folder and from where the fuzzer's module is built. */
async function stored(path: string): Promise<Program> {
  return readProgram(memorySource(path, new Uint8Array(await readFile(new URL(path, import.meta.url)))));
}
