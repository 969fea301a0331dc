/** Writes a model as a GGUF file, which llama.cpp and those built on it load. */
import { checkOptions } from "../arguments.ts";
import { encodedBytes, encodeFloats, matrixType } from "../checkpoint/gguf-floats.ts";
import { type AbortOptions, checkModel, type Model } from "../checkpoint/model.ts";
import { holdsFor } from "../checkpoint/weight-origins.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Checkpoint } from "../formats/contract.ts";
import { architectureOf, ggufArchitectures, ggufConfig } from "../formats/gguf/config.ts";
import { type BlockType, blockBytes, blockTypeFor, encodeBlocks } from "../formats/gguf/encode-blocks.ts";
import { superBlockTypes } from "../formats/gguf/encode-super-blocks.ts";
import { GgufMetadata } from "../formats/gguf/metadata.ts";
import { ggufName } from "../formats/gguf/model-tensors.ts";
import type { GgufTensors } from "../formats/gguf/tensors.ts";
import { tokenizerMetadata } from "../formats/gguf/write-tokenizer.ts";
import { type GgufEntry, type GgufTensorEntry, writeGguf } from "../formats/gguf/writer.ts";
import { type HeadRows, pairRows, pairWeights } from "../formats/head-rows.ts";
import { isObject, type JsonObject } from "../formats/json.ts";
import { buildDecoder } from "../model/architectures.ts";
import { Attention, type AttentionConfig } from "../model/attention.ts";
import type { WeightSlot } from "../model/decoder.ts";
import { GatedMlp, type GatedMlpConfig } from "../model/gated-mlp.ts";
import type { TransformerConfig } from "../model/transformer-config.ts";
import { checkOutput } from "../node-file.ts";
import type { AffineFormat } from "../ops/lowering.ts";
import { type FloatWeight, floatWeight, type Weight } from "../ops/weight.ts";
import type { QuantizedWeights } from "../quantized.ts";
import { bytesOf, toFloat32 } from "../tensor.ts";
import { type AddedToken, withConfigTokens } from "../text/added-tokens.ts";
import { generationFacts } from "./generation-facts.ts";

const F32 = 0;
const floatTypes = { f32: F32, f16: 1, bf16: 30 } as const;
/** general.file_type, by the type of most weights. */
const fileTypes = { F32: 0, F16: 1, Q4_0: 2, Q4_1: 3, Q8_0: 7, Q4_K: 14, Q5_K: 16, Q6_K: 18, BF16: 32 } as const;

/** The writable architectures: what a class of transformers is called in files. */
const names: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    Object.entries(ggufArchitectures)
      .filter(([, { isHybrid }]) => !isHybrid)
      .map(([file, { name }]) => [name, file]),
  ),
  MistralForCausalLM: "llama",
};

/** Options of `saveGguf`: progress in bytes, and an abort signal. */
export interface SaveGgufOptions extends AbortOptions {
  /**
   * Type of all matrices, which are quantized from their float values for it: the head, and an embedding that is the
   * head too, become Q6_K all the same, as llama.cpp has it, and rows that are no blocks of 256 Q8_0 or floats. Default: weights are written as
   * they are quantized.
   */
  readonly blockType?: "Q4_K" | "Q5_K" | "Q6_K" | undefined;
  /** Called as the file is written, with bytes done and bytes in all. What it throws ends the work. */
  onProgress?(doneBytes: number, totalBytes: number): void;
}

/**
 * Writes `path`, matrix by matrix: weights of 1 to 4 bits as Q4_0, with zero points as Q4_1, of 5 to 8 bits as Q8_0, others
 * as they are stored, or all of them as one of K-quants where `blockType` says so; norms and biases as F32. UnsupportedError for what the format or llama.cpp has no place for:
 * scales that are not f16, groups that are no multiple of 32, ropes and windows that files of the architecture do not say.
 */
