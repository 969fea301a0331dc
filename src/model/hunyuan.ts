/** Hunyuan, the dense ones (2025): Llama with norms of queries and keys after RoPE, whose base is scaled by `alpha`. */
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { ropeField } from "./rope.ts";
import { attentionBias, readStack, stacked } from "./transformer-config.ts";

/** RoPE of type "dynamic" with `alpha` has base theta * alpha^(d / (d - 2)) at any length. */
function withStretchedBase(config: ConfigReader): ConfigReader {
  const field = ropeField(config);
  const rope = config.object(field);
  const type = rope.has("rope_type") ? "rope_type" : "type";
  const alpha = rope.number("alpha", 0);
  if (rope.string(type, "default") !== "dynamic" || alpha === 0) return config;
  const headDim = config.size("head_dim");
  const theta = (rope.has("rope_theta") ? rope : config).positive("rope_theta", 10000);
  const base = theta * rope.positive("alpha") ** (headDim / (headDim - 2));
  return config.with({ [field]: { rope_type: "default", rope_theta: base } });
}

export const hunyuan: Architecture = {
  name: "HunYuanDenseV1ForCausalLM",
  modelType: "hunyuan_v1_dense",
  read(config) {
    const base = readStack(withStretchedBase(config), { eps: 1e-5 });
    return stacked({
      ...base,
      attention: {
        ...base.attention,
        biases: attentionBias(config),
        queryKeyNorm: "head",
        isNormedLast: true,
        names: { queryNorm: "query_layernorm", keyNorm: "key_layernorm" },
      },
    });
  },
};
