/** The table of encoders, from which config.json chooses one. */
import { architectures } from "./architectures.ts";
import { bert, roberta, xlmRoberta } from "./bert.ts";
import { ConfigReader, type JsonObject } from "./config-reader.ts";
import type { Encoder, EncoderArchitecture, HeadStep } from "./encoder.ts";
import { modernBert } from "./modernbert.ts";
import { transformer, transformerEncoder } from "./transformer.ts";

export const encoders: readonly EncoderArchitecture[] = [bert, roberta, xlmRoberta, modernBert];

/** Endings of class names: a base model, or one with a head for some task. */
const ENDING = /(?:(?:Text)?Model|ForMaskedLM|ForSequenceClassification|ForCausalLM)$/;

const family = (name: string) => name.replace(ENDING, "");

/** Class name in a config.json; "" where it has none. */
export function architectureName({ architectures: names }: JsonObject): string {
  const [name] = Array.isArray(names) ? names : [];
  return typeof name === "string" ? name : "";
}

/**
 * The config.json with a class in `architectures`: where it has none, the one that transformers chooses by `model_type`, a
 * decoder or an encoder without a head. Unchanged for a type in neither table.
 */
export function withArchitecture(config: JsonObject): JsonObject {
  const { architectures: names = null, model_type: type } = config;
  if (names !== null && !(Array.isArray(names) && names.length === 0)) return config;
  const row = [...architectures, ...encoders].find(({ modelType }) => modelType === type);
  return row ? { ...config, architectures: [row.name] } : config;
}

/** An encoder, the prefix of its tensors in checkpoints with a head, and the head of a classifier. */
export interface BuiltEncoder {
  readonly encoder: Encoder;
  readonly prefix: string;
  readonly classifier: readonly HeadStep[];
}

/** Builds the encoder of a config.json; null where its architecture is not in the table. */
export function buildEncoder(file: string, config: JsonObject): BuiltEncoder | null {
  const name = family(architectureName(config));
  const architecture = encoders.find((row) => family(row.name) === name);
  if (!architecture) return null;
  const reader = new ConfigReader(file, config);
  return {
    encoder: architecture.build(reader),
    prefix: architecture.prefix,
    classifier: architecture.classifier(reader),
  };
}

/** Builds the layers of a config.json's decoder as an encoder; null where there is no such decoder. */
export function decoderAsEncoder(file: string, config: JsonObject): Encoder | null {
  const name = family(architectureName(config));
  const architecture = architectures.find((row) => family(row.name) === name);
  if (!architecture) return null;
  const reader = new ConfigReader(file, config);
  const isBidirectional = reader.boolean("use_bidirectional_attention", false) || !reader.boolean("is_causal", true);
  const read = architecture.read(reader.without("use_bidirectional_attention", "is_causal"));
  return transformerEncoder(file, transformer(architecture.name, read), isBidirectional);
}
