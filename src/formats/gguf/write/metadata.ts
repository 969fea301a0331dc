/** Writes a model's GGUF metadata, and checks that the file describes the model completely. */

import type { Model } from "../../../checkpoint/model.ts";
import { UnsupportedError } from "../../../errors.ts";
import { buildDecoder } from "../../../model/architectures.ts";
import { Attention, type AttentionConfig } from "../../../model/attention.ts";
import { DenseBesideExperts } from "../../../model/dense-beside-experts.ts";
import { Experts, type ExpertsConfig } from "../../../model/experts.ts";
import { GatedDelta } from "../../../model/gated-delta.ts";
import { GatedMlp, type GatedMlpConfig } from "../../../model/gated-mlp.ts";
import { Mamba2 } from "../../../model/mamba2.ts";
import { MultiToken } from "../../../model/multi-token.ts";
import { PerLayerTable } from "../../../model/per-layer-input.ts";
import { ShortConvolution } from "../../../model/short-convolution.ts";
import { allLayers, type TransformerConfig } from "../../../model/transformer-config.ts";
import { architectureOf } from "../architectures.ts";
import { ggufConfig } from "../config.ts";
import { DRAFT_LAYERS_KEY } from "../draft-layer.ts";
import { GgufMetadata } from "../metadata.ts";
import type { GgufTensors } from "../tensors.ts";
import type { GgufEntry, GgufTensorEntry } from "../writer.ts";

/** The components of a layer that files can describe. */
interface Block {
  readonly mixer: Attention | GatedDelta | Mamba2 | ShortConvolution;
  readonly mlp: GatedMlpConfig | ExpertsConfig;
  /** Experts of the layer, as its MLP or beside it; null without. */
  readonly experts: ExpertsConfig | null;
}

function isMixer(mixer: unknown): mixer is Block["mixer"] {
  return [Attention, GatedDelta, Mamba2, ShortConvolution].some((kind) => mixer instanceof kind);
}

/** Components of all layers. UnsupportedError for layers that files have no names for. */
function blocksOf({ name }: Model, { layers }: TransformerConfig): readonly Block[] {
  return layers.map(({ mixer, mlp }, i) => {
    if (isMixer(mixer) && mlp instanceof GatedMlp) return { mixer, mlp: mlp.config, experts: null };
    if (isMixer(mixer) && mlp instanceof Experts) return { mixer, mlp: mlp.config, experts: mlp.config };
    if (isMixer(mixer) && mlp instanceof DenseBesideExperts)
      return { mixer, mlp: mlp.config.dense.config, experts: mlp.config.experts.config };
    throw new UnsupportedError(
      `${name}: layer ${i} is not written to GGUF, only layers of attention, gated DeltaNet, Mamba 2 or a short convolution with a gated MLP or experts are`,
    );
  });
}

/** Config of the first layer that has attention. */
export function attentionOf(model: Model, config: TransformerConfig): AttentionConfig {
  return attentionIn(model, blocksOf(model, config));
}

function attentionIn(model: Model, blocks: readonly Block[]): AttentionConfig {
  const mixers = blocks.map(({ mixer }) => mixer);
  const found = mixers.find((mixer) => mixer instanceof Attention);
  if (found) return found.config;
  throw new UnsupportedError(`${model.name}: models without attention are not written to GGUF`);
}

/** The config's RoPE base (theta), in the style of transformers 4 or 5. */
export function baseOf(model: Model): number {
  const { config } = model.checkpoint;
  const parameters = (config.rope_parameters ?? {}) as Record<string, unknown>;
  const nested = (parameters.full_attention ?? parameters) as Record<string, unknown>;
  const base = nested.rope_theta ?? config.rope_theta;
  return typeof base === "number" ? base : model.decoder.architecture === "Gemma3ForCausalLM" ? 1e6 : 10000;
}

const u32 = (value: number): GgufEntry => ({ type: "u32", value });
const f32 = (value: number): GgufEntry => ({ type: "f32", value });
type Entries = [string, GgufEntry][];

