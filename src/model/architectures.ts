/** The architecture table, and the choice by config.json. */
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { ConfigReader, type JsonObject, shown } from "./config-reader.ts";
import type { Architecture, Decoder } from "./decoder.ts";
import { gemma, gemma2, gemma3 } from "./gemma.ts";
import { gptOss } from "./gpt-oss.ts";
import { granite, graniteMoe } from "./granite.ts";
import { llama } from "./llama.ts";
import { ministral, mistral } from "./mistral.ts";
import { mixtral } from "./mixtral.ts";
import { olmo2 } from "./olmo2.ts";
import { olmoe } from "./olmoe.ts";
import { phi3 } from "./phi3.ts";
import { qwen2, qwen3 } from "./qwen.ts";
import { qwen3Moe } from "./qwen-moe.ts";
import { smollm3 } from "./smollm3.ts";

export const architectures: readonly Architecture[] = [
  llama,
  mistral,
  ministral,
  qwen2,
  qwen3,
  gemma,
  gemma2,
  gemma3,
  phi3,
  smollm3,
  olmo2,
  granite,
  qwen3Moe,
  olmoe,
  mixtral,
  graniteMoe,
  gptOss,
];

/**
 * The decoder that a config.json describes. UnsupportedError names what is supported; InvalidFileError where `model_type`,
 * by which transformers chooses, is that of another architecture.
 */
export function buildDecoder(file: string, config: JsonObject): Decoder {
  const names = config.architectures;
  if (!Array.isArray(names) || typeof names[0] !== "string")
    throw new InvalidFileError(file, `architectures: expected a list of names but found ${shown(names)}`);
  const architecture = architectures.find(({ name }) => name === names[0]);
  if (!architecture) {
    const known = architectures.map(({ name }) => name).join(", ");
    throw new UnsupportedError(`${file}: architecture ${names[0]} is not supported, only ${known}`);
  }
  const other = architectures.find(({ modelType }) => modelType === config.model_type);
  if (other && other.build !== architecture.build)
    throw new InvalidFileError(
      file,
      `model_type: expected "${architecture.modelType}" as architectures says ${names[0]} but found "${config.model_type}"`,
    );
  return architecture.build(new ConfigReader(file, config));
}
