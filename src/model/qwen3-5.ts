/**
 * Qwen 3.5 (2026): gated DeltaNet in three of four layers, in the others gated attention with RoPE on a part of each head.
 */
import { InvalidFileError } from "../errors.ts";
import { Attention } from "./attention.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { GatedDelta } from "./gated-delta.ts";
import { GatedMlp } from "./gated-mlp.ts";
import type { Mixer } from "./layer.ts";
import { readMultiToken } from "./multi-token.ts";
import { tapsOf } from "./short-convolution.ts";
import {
  attentionBias,
  type Defaults,
  HEAD_MAX,
  HEADS_MAX,
  mixed,
  readStack,
  type StackConfig,
} from "./transformer-config.ts";

/** The config that models with and without experts share, as if all layers were attention. */
export function readQwen35(config: ConfigReader, defaults: Defaults = {}): StackConfig {
  // The convolution's activation is fixed, so the config's must be the same.
  config.oneOf("hidden_act", ["silu", "swish"], "silu");
  const given = config.with({ partial_rotary_factor: config.fields.partial_rotary_factor ?? 0.25 });
  const base = readStack(given, { contextLength: 32768, kvHeads: 4, headDim: 256, partialRotary: true, ...defaults });
  return {
    ...base,
    normOffset: 1,
    attention: { ...base.attention, biases: attentionBias(config), queryKeyNorm: "head", gate: "values" },
  };
}

/** The mixer of each layer: by `layer_types`, else one attention after every few layers of gated DeltaNet. */
export function readMixers(config: ConfigReader, { depth, hidden, attention }: StackConfig): readonly Mixer[] {
  const types = config.choices("layer_types", depth, ["linear_attention", "full_attention"]);
  const interval = config.size("full_attention_interval", 4);
  const [full, linear] = [new Attention(attention), readDelta(config, hidden)];
  return Array.from({ length: depth }, (_, i) => {
    const isFull = types ? types[i] === "full_attention" : (i + 1) % interval === 0;
    return isFull ? full : linear;
  });
}

function readDelta(config: ConfigReader, hidden: number): GatedDelta {
  const keyHeads = config.size("linear_num_key_heads", 16, HEADS_MAX);
  const heads = config.size("linear_num_value_heads", 32, HEADS_MAX);
  const taps = tapsOf(config, "linear_conv_kernel_dim", 4);
  if (heads % keyHeads !== 0)
    throw new InvalidFileError(
      config.file,
      `expected linear_num_value_heads divisible by linear_num_key_heads but found ${heads} and ${keyHeads}`,
    );
  const [keyDim, valueDim] = ["key", "value"].map((name) => config.size(`linear_${name}_head_dim`, 128, HEAD_MAX)) as [
    number,
    number,
  ];
  return new GatedDelta({ hidden, keyHeads, heads, keyDim, valueDim, taps });
}

export const qwen35: Architecture = {
  name: "Qwen3_5ForCausalLM",
  modelType: "qwen3_5_text",
  read(config) {
    const base = readQwen35(config);
    const mixers = readMixers(config, base);
    const stack = mixed(base, (i) => mixers[i]!);
    const { attention, norms } = base;
    const drafter = readMultiToken(config, base, {
      mixer: new Attention(attention),
      mlp: new GatedMlp(base.mlp),
      norms,
    });
    return { ...stack, drafter };
  },
};
