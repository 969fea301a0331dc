/** OLMo 2 (2024): norms after attention and MLP, none before; norms of all queries and all keys of a token. */
import type { Architecture } from "./decoder.ts";
import { transformer } from "./transformer.ts";
import { attentionBias, readTransformer } from "./transformer-config.ts";

export const olmo2: Architecture = {
  name: "Olmo2ForCausalLM",
  modelType: "olmo2",
  build(config) {
    const base = readTransformer(config, { eps: 1e-5 });
    return transformer(this.name, {
      ...base,
      biases: { ...attentionBias(config), mlp: false },
      norms: {
        beforeAttention: null,
        afterAttention: "post_attention_layernorm",
        beforeMlp: null,
        afterMlp: "post_feedforward_layernorm",
        queryKey: "all",
        offset: 0,
      },
    });
  },
};
