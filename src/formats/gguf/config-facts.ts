/** What is read of a GGUF file before the config of its model is made. */
import type { JsonObject } from "../json.ts";
import type { GgufMetadata } from "./metadata.ts";
import type { GgufTensors } from "./tensors.ts";

/** Facts of a file that configs of its layers are made from. */
export interface LayerFacts {
  readonly metadata: GgufMetadata;
  readonly tensors: GgufTensors;
  /** Number of layers in the file. */
  readonly layers: number;
}

/** Facts of a file that are read before its config is made. */
export interface ConfigFacts extends LayerFacts {
  readonly headDim: number;
  /** RoPE scaling from metadata, or from a tensor of frequency divisors. */
  readonly scaling: JsonObject | null;
}
