/** ModernBERT (Warner et al. 2024): RoPE, pre-norm layers, gated MLPs, and bidirectional sliding windows in most layers. */
import { UnsupportedError } from "../errors.ts";
import type { Activation, Ops } from "../ops/ops.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { WeightLookup, WeightSlot } from "./decoder.ts";
import type { EncoderArchitecture, TextInputs } from "./encoder.ts";
import { type RopeConfig, ropeOf } from "./rope.ts";
import { activationOf, HEADS_MAX, LAYERS_MAX } from "./transformer-config.ts";

const layerTypes = ["full_attention", "sliding_attention"] as const;
type LayerType = (typeof layerTypes)[number];

interface ModernBertConfig {
  readonly vocabulary: number;
  readonly hidden: number;
  readonly intermediate: number;
  readonly heads: number;
  readonly layers: readonly LayerType[];
  readonly eps: number;
  readonly activation: Activation;
  /** Tokens on each side that a query of a windowed layer sees. */
  readonly window: number;
  readonly biases: { readonly norm: boolean; readonly attention: boolean; readonly mlp: boolean };
  readonly ropes: Readonly<Record<LayerType, RopeConfig>>;
}

function readModernBert(config: ConfigReader): ModernBertConfig {
  const hidden = config.size("hidden_size", 768);
  const heads = config.size("num_attention_heads", 12, HEADS_MAX);
  if (hidden % (2 * heads) !== 0)
    throw new UnsupportedError(
      `${config.file}: expected hidden_size divisible by twice num_attention_heads but found ${hidden} and ${heads}`,
    );
  const count = config.size("num_hidden_layers", 22, LAYERS_MAX);
  const every = config.size("global_attn_every_n_layers", 3);
  const rope = (type: LayerType, name: string, theta: number) =>
    ropeOf(config.without("rope_theta"), config.object("rope_parameters").object(type), {
      headDim: hidden / heads,
      theta: config.positive(name, theta),
    });
  return {
    vocabulary: config.size("vocab_size", 50368),
    hidden,
    intermediate: config.size("intermediate_size", 1152),
    heads,
    layers:
      config.choices("layer_types", count, layerTypes) ??
      Array.from({ length: count }, (_, i) => layerTypes[i % every === 0 ? 0 : 1]),
    eps: config.positive("norm_eps", 1e-5),
    activation: activationOf(config, "hidden_activation", "gelu"),
    window: Math.floor(config.size("local_attention", 128) / 2),
    biases: {
      norm: config.boolean("norm_bias", false),
      attention: config.boolean("attention_bias", false),
      mlp: config.boolean("mlp_bias", false),
    },
    ropes: {
      full_attention: rope("full_attention", "global_rope_theta", 160000),
      sliding_attention: rope("sliding_attention", "local_rope_theta", 10000),
    },
  };
}

const WORDS = "embeddings.tok_embeddings.weight";

function slots({ vocabulary, hidden, intermediate, layers, biases }: ModernBertConfig): WeightSlot[] {
  const vector = (name: string, size: number): WeightSlot => ({ name, shape: [size], role: "vector", tiedTo: null });
  const linear = (module: string, n: number, k: number, bias: boolean): WeightSlot[] => [
    { name: `${module}.weight`, shape: [n, k], role: "linear", tiedTo: null },
    ...(bias ? [vector(`${module}.bias`, n)] : []),
  ];
  const norm = (module: string) => [
    vector(`${module}.weight`, hidden),
    ...(biases.norm ? [vector(`${module}.bias`, hidden)] : []),
  ];
  const layer = (name: string, index: number) => [
    ...(index === 0 ? [] : norm(`${name}.attn_norm`)),
    ...linear(`${name}.attn.Wqkv`, 3 * hidden, hidden, biases.attention),
    ...linear(`${name}.attn.Wo`, hidden, hidden, biases.attention),
    ...norm(`${name}.mlp_norm`),
    ...linear(`${name}.mlp.Wi`, 2 * intermediate, hidden, biases.mlp),
    ...linear(`${name}.mlp.Wo`, hidden, intermediate, biases.mlp),
  ];
  return [
    { name: WORDS, shape: [vocabulary, hidden], role: "embedding", tiedTo: null },
    ...norm("embeddings.norm"),
    ...layers.flatMap((_, i) => layer(`layers.${i}`, i)),
    ...norm("final_norm"),
  ];
}