export async function saveGguf(model: Model, path: string, options: SaveGgufOptions = {}): Promise<void> {
  checkModel(model);
  checkOptions(options);
  await checkOutput(path, [model.checkpoint.folder]);
  const config = model.decoder.transformer;
  const architecture = names[model.decoder.architecture];
  if (!config || !architecture)
    throw new UnsupportedError(
      `${model.name}: ${model.decoder.architecture} is not written to GGUF, only ${Object.keys(names).join(", ")}`,
    );
  const { normOffset, interleaved, names: other } = ggufArchitectures[architecture]!;
  const [block] = blocksOf(model, config);
  const { headDim } = block!.attention;
  const form: TensorForm = { normOffset, names: other, heads: interleaved ? { headDim, rotated: headDim } : null };
  checkBlockType(model, options.blockType);
  const tensors = model.decoder.slots
    .filter((slot) => isWritten(model, slot))
    .map((slot) => tensorOf(model, slot, form, options));
  const extra = ropeTensor(model, architecture, config);
  const all = extra ? [...tensors, extra.entry] : tensors;
  const metadata = modelMetadata(model, architecture, config);
  metadata.set("general.file_type", { type: "u32", value: fileTypes[commonType(tensors)] });
  await checkReadBack(model, config, metadata, all, extra?.divisors ?? null);
  for (const [key, entry] of tokenizerOf(model, config)) metadata.set(key, entry);
  await writeGguf(path, metadata, reported(all, options));
}

/** What a layer is made of, as far as files say it. */
interface Block {
  readonly attention: AttentionConfig;
  readonly mlp: GatedMlpConfig;
}

/** UnsupportedError for layers of something else than attention and a gated MLP. */
function blocksOf({ name }: Model, { layers }: TransformerConfig): readonly Block[] {
  return layers.map(({ mixer, mlp }, i) => {
    if (mixer instanceof Attention && mlp instanceof GatedMlp) return { attention: mixer.config, mlp: mlp.config };
    throw new UnsupportedError(
      `${name}: layer ${i} is not written to GGUF, only layers of attention and a gated MLP are`,
    );
  });
}

/** Whether a slot is a tensor of its own: those that are tied are what they are tied to, unless they became something else. */
function isWritten(model: Model, { name, tiedTo }: WeightSlot): boolean {
  if (tiedTo === null || model.slotWeight(name).state.kind === "replaced") return true;
  return model.configOf(name) !== model.configOf(tiedTo);
}

/** The tensors, whose bytes are counted as they are written. */
function reported(tensors: readonly WrittenTensor[], { onProgress, signal }: SaveGgufOptions): GgufTensorEntry[] {
  const total = tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  let done = 0;
  return tensors.map((tensor) => ({
    ...tensor,
    async *parts() {
      for await (const part of tensor.parts()) {
        signal?.throwIfAborted();
        yield part;
        done += part.length;
        onProgress?.(done, total);
      }
    },
  }));
}

/** How files of an architecture differ from checkpoints. */
interface TensorForm {
  readonly normOffset: number;
  readonly names: Readonly<Record<string, string>>;
  /** Heads of queries and keys that files store as pairs where checkpoints do not; null where they are alike. */
  readonly heads: HeadRows | null;
}

interface WrittenTensor extends GgufTensorEntry {
  readonly typeName: keyof typeof fileTypes;
}

/** InvalidArgumentError for a type of all weights where some have a form already, or for no type. */
function checkBlockType(model: Model, blockType: SaveGgufOptions["blockType"]): void {
  if (blockType === undefined) return;
  if (!Object.hasOwn(superBlockTypes, blockType))
    throw new InvalidArgumentError(
      `blockType: expected ${Object.keys(superBlockTypes).join(", ")} but found ${JSON.stringify(blockType)}`,
    );
  const [configured] = model.configs.keys();
  const foreign = model.decoder.slots.find(({ name }) => model.storedFormat(name) !== null)?.name;
  const name = configured ?? foreign;
  if (name !== undefined)
    throw new InvalidArgumentError(
      `blockType: ${blockType} is of float weights, but ${name} ${configured ? "has a configuration" : `is of format ${model.storedFormat(name)}`}; leave one out`,
    );
}

