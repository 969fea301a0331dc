/** Llama 2, 3, 3.1, 3.2 (Touvron et al. 2023; Grattafiori et al. 2024): pre-norm blocks, grouped-query attention, SwiGLU. */
import { InvalidFileError } from "../errors.ts";
import type { Ops } from "../ops/ops.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Architecture, Decoder, ForwardInputs, ForwardOptions, WeightLookup, WeightSlot } from "./decoder.ts";
import { type RopeConfig, ropeConfig } from "./rope.ts";

interface LlamaConfig {
  readonly hidden: number;
  readonly intermediate: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabulary: number;
  readonly eps: number;
  readonly attentionBias: boolean;
  readonly mlpBias: boolean;
  readonly tied: boolean;
  readonly rope: RopeConfig;
}

const EMBEDDING = "model.embed_tokens.weight";
const HEAD = "lm_head.weight";

function readConfig(config: ConfigReader): LlamaConfig {
  const heads = config.size("num_attention_heads");
  const hidden = config.size("hidden_size");
  const headDim = config.size("head_dim", hidden / heads);
  const kvHeads = config.size("num_key_value_heads", heads);
  if (heads % kvHeads !== 0 || headDim % 2 !== 0)
    throw new InvalidFileError(
      config.file,
      `expected num_attention_heads divisible by num_key_value_heads and an even head_dim but found ${heads}, ${kvHeads} and ${headDim}`,
    );
  config.oneOf("hidden_act", ["silu"], "silu");
  return {
    hidden,
    intermediate: config.size("intermediate_size"),
    layers: config.size("num_hidden_layers"),
    heads,
    kvHeads,
    headDim,
    vocabulary: config.size("vocab_size"),
    eps: config.number("rms_norm_eps", 1e-6),
    attentionBias: config.boolean("attention_bias", false),
    mlpBias: config.boolean("mlp_bias", false),
    tied: config.boolean("tie_word_embeddings", false),
    rope: ropeConfig(config, headDim),
  };
}

function slots(config: LlamaConfig): WeightSlot[] {
  const { hidden, intermediate, vocabulary } = config;
  const q = config.heads * config.headDim;
  const kv = config.kvHeads * config.headDim;
  const vector = (name: string, size: number): WeightSlot => ({ name, shape: [size], role: "vector", tiedTo: null });
  const linear = (module: string, n: number, k: number, bias: boolean): WeightSlot[] => [
    { name: `${module}.weight`, shape: [n, k], role: "linear", tiedTo: null },
    ...(bias ? [vector(`${module}.bias`, n)] : []),
  ];
  const block = (layer: string): WeightSlot[] => [
    vector(`${layer}.input_layernorm.weight`, hidden),
    ...linear(`${layer}.self_attn.q_proj`, q, hidden, config.attentionBias),
    ...linear(`${layer}.self_attn.k_proj`, kv, hidden, config.attentionBias),
    ...linear(`${layer}.self_attn.v_proj`, kv, hidden, config.attentionBias),
    ...linear(`${layer}.self_attn.o_proj`, hidden, q, config.attentionBias),
    vector(`${layer}.post_attention_layernorm.weight`, hidden),
    ...linear(`${layer}.mlp.gate_proj`, intermediate, hidden, config.mlpBias),
    ...linear(`${layer}.mlp.up_proj`, intermediate, hidden, config.mlpBias),
    ...linear(`${layer}.mlp.down_proj`, hidden, intermediate, config.mlpBias),
  ];
  return [
    { name: EMBEDDING, shape: [vocabulary, hidden], role: "embedding", tiedTo: null },
    ...Array.from({ length: config.layers }, (_, i) => block(`model.layers.${i}`)).flat(),
    vector("model.norm.weight", hidden),
    { name: HEAD, shape: [vocabulary, hidden], role: "linear", tiedTo: config.tied ? EMBEDDING : null },
  ];
}

/** x [1, T, hidden] → logits. One block: x += attention(norm(x)); x += mlp(norm(x)). */
function forward<T>(
  ops: Ops<T>,
  config: LlamaConfig,
  weights: WeightLookup,
  { tokens, position }: ForwardInputs<T>,
  { capacity, logits, kvCache }: ForwardOptions,
): T {
  const { eps, headDim, rope } = config;
  const linear = (x: T, module: string, bias: boolean) =>
    ops.linear(x, weights(`${module}.weight`), bias ? weights(`${module}.bias`) : null);
  const frequencies = ops.literal("rope.inverse_frequencies", rope.inverseFrequencies);
  const angles = ops.ropeAngles(tokens, position, frequencies, rope.scale);
  const cache = { dtype: kvCache, shape: [1, capacity, config.kvHeads, headDim] } as const;

  const attention = (x: T, layer: string): T => {
    const q = ops.rope(linear(x, `${layer}.q_proj`, config.attentionBias), angles, headDim);
    const k = ops.rope(linear(x, `${layer}.k_proj`, config.attentionBias), angles, headDim);
    const v = linear(x, `${layer}.v_proj`, config.attentionBias);
    const keyCache = ops.state(`${layer}.key_cache`, cache);
    const valueCache = ops.state(`${layer}.value_cache`, cache);
    const mixed = ops.attention(q, k, v, { keyCache, valueCache, position, scale: headDim ** -0.5 });
    return linear(mixed, `${layer}.o_proj`, config.attentionBias);
  };
  const mlp = (x: T, layer: string): T => {
    const gate = linear(x, `${layer}.gate_proj`, config.mlpBias);
    const up = linear(x, `${layer}.up_proj`, config.mlpBias);
    return linear(ops.swiglu(gate, up), `${layer}.down_proj`, config.mlpBias);
  };

  let x = ops.embedding(weights(EMBEDDING), tokens);
  for (let i = 0; i < config.layers; i++) {
    const layer = `model.layers.${i}`;
    const normed = ops.rmsNorm(x, weights(`${layer}.input_layernorm.weight`), eps);
    x = ops.add(x, attention(normed, `${layer}.self_attn`));
    const normedAgain = ops.rmsNorm(x, weights(`${layer}.post_attention_layernorm.weight`), eps);
    x = ops.add(x, mlp(normedAgain, `${layer}.mlp`));
  }
  if (logits === "last") x = ops.lastRow(x);
  return ops.linear(ops.rmsNorm(x, weights("model.norm.weight"), eps), weights(HEAD));
}

export const llama: Architecture = {
  name: "LlamaForCausalLM",
  build(reader): Decoder {
    const config = readConfig(reader);
    return {
      architecture: "LlamaForCausalLM",
      vocabularySize: config.vocabulary,
      contextLength: reader.size("max_position_embeddings", 2048),
      layers: config.layers,
      slots: slots(config),
      forward: (ops, weights, inputs, options) => forward(ops, config, weights, inputs, options),
    };
  },
};
