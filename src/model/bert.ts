/**
 * BERT (Devlin et al. 2018), RoBERTa and XLM-R (Liu et al. 2019; Conneau et al. 2019): learned positions, bidirectional
 * attention, post-norm layers. RoBERTa counts positions from the padding's id + 1.
 */
import { UnsupportedError } from "../errors.ts";
import type { Ops } from "../ops/ops.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { WeightLookup, WeightSlot } from "./decoder.ts";
import type { Encoder, EncoderArchitecture, HeadStep, TextInputs } from "./encoder.ts";
import { HEADS_MAX, LAYERS_MAX } from "./transformer-config.ts";

interface BertConfig {
  readonly vocabulary: number;
  readonly positions: number;
  readonly types: number;
  readonly hidden: number;
  readonly intermediate: number;
  readonly heads: number;
  readonly layers: number;
  readonly eps: number;
  readonly gelu: "none" | "tanh";
}

const gelus = {
  gelu: "none",
  gelu_python: "none",
  gelu_new: "tanh",
  gelu_pytorch_tanh: "tanh",
  gelu_fast: "tanh",
} as const;

function readBert(config: ConfigReader): BertConfig {
  config.oneOf("position_embedding_type", ["absolute"], "absolute");
  if (config.boolean("is_decoder", false))
    throw new UnsupportedError(`${config.file}: is_decoder is not supported, only attention in both directions`);
  const hidden = config.size("hidden_size", 768);
  const heads = config.size("num_attention_heads", 12, HEADS_MAX);
  if (hidden % heads !== 0)
    throw new UnsupportedError(
      `${config.file}: expected hidden_size divisible by num_attention_heads but found ${hidden} and ${heads}`,
    );
  return {
    vocabulary: config.size("vocab_size"),
    positions: config.size("max_position_embeddings", 512),
    types: config.size("type_vocab_size", 2),
    hidden,
    intermediate: config.size("intermediate_size", 3072),
    heads,
    layers: config.size("num_hidden_layers", 12, LAYERS_MAX),
    eps: config.positive("layer_norm_eps", 1e-12),
    gelu: gelus[config.oneOf("hidden_act", Object.keys(gelus), "gelu") as keyof typeof gelus],
  };
}

const WORDS = "embeddings.word_embeddings.weight";
const POSITIONS = "embeddings.position_embeddings.weight";
const TYPES = "embeddings.token_type_embeddings.weight";

function slots({ vocabulary, positions, types, hidden, intermediate, layers }: BertConfig): WeightSlot[] {
  const vector = (name: string, ...shape: number[]): WeightSlot => ({ name, shape, role: "vector", tiedTo: null });
  const linear = (module: string, n: number, k: number, delicate?: WeightSlot["delicate"]): WeightSlot[] => [
    { name: `${module}.weight`, shape: [n, k], role: "linear", tiedTo: null, ...(delicate && { delicate }) },
    vector(`${module}.bias`, n),
  ];
  const norm = (module: string) => [vector(`${module}.weight`, hidden), vector(`${module}.bias`, hidden)];
  const layer = (name: string) => [
    ...["query", "key"].flatMap((part) => linear(`${name}.attention.self.${part}`, hidden, hidden)),
    // Measured one by one on all-MiniLM-L6-v2: rounding these layers causes most of the error of embeddings.
    ...linear(`${name}.attention.self.value`, hidden, hidden, "inputs"),
    ...linear(`${name}.attention.output.dense`, hidden, hidden, "weights"),
    ...norm(`${name}.attention.output.LayerNorm`),
    ...linear(`${name}.intermediate.dense`, intermediate, hidden, "weights"),
    ...linear(`${name}.output.dense`, hidden, intermediate),
    ...norm(`${name}.output.LayerNorm`),
  ];
  return [
    { name: WORDS, shape: [vocabulary, hidden], role: "embedding", tiedTo: null },
    // These tables are small and used by every token, so they stay floats.
    vector(POSITIONS, positions, hidden),
    vector(TYPES, types, hidden),
    ...norm("embeddings.LayerNorm"),
    ...Array.from({ length: layers }, (_, i) => layer(`encoder.layer.${i}`)).flat(),
  ];
}