/** Metadata that describes the model; a window as wide as the context is omitted. */
export function modelMetadata(model: Model, architecture: string, config: TransformerConfig): Map<string, GgufEntry> {
  const blocks = blocksOf(model, config);
  const window = Math.max(...blocks.map(({ mixer }) => (mixer instanceof Attention ? mixer.config.window : 0)));
  const full = architecture === "llama" && window > 0;
  if (architecture === "exaone4" && window > 0)
    throw new UnsupportedError(
      `${model.name}: llama.cpp does not see windows of EXAONE 4.0 but in models of 64 layers`,
    );
  const { hidden, eps, logitSoftcap } = config;
  const attention = attentionOf(model, config);
  const { heads, headDim, softcap } = attention;
  const rope = config.ropes.rope ?? config.ropes.full_attention ?? Object.values(config.ropes)[0]!;
  const { embedding, residual, logits } = config.scales;
  const entries: Entries = [
    ["context_length", u32(full ? Math.min(window, config.contextLength) : config.contextLength)],
    ["embedding_length", u32(hidden)],
    ["block_count", u32(allLayers(config).length)],
    ...(config.drafter instanceof MultiToken ? ([[DRAFT_LAYERS_KEY, u32(1)]] as Entries) : []),
    ["feed_forward_length", u32(blocks[0]!.mlp.intermediate)],
    ["vocab_size", u32(config.vocabulary)],
    ["attention.head_count", u32(heads)],
    ["attention.head_count_kv", kvHeadsOf(blocks, attention)],
    ["attention.key_length", u32(headDim)],
    ["attention.value_length", u32(headDim)],
    ["attention.layer_norm_rms_epsilon", f32(eps)],
    ["rope.dimension_count", u32(2 * rope.inverseFrequencies.length)],
    ["rope.freq_base", f32(baseOf(model))],
    ...(window > 0 && !full ? ([["attention.sliding_window", u32(window)]] as Entries) : []),
    ...(architecture.startsWith("granite")
      ? ([
          ["embedding_scale", f32(embedding)],
          ["residual_scale", f32(residual)],
          ["logit_scale", f32(1 / logits)],
          ["attention.scale", f32(attention.scale)],
        ] as Entries)
      : []),
    ...(softcap > 0 ? ([["attn_logit_softcapping", f32(softcap)]] as Entries) : []),
    ...(logitSoftcap > 0 ? ([["final_logit_softcapping", f32(logitSoftcap)]] as Entries) : []),
    ...(architecture === "bitnet" ? bitnetEntries(model, blocks, config) : []),
    ...(architecture === "mistral3" ? ministralEntries(model, attention) : []),
    ...(architecture === "gemma4" ? gemma4Entries(model, blocks, config) : []),
    ...expertEntries(blocks),
    ...recurrentEntries(model, blocks),
  ];
  return new Map<string, GgufEntry>([
    ["general.architecture", { type: "string", value: architecture }],
    ["general.name", { type: "string", value: model.name }],
    ["general.quantization_version", u32(2)],
    ...entries.map(([key, entry]): [string, GgufEntry] => [`${architecture}.${key}`, entry]),
  ]);
}

/** Number of key heads; by layer for models with convolutions or Mamba 2, whose layers have 0. */
function kvHeadsOf(blocks: readonly Block[], { kvHeads }: AttentionConfig): GgufEntry {
  const isWithout = ({ mixer }: Block) => mixer instanceof ShortConvolution || mixer instanceof Mamba2;
  if (!blocks.some(isWithout)) return u32(kvHeads);
  return { type: "i32", value: blocks.map((block) => (isWithout(block) ? 0 : kvHeads)) };
}

/** Per-layer sizes of Gemma 4. */
function gemma4Entries({ checkpoint }: Model, blocks: readonly Block[], config: TransformerConfig): Entries {
  const { table, logitSoftcap } = config;
  const layers = blocks.map(({ mixer }) => (mixer as Attention).config);
  const full = layers.at(-1)!;
  const windowed = layers.find(({ window }) => window > 0) ?? full;
  const ropes = (checkpoint.config.rope_parameters ?? {}) as Record<string, { readonly rope_theta?: number }>;
  return [
    ["feed_forward_length", { type: "i32", value: blocks.map(({ mlp }) => mlp.intermediate) }],
    ["attention.head_count_kv", { type: "i32", value: layers.map(({ kvHeads }) => kvHeads) }],
    ...["key", "value"].flatMap(
      (part): Entries => [
        [`attention.${part}_length`, u32(full.headDim)],
        [`attention.${part}_length_swa`, u32(windowed.headDim)],
      ],
    ),
    ["attention.sliding_window_pattern", { type: "bool", value: layers.map(({ window }) => window > 0) }],
    ["attention.shared_kv_layers", u32(layers.filter(({ sharedWith }) => sharedWith !== undefined).length)],
    ["embedding_length_per_layer_input", u32(table instanceof PerLayerTable ? table.config.size : 0)],
    // llama.cpp has a default other than none, so it is always written.
    ["final_logit_softcapping", f32(logitSoftcap)],
    ["rope.dimension_count", u32(full.headDim)],
    ["rope.dimension_count_swa", u32(windowed.headDim)],
    ["rope.freq_base", f32(ropes.full_attention?.rope_theta ?? 1e6)],
    ["rope.freq_base_swa", f32(ropes.sliding_attention?.rope_theta ?? 1e4)],
  ];
}