function tensorOf(model: Model, slot: WeightSlot, given: TensorForm, options: SaveGgufOptions): WrittenTensor {
  const form = { ...given, heads: /\.[qk]_proj\./.test(slot.name) ? (slot.pairs ?? given.heads) : null };
  const name = ggufName(slot.name, form.names);
  if (name === null) throw new UnsupportedError(`${slot.name}: files of GGUF have no such tensor`);
  if (options.blockType !== undefined && slot.role !== "vector") {
    const type = matrixType(model, slot, options.blockType);
    const source = floatWeight(model.weight(slot.name, { ...options, float: true }));
    const { heads } = form;
    if (type === null) return floatTensor(name, source, heads);
    const [n, k] = slot.shape as [number, number];
    return {
      ...{ name, shape: [n, k], type: type.id, typeName: type.name, byteLength: encodedBytes(type, n, k) },
      async *parts() {
        for await (const part of partsOf(source, heads)) {
          const values = toFloat32(part);
          yield encodeFloats(slot.name, type, heads === null ? values : pairRows(values, k, heads), k);
        }
      },
    };
  }
  const weight = model.weight(slot.name, { ...options, holds: holdsFor("gguf") });
  if (slot.role === "vector") return vectorTensor(name, floatWeight(weight), form);
  if (weight.format.kind === "float") return floatTensor(name, floatWeight(weight), form.heads);
  const spec = "spec" in weight.format ? (weight.format as AffineFormat).spec : null;
  const type = spec ? blockTypeFor(spec) : `format ${weight.format.kind} is not`;
  if (typeof type === "string")
    throw new UnsupportedError(`${slot.name}: cannot be written as blocks of GGUF: ${type}`);
  return blockTensor(name, weight as Weight<AffineFormat, QuantizedWeights>, type, form.heads);
}

function vectorTensor(name: string, weight: FloatWeight, { normOffset, heads }: TensorForm): WrittenTensor {
  const { shape, load } = weight;
  return {
    ...{ name, shape, type: F32, typeName: "F32", byteLength: 4 * shape[0]! },
    async *parts() {
      const values = toFloat32(await load());
      const turned = heads === null ? values : pairRows(values, 1, heads);
      yield bytesOf(/norm\.weight$/.test(name) ? turned.map((value) => value + normOffset) : turned);
    },
  };
}

function floatTensor(name: string, weight: FloatWeight, heads: HeadRows | null): WrittenTensor {
  const { shape, format } = weight;
  const [n, k] = shape as [number, number];
  const typeName = format.dtype.toUpperCase() as "F32" | "F16" | "BF16";
  return {
    ...{ name, shape, type: floatTypes[format.dtype], typeName },
    byteLength: n * k * (format.dtype === "f32" ? 4 : 2),
    async *parts() {
      for await (const { data } of partsOf(weight, heads))
        yield bytesOf(heads === null ? data : pairRows(data as Float32Array, k, heads));
    },
  };
}

function blockTensor(
  name: string,
  weight: Weight<AffineFormat, QuantizedWeights>,
  type: BlockType,
  heads: HeadRows | null,
): WrittenTensor {
  const { n, k } = weight.format.spec;
  return {
    ...{ name, shape: [n, k], type: type.id, typeName: type.name, byteLength: blockBytes(type, n, k) },
    async *parts() {
      for await (const part of partsOf(weight, heads))
        yield encodeBlocks(type, heads === null ? part : pairWeights(part, heads));
    },
  };
}

/** A weight by rows; whole where heads must not be cut. */
async function* partsOf<D>(weight: Pick<Weight<never, D>, "load" | "loadRows">, heads: HeadRows | null) {
  if (weight.loadRows && heads === null) yield* weight.loadRows();
  else yield await weight.load();
}