/** Hidden states of post-norm layers: x = norm(x + attention(x)); x = norm(x + mlp(x)). */
function hiddenStates<T>(config: BertConfig, ops: Ops<T>, weights: WeightLookup, inputs: TextInputs<T>): T {
  const { hidden, heads, layers, eps, gelu } = config;
  const { tokens, positions, types, offsets } = inputs;
  const headDim = hidden / heads;
  const linear = (x: T, module: string) => ops.linear(x, weights(`${module}.weight`), weights(`${module}.bias`));
  const norm = (x: T, module: string) => ops.layerNorm(x, weights(`${module}.weight`), weights(`${module}.bias`), eps);
  const kinds = types ?? ops.scale(positions, 0);
  const typed = ops.add(ops.embedding(weights(WORDS), tokens), ops.embedding(weights(TYPES), kinds));
  let x = norm(ops.add(typed, ops.embedding(weights(POSITIONS), positions)), "embeddings.LayerNorm");
  for (let i = 0; i < layers; i++) {
    const name = `encoder.layer.${i}`;
    const [q, k, v] = ["query", "key", "value"].map((part) => linear(x, `${name}.attention.self.${part}`));
    const mixed = ops.attendPacked(q!, k!, v!, { offsets, headDim, scale: headDim ** -0.5 });
    x = norm(ops.add(linear(mixed, `${name}.attention.output.dense`), x), `${name}.attention.output.LayerNorm`);
    const wide = ops.gelu(linear(x, `${name}.intermediate.dense`), gelu);
    x = norm(ops.add(linear(wide, `${name}.output.dense`), x), `${name}.output.LayerNorm`);
  }
  return x;
}

function encoder(architecture: string, config: BertConfig, firstPosition: number): Encoder {
  return {
    architecture,
    vocabularySize: config.vocabulary,
    contextLength: config.positions - firstPosition,
    layers: config.layers,
    slots: slots(config),
    scalable: [],
    transformer: null,
    hidden: config.hidden,
    firstPosition,
    tokenTypes: config.types,
    hiddenStates: (ops, weights, inputs) => hiddenStates(config, ops, weights, inputs),
  };
}

/** A classifier's head: the first token's hidden state, a dense layer with tanh, and the score. */
function classifier(config: ConfigReader, dense: string, score: string): readonly HeadStep[] {
  const size = config.size("hidden_size", 768);
  return [
    { kind: "pool", poolings: ["cls"] },
    { kind: "dense", module: dense, size, hasBias: true, activation: "tanh" },
    { kind: "dense", module: score, size: 1, hasBias: true, activation: null },
  ];
}

export const bert: EncoderArchitecture = {
  name: "BertModel",
  modelType: "bert",
  prefix: "bert.",
  build(config) {
    return encoder(this.name, readBert(config), 0);
  },
  classifier: (config) => classifier(config, "pooler.dense", "classifier"),
};

function buildRoberta(architecture: string, config: ConfigReader): Encoder {
  return encoder(architecture, readBert(config), config.number("pad_token_id", 1) + 1);
}

export const roberta: EncoderArchitecture = {
  name: "RobertaModel",
  modelType: "roberta",
  prefix: "roberta.",
  build(config) {
    return buildRoberta(this.name, config);
  },
  classifier: (config) => classifier(config, "classifier.dense", "classifier.out_proj"),
};

export const xlmRoberta: EncoderArchitecture = {
  name: "XLMRobertaModel",
  modelType: "xlm-roberta",
  prefix: "roberta.",
  build(config) {
    return buildRoberta(this.name, config);
  },
  classifier: (config) => classifier(config, "classifier.dense", "classifier.out_proj"),
};
