/**
 * gpt-oss (OpenAI 2025): attention sinks, a sliding window in every other layer, and mixtures of experts with biases and
 * clamped gates.
 */
import type { Architecture } from "./decoder.ts";
import { Experts } from "./experts.ts";
import { attentionBias, expertCounts, layerWindows, readStack, stacked } from "./transformer-config.ts";

/** Default RoPE. */
const yarn = {
  rope_type: "yarn",
  factor: 32,
  original_max_position_embeddings: 4096,
  beta_fast: 32,
  beta_slow: 1,
  truncate: false,
};

export const gptOss: Architecture = {
  name: "GptOssForCausalLM",
  modelType: "gpt_oss",
  read(given) {
    const says = given.has("rope_parameters") || given.has("rope_scaling");
    const config = says ? given : given.with({ rope_parameters: yarn });
    const base = readStack(config, { kvHeads: 8, headDim: 64, eps: 1e-5, contextLength: 131072, theta: 150000 });
    const windows = layerWindows(config, base.depth, config.sizeOrNull("sliding_window", 128), (i) => i % 2 === 0);
    const experts = new Experts({
      ...expertCounts(config, { experts: 128, topK: 4 }),
      hidden: base.hidden,
      intermediate: base.mlp.intermediate,
      routerBias: true,
      bias: true,
      gate: { slope: config.number("swiglu_alpha", 1.702), limit: config.positive("swiglu_limit", 7) },
      stacksTurned: true,
      names: { router: "router" },
    });
    const attention = { ...base.attention, biases: attentionBias(config, true), sinks: true };
    return stacked(
      { ...base, attention },
      (i) => ({ window: windows[i]! }),
      () => experts,
    );
  },
};
