/**
 * Phi-3 (Abdin et al. 2024) and Phi-4-mini (2025): fused projections, LongRoPE, and in Phi-4 RoPE on a part of each head.
 */
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { ropeField } from "./rope.ts";
import { readStack, stacked } from "./transformer-config.ts";

/** The config in today's form: early ones call LongRoPE "su" or "yarn", and leave out the training length. */
function modernized(config: ConfigReader): ConfigReader {
  const length = { original_max_position_embeddings: config.size("original_max_position_embeddings", 4096) };
  const name = ropeField(config);
  const rope = config.object(name);
  const field = rope.has("rope_type") ? "rope_type" : "type";
  if (!["su", "yarn"].includes(rope.string(field, "default"))) return config.with(length);
  return config.with({ ...length, [name]: rope.with({ rope_type: "longrope" }).fields });
}

export const phi3: Architecture = {
  name: "Phi3ForCausalLM",
  modelType: "phi3",
  read(config) {
    const base = readStack(modernized(config), { contextLength: 4096, eps: 1e-5, partialRotary: true });
    const window = config.sizeOrNull("sliding_window", null) ?? 0;
    return stacked({
      ...base,
      attention: { ...base.attention, fused: true, window },
      mlp: { ...base.mlp, fused: true },
    });
  },
};
