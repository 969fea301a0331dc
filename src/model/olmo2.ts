/** OLMo 2 (2024): norms after attention and MLP, none before; norms of all queries and all keys of a token. */
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import { attentionBias, readStack, stacked } from "./transformer-config.ts";

export const olmo2: Architecture = {
  name: "Olmo2ForCausalLM",
  modelType: "olmo2",
  build(config) {
    const base = readStack(config, { eps: 1e-5 });
    return transformer(
      this.name,
      stacked({
        ...base,
        attention: { ...base.attention, biases: attentionBias(config), queryKeyNorm: "all" },
        norms: {
          beforeMixer: null,
          afterMixer: "post_attention_layernorm",
          beforeMlp: null,
          afterMlp: "post_feedforward_layernorm",
        },
      }),
    );
  },
};
