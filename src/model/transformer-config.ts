/** Config of a decoder, and how fields that all architectures have are read from a config.json. */
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import type { Activation } from "../ops/ops.ts";
import { Attention, type AttentionConfig } from "./attention.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Drafter } from "./drafter.ts";
import { GatedMlp, type GatedMlpConfig } from "./gated-mlp.ts";
import type { LayerConfig, LayerNorms, LayerPart, Mixer, SharedTable } from "./layer.ts";
import { type RopeConfig, ropeConfig } from "./rope.ts";

export interface TransformerConfig {
  /** Size of the vocabulary. */
  readonly vocabulary: number;
  /** Positions that the model was trained for. */
  readonly contextLength: number;
  /** Elements of a token's hidden state. */
  readonly hidden: number;
  /** Added under the square root by norms. */
  readonly eps: number;
  /** Added to the stored weights of norms (Gemma stores them minus 1). */
  readonly normOffset: number;
  /** Name of the norm after the last layer. */
  readonly lastNorm: string;
  /** Whether the head shares the embedding's matrix. */
  readonly tied: boolean;
  /** Placeholder tokens for images or sound, and the token whose embedding they all get; absent where each has its own. */
  readonly placeholders?: { readonly ids: readonly number[]; readonly as: number };
  /** Weights that layers share, beside the embedding; absent for none. */
  readonly table?: SharedTable;
  /** Mixer, MLP and norms of each layer. */
  readonly layers: readonly LayerConfig[];
  /** Draft head; absent for none. */
  readonly drafter?: Drafter | undefined;
  /** RoPEs by the names that layers use. */
  readonly ropes: Readonly<Record<string, RopeConfig>>;
  /** Factors of embeddings, of what a layer's parts add to the residual stream, and of logits. */
  readonly scales: { readonly embedding: number; readonly residual: number; readonly logits: number };
  /** Bound of logits, cap * tanh(x / cap); 0 for none. */
  readonly logitSoftcap: number;
}

/** The layers of a decoder, then those of its drafter. */
export function allLayers({ layers, drafter }: TransformerConfig): readonly LayerConfig[] {
  return drafter ? [...layers, ...drafter.layers] : layers;
}

/** A decoder with uniform layers: the config of one layer, and their number. */
export interface StackConfig extends Omit<TransformerConfig, "layers"> {
  /** Number of layers. */
  readonly depth: number;
  readonly attention: AttentionConfig;
  readonly mlp: GatedMlpConfig;
  readonly norms: LayerNorms;
}

/** The decoder with uniform layers, except for `attentionOf` and `mlpOf` each layer. */
export function stacked(
  stack: StackConfig,
  attentionOf: (layer: number) => Partial<AttentionConfig> = () => ({}),
  mlpOf?: (layer: number) => LayerPart,
): TransformerConfig {
  return mixed(stack, (i) => new Attention({ ...stack.attention, ...attentionOf(i) }), mlpOf);
}

/** The decoder with uniform layers, except for their mixers and MLPs. */
export function mixed(
  { depth, attention: _, mlp, norms, ...config }: StackConfig,
  mixerOf: (layer: number) => Mixer,
  mlpOf: (layer: number) => LayerPart = () => new GatedMlp(mlp),
): TransformerConfig {
  const layers = Array.from({ length: depth }, (_, i) => ({ mixer: mixerOf(i), mlp: mlpOf(i), norms }));
  return { ...config, layers };
}

/** Defaults of an architecture for fields that its configs may leave out. */
export interface Defaults {
  readonly kvHeads?: number;
  readonly headDim?: number;
  readonly contextLength?: number;
  readonly eps?: number;
  readonly theta?: number;
  readonly tied?: boolean;
  readonly partialRotary?: boolean;
  readonly activation?: string;
}

/** Activations of a gated MLP, by their names in configs. */
const activations: Readonly<Record<string, Activation>> = {
  silu: "silu",
  swish: "silu",
  gelu: "gelu",
  gelu_python: "gelu",
  gelu_pytorch_tanh: "geluTanh",
  gelu_new: "geluTanh",
  gelu_fast: "geluTanh",
  gelu_accurate: "geluTanh",
  quick_gelu: "quickGelu",
  relu: "relu",
  relu2: "squaredRelu",
};

/** Reads the activation at `field`. UnsupportedError for an unknown one. */
export function activationOf(config: ConfigReader, field: string, fallback: string): Activation {
  return activations[config.oneOf(field, Object.keys(activations), fallback)]!;
}

/** Limits far beyond any model: objects are made for each layer and head before tensors are looked at. */
export const LAYERS_MAX = 1 << 12;
export const HEADS_MAX = 1 << 16;
export const HEAD_MAX = 1 << 16;

/** Number and size of heads from a config. */
function readHeads(config: ConfigReader, defaults: Defaults): Pick<AttentionConfig, "heads" | "kvHeads" | "headDim"> {
  const heads = config.size("num_attention_heads", undefined, HEADS_MAX);
  const headDim = readHeadDim(config, heads, defaults);
  const kvHeads = config.sizeOrNull("num_key_value_heads", defaults.kvHeads ?? heads, HEADS_MAX) ?? heads;
  checkHeads(config.file, { heads, kvHeads, headDim });
  return { heads, kvHeads, headDim };
}