/** BitNet as llama.cpp computes it: its releases support only SiLU gates. */
function bitnetEntries({ name }: Model, blocks: readonly Block[], { tied }: TransformerConfig): Entries {
  const { activation } = blocks[0]!.mlp as GatedMlpConfig;
  if (activation !== "silu" || !tied)
    throw new UnsupportedError(
      `${name}: llama.cpp's BitNet has ${tied ? `gates of SiLU, not ${activation}` : "no head of its own"}: not written to GGUF`,
    );
  return [["hidden_activation", { type: "string", value: activation }]];
}

/** Ministral 3's YaRN, and the scaling of its queries with position. */
function ministralEntries(model: Model, { queryScaling }: AttentionConfig): Entries {
  const { config } = model.checkpoint;
  const rope = (config.rope_parameters ?? config.rope_scaling ?? {}) as Record<string, unknown>;
  const number = (field: string, fallback: number) => (typeof rope[field] === "number" ? rope[field] : fallback);
  return [
    ["rope.scaling.type", { type: "string", value: "yarn" }],
    ["rope.scaling.factor", f32(number("factor", 1))],
    ["rope.scaling.original_context_length", u32(number("original_max_position_embeddings", 1))],
    ["rope.scaling.yarn_beta_fast", f32(number("beta_fast", 32))],
    ["rope.scaling.yarn_beta_slow", f32(number("beta_slow", 1))],
    ["rope.scaling.yarn_log_multiplier", f32(1)],
    ["attention.temperature_scale", f32(queryScaling?.beta ?? 0)],
  ];
}

/** Metadata about experts, which describes the first layer that has some. */
function expertEntries(blocks: readonly Block[]): Entries {
  const first = blocks.findIndex(({ experts }) => experts !== null);
  if (first < 0) return [];
  const { experts, topK, intermediate, scores, shared } = blocks[first]!.experts!;
  return [
    ["expert_count", u32(experts)],
    ["expert_used_count", u32(topK)],
    ["expert_feed_forward_length", u32(intermediate)],
    ...(shared ? ([["expert_shared_feed_forward_length", u32(shared.mlp.config.intermediate)]] as Entries) : []),
    ...(first > 0 ? ([["leading_dense_block_count", u32(first)]] as Entries) : []),
    // llama.cpp's number for sigmoid gating
    ...(scores === "sigmoid" ? ([["expert_gating_func", u32(2)]] as Entries) : []),
  ];
}

/** Metadata about layers with recurrent states. */
function recurrentEntries(model: Model, blocks: readonly Block[]): Entries {
  const mixers = blocks.map(({ mixer }) => mixer);
  const convolution = mixers.find((mixer) => mixer instanceof ShortConvolution);
  const delta = mixers.find((mixer) => mixer instanceof GatedDelta);
  if (convolution) return [["shortconv.l_cache", u32(convolution.config.taps)]];
  const mamba = mixers.find((mixer) => mixer instanceof Mamba2);
  if (mamba) return mambaEntries(model, blocks, mamba);
  if (!delta) return [];
  const { taps, keyDim, valueDim, keyHeads, heads } = delta.config;
  if (keyDim !== valueDim)
    throw new UnsupportedError(
      `${model.name}: llama.cpp has heads of keys and values of one size, not ${keyDim} and ${valueDim}`,
    );
  return [
    ["ssm.conv_kernel", u32(taps)],
    ["ssm.state_size", u32(keyDim)],
    ["ssm.group_count", u32(keyHeads)],
    ["ssm.time_step_rank", u32(heads)],
    ["ssm.inner_size", u32(heads * valueDim)],
    ["rope.dimension_sections", { type: "i32", value: ropeSections(model, blocks) }],
    ...layerKinds(mixers.map((mixer) => mixer instanceof GatedDelta)),
  ];
}

