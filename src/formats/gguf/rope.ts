/**
 * Converts a GGUF file's RoPE metadata to `rope_scaling` of a config.json: what llama.cpp does with the same metadata
 * (llama-model.cpp, llama-context.cpp), whose YaRN parameters are fixed for the architectures here.
 */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import { toFloat32 } from "../../tensor.ts";
import type { JsonObject } from "../json.ts";
import type { GgufMetadata } from "./metadata.ts";
import type { GgufTensors } from "./tensors.ts";

const SHORT = "rope_factors_short.weight";
const LONG = "rope_factors_long.weight";
const DIVISORS = "rope_freqs.weight";

export interface RopeFacts {
  readonly metadata: GgufMetadata;
  readonly tensors: GgufTensors;
  /** Number of rotated values of a head. */
  readonly dimensions: number;
  readonly contextLength: number;
}

/** RoPE scaling from tensors of frequency factors, or else from metadata; null for none. */
export async function ropeScaling(facts: RopeFacts): Promise<JsonObject | null> {
  const { metadata, tensors, dimensions, contextLength } = facts;
  const { type, factor, attention, original } = readScaling(metadata);
  const held = [SHORT, LONG, DIVISORS].filter((name) => tensors.has(name));
  if (held.length > 0) {
    if (type === "yarn") throw new UnsupportedError(`${metadata.file}: rope scaling "yarn" with tensor ${held[0]}`);
    const times = async (name: string) => (await factors(facts, name)).map((divisor) => divisor * factor);
    const isLong = !tensors.has(DIVISORS);
    const [short, long] = isLong ? [await times(SHORT), await times(LONG)] : [await times(DIVISORS), null];
    return {
      rope_type: "longrope",
      short_factor: short,
      long_factor: long ?? short,
      attention_factor: attention,
      original_max_position_embeddings: isLong ? (original ?? contextLength) : contextLength,
    };
  }
  if (type === "yarn") {
    const scale = (factor <= 1 ? 1 : 1 + 0.1 * Math.log(factor)) * attention;
    const length = original ?? contextLength;
    return { rope_type: "yarn", factor, attention_factor: scale, original_max_position_embeddings: length };
  }
  if (attention !== 1) {
    const same = Array.from({ length: Math.ceil(dimensions / 2) }, () => factor);
    return {
      ...{ rope_type: "longrope", short_factor: same, long_factor: same, attention_factor: attention },
      original_max_position_embeddings: contextLength,
    };
  }
  return factor === 1 ? null : { rope_type: "linear", factor };
}

/** Reads the scaling. Its type defaults to linear; files of 2023 have its factor under another key. */
function readScaling(metadata: GgufMetadata) {
  const types = ["none", "linear", "yarn", "longrope"];
  const type = metadata.string("{arch}.rope.scaling.type") ?? "linear";
  if (!types.includes(type))
    throw new UnsupportedError(`${metadata.file}: rope scaling "${type}" is not supported, only ${types.join(", ")}`);
  const key = "{arch}.rope.scaling.factor";
  const stored = metadata.number(key) === null ? "{arch}.rope.scale_linear" : key;
  const factor = metadata.number(stored) === 0 ? 1 : (metadata.positive(stored) ?? 1);
  const attention = metadata.positive("{arch}.rope.scaling.attn_factor") ?? 1;
  const original = metadata.size("{arch}.rope.scaling.original_context_length");
  return { type, factor: type === "none" ? 1 : factor, attention, original };
}

async function factors({ metadata, tensors, dimensions }: RopeFacts, name: string): Promise<number[]> {
  const { shape } = tensors.info(name);
  const length = Math.ceil(dimensions / 2);
  if (shape.length !== 1 || shape[0] !== length)
    throw new InvalidFileError(metadata.file, `tensor ${name}: expected [${length}] but found [${shape}]`);
  return [...toFloat32(await tensors.read(name))];
}