function commonType(tensors: readonly WrittenTensor[]): keyof typeof fileTypes {
  const bytes = new Map<keyof typeof fileTypes, number>();
  for (const { typeName, byteLength } of tensors) bytes.set(typeName, (bytes.get(typeName) ?? 0) + byteLength);
  return [...bytes].sort(([, a], [, b]) => b - a)[0]![0];
}

/** A base of rotary frequencies as the config says it, in the style of transformers 4 or 5. */
function baseOf(model: Model): number {
  const { config } = model.checkpoint;
  const parameters = (config.rope_parameters ?? {}) as Record<string, unknown>;
  const nested = (parameters.full_attention ?? parameters) as Record<string, unknown>;
  const base = nested.rope_theta ?? config.rope_theta;
  return typeof base === "number" ? base : model.decoder.architecture === "Gemma3ForCausalLM" ? 1e6 : 10000;
}

/** Divisors of the frequencies base^(-2i/d). */
function divisorsOf(base: number, frequencies: Float32Array): Float32Array {
  const { length } = frequencies;
  return frequencies.map((frequency, i) => base ** (-i / length) / frequency);
}

/** Llama's files hold divisors that metadata cannot say as a tensor. */
function ropeTensor(
  model: Model,
  architecture: string,
  { ropes }: TransformerConfig,
): { entry: WrittenTensor; divisors: Float32Array } | null {
  const rope = ropes.rope;
  if (architecture !== "llama" || !rope || rope.long) return null;
  const divisors = divisorsOf(baseOf(model), rope.inverseFrequencies);
  if (divisors.every((divisor) => Math.abs(divisor - 1) < 1e-5)) return null;
  const entry: WrittenTensor = {
    ...{ name: "rope_freqs.weight", shape: [divisors.length], type: F32, typeName: "F32" },
    byteLength: divisors.byteLength,
    async *parts() {
      yield bytesOf(divisors);
    },
  };
  return { entry, divisors };
}

/** What a file says of the model; a window as wide as the context is none. */
function modelMetadata(model: Model, architecture: string, config: TransformerConfig): Map<string, GgufEntry> {
  const blocks = blocksOf(model, config);
  const window = Math.max(...blocks.map(({ attention }) => attention.window));
  const full = architecture === "llama" && window > 0;
  if (architecture === "exaone4" && window > 0)
    throw new UnsupportedError(
      `${model.name}: llama.cpp does not see windows of EXAONE 4.0 but in models of 64 layers`,
    );
  const { hidden, eps, logitSoftcap } = config;
  const { attention, mlp } = blocks[0]!;
  const { heads, kvHeads, headDim, softcap } = attention;
  const rope = config.ropes.rope ?? config.ropes.full_attention!;
  const { embedding, residual, logits } = config.scales;
  const u32 = (value: number): GgufEntry => ({ type: "u32", value });
  const f32 = (value: number): GgufEntry => ({ type: "f32", value });
  const entries: [string, GgufEntry][] = [
    ["context_length", u32(full ? Math.min(window, config.contextLength) : config.contextLength)],
    ["embedding_length", u32(hidden)],
    ["block_count", u32(config.layers.length)],
    ["feed_forward_length", u32(mlp.intermediate)],
    ["vocab_size", u32(config.vocabulary)],
    ["attention.head_count", u32(heads)],
    ["attention.head_count_kv", u32(kvHeads)],
    ["attention.key_length", u32(headDim)],
    ["attention.value_length", u32(headDim)],
    ["attention.layer_norm_rms_epsilon", f32(eps)],
    ["rope.dimension_count", u32(2 * rope.inverseFrequencies.length)],
    ["rope.freq_base", f32(baseOf(model))],
    ...(window > 0 && !full ? [["attention.sliding_window", u32(window)] as [string, GgufEntry]] : []),
    ...(architecture === "granite"
      ? ([
          ["embedding_scale", f32(embedding)],
          ["residual_scale", f32(residual)],
          ["logit_scale", f32(1 / logits)],
          ["attention.scale", f32(attention.scale)],
        ] as [string, GgufEntry][])
      : []),
    ...(softcap > 0 ? [["attn_logit_softcapping", f32(softcap)] as [string, GgufEntry]] : []),
    ...(logitSoftcap > 0 ? [["final_logit_softcapping", f32(logitSoftcap)] as [string, GgufEntry]] : []),
  ];
  return new Map<string, GgufEntry>([
    ["general.architecture", { type: "string", value: architecture }],
    ["general.name", { type: "string", value: model.name }],
    ["general.quantization_version", u32(2)],
    ...entries.map(([key, entry]): [string, GgufEntry] => [`${architecture}.${key}`, entry]),
  ]);
}

