/** The table of encoders, and the choice by config.json. */
import { architectures } from "./architectures.ts";
import { bert, roberta, xlmRoberta } from "./bert.ts";
import { ConfigReader, type JsonObject } from "./config-reader.ts";
import type { Encoder, EncoderArchitecture, HeadStep } from "./encoder.ts";
import { modernBert } from "./modernbert.ts";
import { transformerEncoder } from "./transformer.ts";

export const encoders: readonly EncoderArchitecture[] = [bert, roberta, xlmRoberta, modernBert];

/** What names of classes end with: a base model, or one with a head for some task. */
const ENDING = /(?:(?:Text)?Model|ForMaskedLM|ForSequenceClassification|ForCausalLM)$/;

const family = (name: string) => name.replace(ENDING, "");

/** The name of the class that a config.json is of; empty where it says none. */
export function architectureName({ architectures: names }: JsonObject): string {
  const [name] = Array.isArray(names) ? names : [];
  return typeof name === "string" ? name : "";
}

/**
 * A config.json with the class that transformers chooses by `model_type` where `architectures` says none: a decoder, or an
 * encoder by itself. As it is where the type is none of the tables.
 */
export function withArchitecture(config: JsonObject): JsonObject {
  const { architectures: names = null, model_type: type } = config;
  if (names !== null && !(Array.isArray(names) && names.length === 0)) return config;
  const row = [...architectures, ...encoders].find(({ modelType }) => modelType === type);
  return row ? { ...config, architectures: [row.name] } : config;
}

/** An encoder, what names of its tensors begin with in checkpoints of classes with a head, and the head of a classifier. */
export interface BuiltEncoder {
  readonly encoder: Encoder;
  readonly prefix: string;
  readonly classifier: readonly HeadStep[];
}

/** The encoder that a config.json describes; null where its architecture is none of the table. */
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

/** The blocks of the decoder that a config.json describes as an encoder; null where there is no such decoder. */
export function decoderAsEncoder(file: string, config: JsonObject): Encoder | null {
  const name = family(architectureName(config));
  const architecture = architectures.find((row) => family(row.name) === name);
  if (!architecture) return null;
  const reader = new ConfigReader(file, config);
  const isBidirectional = reader.boolean("use_bidirectional_attention", false) || !reader.boolean("is_causal", true);
  const decoder = architecture.build(reader.without("use_bidirectional_attention", "is_causal"));
  return transformerEncoder(file, decoder, isBidirectional);
}
