/** Mistral (Jiang et al. 2023): Llama with a sliding window in every layer, or in those of `layer_types` (Ministral, 2024). */
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import { layerWindows, readStack, stacked } from "./transformer-config.ts";

export const mistral: Architecture = {
  name: "MistralForCausalLM",
  modelType: "mistral",
  textTypes: {
    mistral: {
      vocab_size: 32000,
      hidden_size: 4096,
      intermediate_size: 14336,
      num_hidden_layers: 32,
      num_attention_heads: 32,
    },
  },
  build(config) {
    const base = readStack(config, { kvHeads: 8, contextLength: 131072 });
    const window = config.sizeOrNull("sliding_window", 4096);
    const windows = layerWindows(config, base.depth, window, () => window !== null);
    return transformer(
      this.name,
      stacked(base, (i) => ({ window: windows[i]! })),
    );
  },
};

/** Mistral under the name that transformers gives it with `layer_types`. */
export const ministral: Architecture = { ...mistral, name: "MinistralForCausalLM", modelType: "ministral" };