/** Hidden states of pre-norm layers: x += attention(norm(x)); x += mlp(norm(x)). */
function hiddenStates<T>(config: ModernBertConfig, ops: Ops<T>, weights: WeightLookup, inputs: TextInputs<T>): T {
  const { hidden, heads, intermediate, layers, eps, activation, biases, ropes, window } = config;
  const { tokens, positions, offsets } = inputs;
  const headDim = hidden / heads;
  const biasOf = (module: string, has: boolean) => (has ? weights(`${module}.bias`) : null);
  const linear = (x: T, module: string, bias: boolean) =>
    ops.linear(x, weights(`${module}.weight`), biasOf(module, bias));
  const norm = (x: T, module: string) =>
    ops.layerNorm(x, weights(`${module}.weight`), biasOf(module, biases.norm), eps);
  const angles = new Map<LayerType, T>();
  const anglesOf = (type: LayerType) => {
    const { inverseFrequencies, scale } = ropes[type];
    const known =
      angles.get(type) ??
      ops.ropeAngles(tokens, positions, ops.literal(`${type}.inverse_frequencies`, inverseFrequencies), scale);
    angles.set(type, known);
    return known;
  };
  let x = norm(ops.embedding(weights(WORDS), tokens), "embeddings.norm");
  for (const [i, type] of layers.entries()) {
    const name = `layers.${i}`;
    const qkv = linear(i === 0 ? x : norm(x, `${name}.attn_norm`), `${name}.attn.Wqkv`, biases.attention);
    const [q, k, v] = [0, 1, 2].map((part) => ops.columns(qkv, part * hidden, (part + 1) * hidden));
    const [turnedQ, turnedK] = [q!, k!].map((value) => ops.rope(value, anglesOf(type), headDim));
    const seen = type === "full_attention" ? {} : { before: window, after: window };
    const mixed = ops.attendPacked(turnedQ!, turnedK!, v!, { offsets, headDim, scale: headDim ** -0.5, ...seen });
    x = ops.add(x, linear(mixed, `${name}.attn.Wo`, biases.attention));
    const both = linear(norm(x, `${name}.mlp_norm`), `${name}.mlp.Wi`, biases.mlp);
    const [gate, up] = [0, 1].map((part) => ops.columns(both, part * intermediate, (part + 1) * intermediate));
    x = ops.add(x, linear(ops.gated(activation, gate!, up!), `${name}.mlp.Wo`, biases.mlp));
  }
  return norm(x, "final_norm");
}

export const modernBert: EncoderArchitecture = {
  name: "ModernBertModel",
  modelType: "modernbert",
  prefix: "model.",
  build(reader) {
    const config = readModernBert(reader);
    return {
      architecture: this.name,
      vocabularySize: config.vocabulary,
      contextLength: reader.size("max_position_embeddings", 8192),
      layers: config.layers.length,
      slots: slots(config),
      scalable: [],
      transformer: null,
      hidden: config.hidden,
      firstPosition: 0,
      tokenTypes: 1,
      hiddenStates: (ops, weights, inputs) => hiddenStates(config, ops, weights, inputs),
    };
  },
  classifier(config) {
    config.oneOf("classifier_activation", ["gelu"], "gelu");
    const pooling = config.oneOf("classifier_pooling", ["cls", "mean"], "cls") as "cls" | "mean";
    const size = config.size("hidden_size", 768);
    const eps = config.positive("norm_eps", 1e-5);
    return [
      { kind: "pool", poolings: [pooling] },
      {
        ...{ kind: "dense", module: "head.dense", size, activation: "gelu" },
        hasBias: config.boolean("classifier_bias", false),
      },
      { kind: "layerNorm", module: "head.norm", eps, hasBias: config.boolean("norm_bias", false) },
      { kind: "dense", module: "classifier", size: 1, hasBias: true, activation: null },
    ];
  },
};
