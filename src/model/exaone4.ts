/**
 * EXAONE 4.0 (2025): post-norms, norms of queries and keys, and full-attention layers without RoPE between windowed ones.
 */
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { layerWindows, readStack, stacked } from "./transformer-config.ts";

/** Which layers have a sliding window: all but every n-th, or those with the letter L in a pattern such as "LLLG". */
function isSliding(config: ConfigReader, depth: number): (layer: number) => boolean {
  const field = "sliding_window_pattern";
  if (typeof config.fields[field] !== "string") {
    const period = config.size(field, 4);
    return (i) => (i + 1) % period !== 0;
  }
  const letters = config.string(field);
  return (i) => i < depth - 1 && letters[i % letters.length] === "L";
}

export const exaone4: Architecture = {
  name: "Exaone4ForCausalLM",
  modelType: "exaone4",
  read(config) {
    const base = readStack(config, { eps: 1e-5, kvHeads: 32 });
    const window = config.sizeOrNull("sliding_window", 4096);
    const sliding = window === null ? () => false : isSliding(config, base.depth);
    const windows = layerWindows(config, base.depth, window, sliding);
    return stacked(
      {
        ...base,
        attention: { ...base.attention, queryKeyNorm: "head" },
        norms: {
          beforeMixer: null,
          afterMixer: "post_attention_layernorm",
          beforeMlp: null,
          afterMlp: "post_feedforward_layernorm",
        },
      },
      (i) => ({ window: windows[i]!, rope: window === null || windows[i]! > 0 ? "rope" : null }),
    );
  },
};
