/** A GGUF file, or a model split into several, as a checkpoint with config, tensors, tokenizer and chat template. */
import type { ByteSource } from "../../byte-source.ts";
import type { Checkpoint } from "../contract.ts";
import { type JsonFile, jsonFile } from "../json.ts";
import { architectureOf } from "./architectures.ts";
import { ggufConfig } from "./config.ts";
import { readGgufHeader } from "./header.ts";
import { GgufMetadata } from "./metadata.ts";
import { modelTensors } from "./model-tensors.ts";
import { joinTensors } from "./split.ts";
import { withFactors } from "./tensor-factors.ts";
import { ggufTensors } from "./tensors.ts";
import { ggufTokenizer } from "./tokenizer.ts";

/**
 * Opens the checkpoint in one file, or in several in order; it closes them. `path` names it in messages. InvalidFileError when
 * one is malformed, UnsupportedError for an unsupported model.
 */
export async function ggufCheckpoint(path: string, sources: readonly ByteSource[]): Promise<Checkpoint> {
  const headers = await Promise.all(sources.map(readGgufHeader));
  const metadata = new GgufMetadata(sources[0]!.name, headers[0]!.metadata);
  const parts = sources.map((source, i) => ggufTensors(source, headers[i]!));
  const tensors = withFactors(
    path,
    joinTensors(path, parts, metadata.number("split.tensors.count")),
    architectureOf(metadata).names,
  );
  const config = await ggufConfig(metadata, tensors);
  const tokenizer = ggufTokenizer(metadata);
  const json = (name: string, value: object | undefined): JsonFile | null =>
    value === undefined ? null : jsonFile(`${path}, ${name}`, JSON.stringify(value));
  return {
    folder: path,
    configFile: path,
    config: { ...config, bos_token_id: tokenizer?.bosId, eos_token_id: tokenizer?.eosIds },
    tensors: modelTensors(metadata, tensors, config.head_dim as number),
    tokenizerJson: json("tokenizer", tokenizer?.tokenizer),
    tokenizerConfig: json("tokenizer", tokenizer?.config),
    generationConfig: null,
    chatTemplate: metadata.string("tokenizer.chat_template"),
    notes: tokenizer?.notes ?? [],
    async close() {
      for (const source of sources) await source.close();
    },
  };
}
