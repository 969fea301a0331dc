/** Mistral (Jiang et al. 2023): Llama with a sliding window in every layer. */
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import { readTransformer } from "./transformer-config.ts";

export const mistral: Architecture = {
  name: "MistralForCausalLM",
  build(config) {
    const base = readTransformer(config, { kvHeads: 8, contextLength: 131072 });
    const window = config.sizeOrNull("sliding_window", 4096) ?? 0;
    return transformer(this.name, { ...base, layers: base.layers.map((layer) => ({ ...layer, window })) });
  },
};
