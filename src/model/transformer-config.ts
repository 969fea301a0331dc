/** What tells the decoders of this package apart, and how the fields that all of them have are read from a config. */
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import type { Activation } from "../ops/ops.ts";
import { Attention, type AttentionConfig } from "./attention.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Drafter } from "./drafter.ts";
import { GatedMlp, type GatedMlpConfig } from "./gated-mlp.ts";
import type { LayerConfig, LayerNorms, LayerPart, Mixer, SharedTable } from "./layer.ts";
import { type RopeConfig, ropeConfig } from "./rope.ts";

export interface TransformerConfig {
  /** Tokens of the vocabulary. */
  readonly vocabulary: number;
  /** Positions that the model was trained for. */
  readonly contextLength: number;
  /** Elements of a token's hidden state. */
  readonly hidden: number;
  /** Number that norms add under the square root. */
  readonly eps: number;
  /** Number that is added to the stored weights of norms (Gemma stores them less 1). */
  readonly normOffset: number;
  /** Name of the norm behind the last layer. */
  readonly lastNorm: string;
  /** Whether the head's matrix is the embedding's. */
  readonly tied: boolean;
  /** Tokens that stand for images or sound, and the one whose embedding all of them have; absent where all have their own. */
  readonly placeholders?: { readonly ids: readonly number[]; readonly as: number };
  /** Weights that layers share, beside the embedding; absent where there are none. */
  readonly table?: SharedTable;
  /** What each layer is made of. */
  readonly layers: readonly LayerConfig[];
  /** What drafts for the decoder; absent where nothing does. */
  readonly drafter?: Drafter | undefined;
  /** Rotary embeddings by the names that layers use. */
  readonly ropes: Readonly<Record<string, RopeConfig>>;
  /** Factors on embeddings, on what a part of a layer adds to the residual stream, and on logits. */
  readonly scales: { readonly embedding: number; readonly residual: number; readonly logits: number };
  /** Bound cap * tanh(x / cap) of logits; 0 for none. */
  readonly logitSoftcap: number;
}

/** The layers of a decoder, then those of what drafts for it. */
export function allLayers({ layers, drafter }: TransformerConfig): readonly LayerConfig[] {
  return drafter ? [...layers, ...drafter.layers] : layers;
}

/** A decoder whose layers are alike: what one is made of, and how many there are. */
export interface StackConfig extends Omit<TransformerConfig, "layers"> {
  /** Number of layers. */
  readonly depth: number;
  readonly attention: AttentionConfig;
  readonly mlp: GatedMlpConfig;
  readonly norms: LayerNorms;
}

/** The decoder of layers that are alike but for what is said of the attention and the MLP of each. */
export function stacked(
  stack: StackConfig,
  attentionOf: (layer: number) => Partial<AttentionConfig> = () => ({}),
  mlpOf?: (layer: number) => LayerPart,
): TransformerConfig {
  return mixed(stack, (i) => new Attention({ ...stack.attention, ...attentionOf(i) }), mlpOf);
}

/** The decoder of layers that are alike but for their mixers and MLPs. */
export function mixed(
  { depth, attention: _, mlp, norms, ...config }: StackConfig,
  mixerOf: (layer: number) => Mixer,
  mlpOf: (layer: number) => LayerPart = () => new GatedMlp(mlp),
): TransformerConfig {
  const layers = Array.from({ length: depth }, (_, i) => ({ mixer: mixerOf(i), mlp: mlpOf(i), norms }));
  return { ...config, layers };
}

/** What configs of an architecture may leave out. */
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

/** Functions of a gated MLP, by their names in configs. */
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

/** Reads the activation at `field`; UnsupportedError for one that is not here. */
export function activationOf(config: ConfigReader, field: string, fallback: string): Activation {
  return activations[config.oneOf(field, Object.keys(activations), fallback)]!;
}

/** Far beyond any model: what is made for each layer, and for each value of a head, before tensors are looked at. */
export const LAYERS_MAX = 1 << 12;
export const HEADS_MAX = 1 << 16;
export const HEAD_MAX = 1 << 16;

/** Heads of the sizes that the config gives. */
function readHeads(config: ConfigReader, defaults: Defaults): Pick<AttentionConfig, "heads" | "kvHeads" | "headDim"> {
  const heads = config.size("num_attention_heads", undefined, HEADS_MAX);
  const headDim = readHeadDim(config, heads, defaults);
  const kvHeads = config.sizeOrNull("num_key_value_heads", defaults.kvHeads ?? heads, HEADS_MAX) ?? heads;
  checkHeads(config.file, { heads, kvHeads, headDim });
  return { heads, kvHeads, headDim };
}

/** InvalidFileError for sizes of heads that attention cannot have. */
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

/** `head_dim`, else the architecture's own, else a part of the embedding for each head. */
function readHeadDim(config: ConfigReader, heads: number, defaults: Defaults): number {
  // An architecture's own size counts where nothing is said, not where the config says null.
  const fallback = config.fields.head_dim === null ? undefined : defaults.headDim;
  const own = fallback ?? Math.floor(config.size("hidden_size") / heads);
  if (own >= 1 || config.has("head_dim")) return config.size("head_dim", own, HEAD_MAX);
  throw new InvalidFileError(
    config.file,
    `num_attention_heads: expected at most hidden_size, ${config.size("hidden_size")}, but found ${heads}`,
  );
}

/** Either field makes transformers look in both directions, as models of embeddings do: UnsupportedError. */
function checkCausal(config: ConfigReader): void {
  for (const [field, causal] of [
    ["use_bidirectional_attention", false],
    ["is_causal", true],
  ] as const)
    if (config.boolean(field, causal) !== causal)
      throw new UnsupportedError(`${config.file}: ${field} ${!causal} is not supported, only causal attention`);
}

/** Layers that differ from what the config says of all, which no decoder here has: UnsupportedError. */
function checkUniform(config: ConfigReader): void {
  const layers = Object.keys(config.object("per_layer_config").fields);
  if (layers.length > 0)
    throw new UnsupportedError(`${config.file}: per_layer_config of layers ${layers.join(", ")} is not supported`);
}

/** A decoder as Llama's: norms before attention and MLP, one rope for all layers, no windows, no scales. */
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

/** Whether projections of attention have a bias; most configs say it for all of them at once. */
export function attentionBias(config: ConfigReader, fallback = false): AttentionConfig["biases"] {
  const bias = config.boolean("attention_bias", fallback);
  return { qkv: bias, output: bias };
}

/** Windows of `count` layers by `layer_types`, else by `isSliding`. */
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

/** Far beyond any model: slots are made for each expert of each layer before tensors are looked at. */
const EXPERTS_MAX = 1 << 12;
/** Likewise, of all layers. */
const ALL_EXPERTS_MAX = 1 << 17;

/** How many experts each layer has, and to how many each token goes, which the field `perToken` says. */
export function expertCounts(
  config: ConfigReader,
  { experts: known, topK: chosen }: { readonly experts?: number; readonly topK?: number },
  perToken = "num_experts_per_tok",
): { readonly experts: number; readonly topK: number } {
  // transformers takes either name for each of these architectures.
  const name = config.has("num_experts") ? "num_experts" : "num_local_experts";
  const layers = config.size("num_hidden_layers", undefined, LAYERS_MAX);
  const experts = config.size(name, known, Math.min(EXPERTS_MAX, Math.floor(ALL_EXPERTS_MAX / layers)));
  const topK = config.size(perToken, chosen);
  if (topK > experts)
    throw new InvalidFileError(config.file, `${perToken}: expected at most ${experts}, ${name}, but found ${topK}`);
  return { experts, topK };
}
