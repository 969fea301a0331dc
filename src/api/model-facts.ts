/** Facts about a model (architecture, context, sizes) without loading it. */

import { longestSequence } from "../checkpoint/assets.ts";
import { isCheckpoint, loadCheckpoint } from "../checkpoint/load.ts";
import { programAssets } from "../language/assets.ts";
import { isEncoderNetwork } from "../model/encoder.ts";
import type { ModelFacts } from "../model-facts.ts";
import { readMetadata } from "../runtime/program.ts";
import { type ProgramFileOptions, withProgramFile } from "./program-file.ts";
import { bitsPerWeight, listWeights, parameterCount } from "./weight-list.ts";

/**
 * Reads the facts of a program, or of a checkpoint on this machine, without its weights. Loading may shorten the context to
 * fit memory. Throws as `loadProgram` and `loadCheckpoint` do.
 */
export async function modelFactsOf(
  path: string,
  options: Pick<ProgramFileOptions, "data" | "contextLength"> = {},
): Promise<ModelFacts> {
  const facts = (await isCheckpoint(path)) ? await ofCheckpoint(path) : await ofProgram(path, options);
  const { contextLength: most = Number.POSITIVE_INFINITY } = options;
  return { ...facts, contextLength: facts.contextLength === null ? null : Math.min(facts.contextLength, most) };
}

async function ofCheckpoint(path: string): Promise<ModelFacts> {
  const model = await loadCheckpoint(path);
  try {
    const { network, checkpoint } = model;
    const isText = isEncoderNetwork(network);
    return {
      makes: isText ? (network.task === "rank" ? "scores" : "embeddings") : "text",
      format: path.endsWith(".gguf") ? "gguf" : "safetensors",
      architecture: network.architecture,
      parameters: parameterCount(network.slots.filter(({ tiedTo }) => tiedTo === null)),
      bitsPerWeight: null,
      contextLength: isText ? longestSequence(checkpoint, network) : network.contextLength,
      template: checkpoint.chatTemplate,
    };
  } finally {
    await model.close();
  }
}

async function ofProgram(path: string, options: Pick<ProgramFileOptions, "data">): Promise<ModelFacts> {
  return withProgramFile(path, options, async (program) => {
    const metadata = readMetadata(program);
    const found = metadata.get("get_max_context_len") ?? metadata.get("get_max_seq_len");
    const weights = listWeights(program);
    const has = (name: string) => program.methods.some((method) => method.name === name);
    return {
      makes: has("embed") ? "embeddings" : has("rank") ? "scores" : "text",
      format: "pte",
      architecture: null,
      parameters: parameterCount(weights),
      bitsPerWeight: bitsPerWeight(weights),
      contextLength: typeof found === "number" ? found : null,
      template: (await programAssets(program)).chatTemplate ?? null,
    };
  });
}