/** UnsupportedError unless a reader of the file makes the same decoder of it. */
async function checkReadBack(
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
    ...differences({ ...config, contextLength, tied: read.tied, layers: [] }, { ...read, layers: [] }),
    ...(hasLong ? ["ropes"] : []),
    ...ofLayers(blocksOf(model, config), contextLength).flatMap((layer, i) => differences(layer, found[i] ?? {})),
  ];
  if (other.length > 0)
    throw new UnsupportedError(
      `${model.name}: GGUF files of ${architectureOf(metadata).name} cannot say the ${[...new Set(other)].join(", ")} of this model`,
    );
}

/** What layers are made of, each in one object; windows as wide as the context are none. */
function ofLayers(blocks: readonly Block[], contextLength: number): object[] {
  return blocks.map(({ attention, mlp }) => ({
    ...attention,
    window: attention.window >= contextLength ? 0 : attention.window,
    mlp,
  }));
}

/** Names of fields with another value in `read`. */
function differences(expected: object, read: object): string[] {
  const others = new Map<string, unknown>(Object.entries(read));
  return Object.entries(expected).flatMap(([field, value]) =>
    describe(value) === describe(others.get(field)) ? [] : [field],
  );
}

/** Numbers to some digits: frequencies are rounded on their way through the file. Divisors are read as two equal sets. */
function describe(value: unknown): string {
  return JSON.stringify(value, (key, item) => {
    if (key === "long") return null;
    if (item instanceof Float32Array) return Array.from(item, (number) => number.toPrecision(5));
    return typeof item === "number" ? item.toPrecision(6) : item;
  });
}

function tokenizerOf(model: Model, config: TransformerConfig): Map<string, GgufEntry> {
  const { checkpoint } = model;
  const { bosId, eosIds } = generationFacts(checkpoint);
  if (!checkpoint.tokenizerJson) return new Map();
  const tokenizer = checkpoint.tokenizerJson.value;
  return tokenizerMetadata({
    file: checkpoint.folder,
    modelName: model.name,
    tokenizer: { ...tokenizer, added_tokens: addedTokens(checkpoint, tokenizer, config.vocabulary) },
    chatTemplate: checkpoint.chatTemplate,
    ...{ bosId, eosId: eosIds[0] ?? null, vocabularySize: config.vocabulary },
  });
}

/** The tokenizer's added tokens, and those that only tokenizer_config.json has, as far as the model has a place for them. */
function addedTokens({ tokenizerConfig }: Checkpoint, tokenizer: JsonObject, vocabulary: number): AddedToken[] {
  const { added_tokens, model } = tokenizer;
  const own = (Array.isArray(added_tokens) ? added_tokens.filter(isObject) : []) as unknown as AddedToken[];
  const known = new Set(own.map(({ id }) => id));
  const ids = () =>
    new Map(isObject(model) && isObject(model.vocab) ? (Object.entries(model.vocab) as [string, number][]) : []);
  return withConfigTokens(own, ids, tokenizerConfig?.value ?? {}).filter(({ id }) => known.has(id) || id < vocabulary);
}
