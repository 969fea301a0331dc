/** The table of architectures, from which config.json chooses one. */
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { bitnet } from "./bitnet.ts";
import { ConfigReader, type JsonObject, shown } from "./config-reader.ts";
import type { Architecture, Decoder } from "./decoder.ts";
import { ernie4_5 } from "./ernie4-5.ts";
import { exaone4 } from "./exaone4.ts";
import { gemma, gemma2, gemma3 } from "./gemma.ts";
import { gemma4, gemma4Unified } from "./gemma4.ts";
import { glm4 } from "./glm4.ts";
import { gptOss } from "./gpt-oss.ts";
import { granite, graniteMoe } from "./granite.ts";
import { graniteHybrid } from "./granite-hybrid.ts";
import { hunyuan } from "./hunyuan.ts";
import { lfm2, lfm2Moe, lfm3 } from "./lfm.ts";
import { llama } from "./llama.ts";
import { ministral, ministral3, mistral } from "./mistral.ts";
import { mixtral } from "./mixtral.ts";
import { olmo2, olmo3 } from "./olmo.ts";
import { olmoe } from "./olmoe.ts";
import { phi3 } from "./phi3.ts";
import { mimo, qwen2, qwen3 } from "./qwen.ts";
import { qwen3Moe, qwen35Moe } from "./qwen-moe.ts";
import { qwen35 } from "./qwen3-5.ts";
import { smollm3 } from "./smollm3.ts";
import { transformer } from "./transformer.ts";

export const architectures: readonly Architecture[] = [
  llama,
  mistral,
  ministral,
  ministral3,
  qwen2,
  qwen3,
  gemma,
  gemma2,
  gemma3,
  gemma4,
  gemma4Unified,
  phi3,
  smollm3,
  olmo2,
  olmo3,
  exaone4,
  ernie4_5,
  hunyuan,
  bitnet,
  glm4,
  granite,
  graniteHybrid,
  qwen3Moe,
  olmoe,
  mixtral,
  graniteMoe,
  gptOss,
  lfm2,
  lfm2Moe,
  lfm3,
  qwen35,
  qwen35Moe,
  mimo,
];

/**
 * Builds the decoder of a config.json. UnsupportedError lists supported architectures; InvalidFileError where `model_type`,
 * by which transformers chooses, belongs to another architecture.
 */
export function buildDecoder(file: string, config: JsonObject): Decoder {
  const names = config.architectures;
  if (!Array.isArray(names) || typeof names[0] !== "string")
    throw new InvalidFileError(
      file,
      `architectures: expected a list of names but found ${shown(names)}; model_type ${shown(config.model_type)} names none, either`,
    );
  const architecture = architectures.find(({ name }) => name === names[0]);
  if (!architecture) {
    const known = architectures.map(({ name }) => name).join(", ");
    throw new UnsupportedError(`${file}: architecture ${names[0]} is not supported, only ${known}`);
  }
  const other = architectures.find(({ modelType }) => modelType === config.model_type);
  if (other && other.read !== architecture.read)
    throw new InvalidFileError(
      file,
      `model_type: expected "${architecture.modelType}" as architectures says ${names[0]} but found "${config.model_type}"`,
    );
  return transformer(architecture.name, architecture.read(new ConfigReader(file, config)));
}
