/** The table of encoders, and the choice by config.json. */
import type { JsonObject } from "./config-reader.ts";
import { ConfigReader } from "./config-reader.ts";
import { bert, roberta, xlmRoberta } from "./bert.ts";
import type { Encoder, EncoderArchitecture } from "./encoder.ts";

export const encoders: readonly EncoderArchitecture[] = [bert, roberta, xlmRoberta];

/** What names of classes with a head for one task end with; their encoders are those of the base models. */
const HEADS = /(?:Model|ForMaskedLM|ForSequenceClassification|ForCausalLM)$/;

/** The encoder that a config.json describes, and its row of the table; null where its architecture is none of them. */
export function buildEncoder(
  file: string,
  config: JsonObject,
): { readonly encoder: Encoder; readonly architecture: EncoderArchitecture } | null {
  const names = config.architectures;
  const name = Array.isArray(names) ? names[0] : undefined;
  if (typeof name !== "string") return null;
  const architecture = encoders.find((row) => row.name.replace(HEADS, "") === name.replace(HEADS, ""));
  return architecture ? { encoder: architecture.build(new ConfigReader(file, config)), architecture } : null;
}