/** Metadata about Mamba 2, and whether layers with attention use RoPE. */
function mambaEntries(model: Model, blocks: readonly Block[], { config }: Mamba2): Entries {
  return [
    ["ssm.conv_kernel", u32(config.taps)],
    ["ssm.state_size", u32(config.stateDim)],
    ["ssm.group_count", u32(config.groups)],
    ["ssm.time_step_rank", u32(config.heads)],
    ["ssm.inner_size", u32(config.heads * config.headDim)],
    ["rope.scaling.finetuned", { type: "bool", value: attentionIn(model, blocks).rope !== null }],
  ];
}

/** Number of a head's pairs that RoPE rotates by temporal, vertical and horizontal position, which are equal in text. */
function ropeSections(model: Model, blocks: readonly Block[]): number[] {
  const { mrope_section: said } = (model.checkpoint.config.rope_parameters ?? {}) as Record<string, unknown>;
  if (Array.isArray(said) && said.length === 3 && said.every(Number.isInteger)) return [...said, 0];
  const attention = blocks.map(({ mixer }) => mixer).find((mixer) => mixer instanceof Attention)!;
  const rope = model.decoder.transformer!.ropes[attention.config.rope!]!;
  const pairs = rope.inverseFrequencies.length;
  const third = Math.ceil(pairs / 3);
  const second = Math.min(third, pairs - third);
  return [third, second, pairs - third - second, 0];
}

/** Metadata about which layers are recurrent: all but every n-th, or a list. */
function layerKinds(recurrent: readonly boolean[]): Entries {
  const interval = recurrent.indexOf(false) + 1;
  const isRegular = recurrent.every((is, i) => is === ((i + 1) % interval !== 0));
  return isRegular
    ? [["full_attention_interval", u32(interval)]]
    : [["attention.recurrent_layers", { type: "bool", value: recurrent }]];
}

/** UnsupportedError unless the file, read back, describes the same decoder. */
export async function checkReadBack(
  model: Model,
  config: TransformerConfig,
  entries: ReadonlyMap<string, GgufEntry>,
  tensors: readonly GgufTensorEntry[],
  divisors: Float32Array | null,
): Promise<void> {
  const metadata = new GgufMetadata(model.name, new Map([...entries].map(([key, { value }]) => [key, value])));
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const source = {
    names: [...byName.keys()],
    has: (name: string) => byName.has(name),
    info: (name: string) => ({ dtype: "f32", shape: byName.get(name)!.shape }),
    read: async () => ({ dtype: "f32", shape: [divisors!.length], data: divisors! }),
  } as unknown as GgufTensors;
  const read = buildDecoder(model.name, await ggufConfig(metadata, source)).transformer!;
  const { contextLength } = read;
  const hasLong = Object.values(config.ropes).some(({ long }) => long);
  const found = ofLayers(blocksOf(model, read), contextLength);
  const other = [
    // Placeholder ids of images and sound do not occur in text.
    ...differences(
      { ...config, contextLength, tied: read.tied, layers: [], placeholders: null },
      { ...read, layers: [], placeholders: null },
    ),
    ...(hasLong ? ["ropes"] : []),
    ...ofLayers(blocksOf(model, config), contextLength).flatMap((layer, i) => differences(layer, found[i] ?? {})),
  ];
  if (other.length > 0)
    throw new UnsupportedError(
      `${model.name}: GGUF files of ${architectureOf(metadata).name} cannot say the ${[...new Set(other)].join(", ")} of this model`,
    );
}

/** The components of each layer as one object, for comparison; a window as wide as the context is none. */
function ofLayers(blocks: readonly Block[], contextLength: number): object[] {
  return blocks.map(({ mixer, mlp }) => ({
    ...mixer.config,
    ...(mixer instanceof Attention && mixer.config.window >= contextLength ? { window: 0 } : {}),
    mlp,
  }));
}

/** Names of fields that have another value in `read`. */
function differences(expected: object, read: object): string[] {
  const others = new Map<string, unknown>(Object.entries(read));
  return Object.entries(expected).flatMap(([field, value]) =>
    describe(value) === describe(others.get(field)) ? [] : [field],
  );
}

/**
 * Describes a value with numbers to 5 digits: frequencies are rounded in the file. Fields are omitted that may legitimately
 * differ: long RoPE divisors are read as two equal sets, and one matrix of a checkpoint may be two in files.
 */
function describe(value: unknown): string {
  return JSON.stringify(value, (key, item) => {
    if (key === "long" || key === "fused" || key === "names") return null;
    if (item instanceof Float32Array) return Array.from(item, (number) => number.toPrecision(5));
    return typeof item === "number" ? item.toPrecision(6) : item;
  });
}
