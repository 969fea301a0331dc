/**
 * Multi-token prediction (DeepSeek-V3 2024, section 2.2; `mtp` in Qwen3.5's checkpoints): one more layer, which sees the hidden
 * state of a token and the embedding of the next one, and guesses the token after that. Decoders draft with it.
 */
import type { ConfigReader } from "./config-reader.ts";
import type { LayerConfig, LayerPass, StoringMixer } from "./layer.ts";
import { linearSlots, vectorSlot, type WeightSlot } from "./weight-slot.ts";

/** What names of its weights begin with, as Qwen3.5's checkpoints have them. */
const MODULE = "mtp";
export const MULTI_TOKEN_PREFIX = `${MODULE}.`;

/** The field of a config that says how many layers there are for it. */
export const MULTI_TOKEN_LAYERS = "mtp_num_hidden_layers";

/** The layer of multi-token prediction. Its keys and values are of the hidden state before each token, and that token. */
export interface MultiTokenLayer extends LayerConfig {
  /** What names of its weights begin with. */
  readonly module: string;
  /** Attention of the layer, over keys and values that the decoder has stored before. */
  readonly mixer: StoringMixer;
}

/** The layer of these parts; undefined where the config has none. */
export function readMultiToken(
  config: ConfigReader,
  parts: Omit<MultiTokenLayer, "module">,
): MultiTokenLayer | undefined {
  return config.count(MULTI_TOKEN_LAYERS, 0) > 0 ? { ...parts, module: `${MODULE}.layers.0` } : undefined;
}

/** Weights beside those of the layer itself. */
export function multiTokenSlots(hidden: number): WeightSlot[] {
  return [
    ...linearSlots(`${MODULE}.fc`, hidden, 2 * hidden),
    ...["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"].map((name) =>
      vectorSlot(`${MODULE}.${name}.weight`, hidden),
    ),
  ];
}

/** The layer's input: fc of the embeddings of the tokens beside the hidden states of those before them, each behind a norm. */
export function multiTokenInput<T>(pass: LayerPass<T>, before: T): T {
  const parts = [
    pass.norm(pass.embedded, `${MODULE}.pre_fc_norm_embedding`),
    pass.norm(before, `${MODULE}.pre_fc_norm_hidden`),
  ];
  return pass.linear(pass.ops.call("aten::cat.out", parts, -1), `${MODULE}.fc`);
}

/** Its results behind their norm: hidden states like those of the decoder. */
export function multiTokenNorm<T>(pass: LayerPass<T>, x: T): T {
  return pass.norm(x, `${MODULE}.norm`);
}