/** InvalidFileError for numbers and sizes of heads that attention cannot have. */
export function checkHeads(
  file: string,
  { heads, kvHeads, headDim }: Pick<AttentionConfig, "heads" | "kvHeads" | "headDim">,
): void {
  if (heads % kvHeads !== 0 || headDim % 2 !== 0)
    throw new InvalidFileError(
      file,
      `expected num_attention_heads divisible by num_key_value_heads and an even head_dim but found ${heads}, ${kvHeads} and ${headDim}`,
    );
}

/** Size of a head: `head_dim`, else the architecture's default, else hidden_size / heads. */
function readHeadDim(config: ConfigReader, heads: number, defaults: Defaults): number {
  // The architecture's default applies where the field is absent, not where it is null.
  const fallback = config.fields.head_dim === null ? undefined : defaults.headDim;
  const own = fallback ?? Math.floor(config.size("hidden_size") / heads);
  if (own >= 1 || config.has("head_dim")) return config.size("head_dim", own, HEAD_MAX);
  throw new InvalidFileError(
    config.file,
    `num_attention_heads: expected at most hidden_size, ${config.size("hidden_size")}, but found ${heads}`,
  );
}

/** UnsupportedError for either field that makes transformers' attention bidirectional, as in embedding models. */
function checkCausal(config: ConfigReader): void {
  for (const [field, causal] of [
    ["use_bidirectional_attention", false],
    ["is_causal", true],
  ] as const)
    if (config.boolean(field, causal) !== causal)
      throw new UnsupportedError(`${config.file}: ${field} ${!causal} is not supported, only causal attention`);
}

/** UnsupportedError for settings of single layers, which no decoder here has. */
function checkUniform(config: ConfigReader): void {
  const layers = Object.keys(config.object("per_layer_config").fields);
  if (layers.length > 0)
    throw new UnsupportedError(`${config.file}: per_layer_config of layers ${layers.join(", ")} is not supported`);
}

/** Reads a decoder like Llama: pre-norms, one RoPE for all layers, no windows, no factors. */
export function readStack(config: ConfigReader, defaults: Defaults = {}): StackConfig {
  const {
    contextLength = 2048,
    eps = 1e-6,
    theta = 10000,
    tied = false,
    partialRotary = false,
    activation = "silu",
  } = defaults;
  const sizes = readHeads(config, defaults);
  checkCausal(config);
  checkUniform(config);
  const hidden = config.size("hidden_size");
  return {
    vocabulary: config.size("vocab_size"),
    contextLength: config.size("max_position_embeddings", contextLength),
    hidden,
    eps: config.notNegative("rms_norm_eps", eps),
    normOffset: 0,
    lastNorm: "model.norm",
    tied: config.boolean("tie_word_embeddings", tied),
    depth: config.size("num_hidden_layers", undefined, LAYERS_MAX),
    attention: {
      hidden,
      ...sizes,
      window: 0,
      rope: "rope",
      queryKeyNorm: null,
      scale: sizes.headDim ** -0.5,
      softcap: 0,
      biases: { qkv: false, output: false },
      fused: false,
    },
    mlp: {
      hidden,
      intermediate: config.size("intermediate_size"),
      activation: activationOf(config, "hidden_act", activation),
      bias: false,
      fused: false,
    },
    norms: {
      beforeMixer: "input_layernorm",
      afterMixer: null,
      beforeMlp: "post_attention_layernorm",
      afterMlp: null,
    },
    ropes: { rope: ropeConfig(config, { headDim: sizes.headDim, theta, partial: partialRotary }) },
    scales: { embedding: 1, residual: 1, logits: 1 },
    logitSoftcap: 0,
  };
}

/** Which projections of attention have a bias; most configs say it for all at once. */
export function attentionBias(config: ConfigReader, fallback = false): AttentionConfig["biases"] {
  const bias = config.boolean("attention_bias", fallback);
  return { qkv: bias, output: bias };
}

/** Sliding windows of `count` layers, by `layer_types`, else by `isSliding`. */
export function layerWindows(
  config: ConfigReader,
  count: number,
  window: number | null,
  isSliding: (layer: number) => boolean,
): number[] {
  const types = config.choices("layer_types", count, ["full_attention", "sliding_attention"]);
  return Array.from({ length: count }, (_, i) => {
    if (!(types ? types[i] === "sliding_attention" : isSliding(i))) return 0;
    if (window === null)
      throw new InvalidFileError(config.file, "expected a number for sliding_window, which some layers have");
    return window;
  });
}

/** Most experts of a layer, far beyond any model's: slots are made for each before tensors are looked at. */
const EXPERTS_MAX = 1 << 12;
/** Most experts of all layers. */
const ALL_EXPERTS_MAX = 1 << 17;

/** Number of experts in each layer, and of experts for each token, which the field `perToken` says. */
export function expertCounts(
  config: ConfigReader,
  { experts: known, topK: chosen }: { readonly experts?: number; readonly topK?: number },
  perToken = "num_experts_per_tok",
): { readonly experts: number; readonly topK: number } {
  // transformers accepts either name for each of these architectures.
  const name = config.has("num_experts") ? "num_experts" : "num_local_experts";
  const layers = config.size("num_hidden_layers", undefined, LAYERS_MAX);
  const experts = config.size(name, known, Math.min(EXPERTS_MAX, Math.floor(ALL_EXPERTS_MAX / layers)));
  const topK = config.size(perToken, chosen);
  if (topK > experts)
    throw new InvalidFileError(config.file, `${perToken}: expected at most ${experts}, ${name}, but found ${topK}`);
  return { experts, topK };
}
