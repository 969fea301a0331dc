/** Writes a model as a GGUF file, for llama.cpp and what is built on it. */
import { checkOptions, shown } from "../arguments.ts";
import { type AbortOptions, checkModel, type Model } from "../checkpoint/model.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Checkpoint } from "../formats/contract.ts";
import { ggufArchitectureOf, ggufArchitectures } from "../formats/gguf/architectures.ts";
import { superBlockTypes } from "../formats/gguf/encode-super-blocks.ts";
import { baseOf, checkReadBack, modelMetadata } from "../formats/gguf/write/metadata.ts";
import { commonType, F32, fileTypes, tensorsOf, type WrittenTensor } from "../formats/gguf/write/tensors.ts";
import { tokenizerMetadata } from "../formats/gguf/write-tokenizer.ts";
import { type GgufEntry, type GgufTensorEntry, writeGguf } from "../formats/gguf/writer.ts";
import { isObject, type JsonObject } from "../formats/json.ts";
import { Experts } from "../model/experts.ts";
import type { TransformerConfig } from "../model/transformer-config.ts";
import { checkOutput } from "../node-file.ts";
import { bytesOf } from "../tensor.ts";
import { type AddedToken, withConfigTokens } from "../text/added-tokens.ts";
import { generationFacts } from "./generation-facts.ts";

/** Classes of transformers whose models can be written, for messages. */
const written = [
  ...Object.values(ggufArchitectures).map(({ name }) => name),
  "MistralForCausalLM",
  "MixtralForCausalLM",
];

/** Options of `saveGguf`: progress in bytes, and an abort signal. */
export interface SaveGgufOptions extends AbortOptions {
  /**
   * Quantizes all matrices from their float values to this type, with llama.cpp's exceptions: the head, or an embedding
   * that is the head too, becomes Q6_K, and rows that are no multiple of 256 become Q8_0 or floats. Default: each weight is
   * written as it is quantized.
   */
  readonly blockType?: "Q4_K" | "Q5_K" | "Q6_K" | undefined;
  /** Called as the file is written, with bytes done and bytes in all. An error that it throws ends the work. */
  onProgress?(doneBytes: number, totalBytes: number): void;
}

/**
 * Writes a GGUF file to `path`, matrix by matrix: integers of up to 4 bits as Q4_0, of 5 as Q5_0, of up to 8 as Q8_0 (a bit
 * more where they have zero points), others as they are stored, or all matrices as the K-quant `blockType`; norms and
 * biases as F32. UnsupportedError for what GGUF or llama.cpp cannot express: scales that are not f16, groups that are no
 * multiple of 32, and RoPE or window settings that files of the architecture do not have.
 */
export async function saveGguf(model: Model, path: string, options: SaveGgufOptions = {}): Promise<void> {
  checkModel(model);
  checkOptions(options);
  await checkOutput(path, [model.checkpoint.folder]);
  const config = model.decoder.transformer;
  const hasExperts = config?.layers.some(({ mlp }) => mlp instanceof Experts) ?? false;
  const found = ggufArchitectureOf(model.decoder.architecture, hasExperts);
  if (!config || !found)
    throw new UnsupportedError(
      `${model.name}: ${model.decoder.architecture} is not written to GGUF, only ${written.join(", ")}`,
    );
  const { key: architecture, files } = found;
  checkBlockType(model, options.blockType);
  const tensors = tensorsOf(model, files, config, options);
  const extra = ropeTensor(model, architecture, config);
  const all = extra ? [...tensors, extra.entry] : tensors;
  const metadata = modelMetadata(model, architecture, config);
  metadata.set("general.file_type", { type: "u32", value: fileTypes[commonType(tensors)] });
  await checkReadBack(model, config, metadata, all, extra?.divisors ?? null);
  for (const [key, entry] of tokenizerOf(model, config)) metadata.set(key, entry);
  await writeGguf(path, metadata, reported(all, options));
}

/** The tensors, wrapped so that progress is told as they are written. */
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

/** InvalidArgumentError for an unknown `blockType`, or one for a model with weights that are kept as stored. */
function checkBlockType(model: Model, blockType: SaveGgufOptions["blockType"]): void {
  if (blockType === undefined) return;
  if (typeof blockType !== "string" || !Object.hasOwn(superBlockTypes, blockType))
    throw new InvalidArgumentError(
      `blockType: expected ${Object.keys(superBlockTypes).join(", ")} but found ${shown(blockType)}`,
    );
  const [configured] = model.configs.keys();
  const foreign = model.decoder.slots.find(({ name }) => model.storedFormat(name) !== null)?.name;
  const name = configured ?? foreign;
  if (name !== undefined)
    throw new InvalidArgumentError(
      `blockType: ${blockType} is of float weights, but ${name} ${configured ? "has a configuration" : `is of format ${model.storedFormat(name)}`}; leave one out`,
    );
}

/** Divisors d_i of the RoPE frequencies: frequency_i = base^(-i / length) / d_i. */
function divisorsOf(base: number, frequencies: Float32Array): Float32Array {
  const { length } = frequencies;
  return frequencies.map((frequency, i) => base ** (-i / length) / frequency);
}

/** Frequency divisors of Llama 3's scaled RoPE; null for plain RoPE. */
function llamaDivisors(model: Model, architecture: string, { rope }: TransformerConfig["ropes"]): Float32Array | null {
  if (architecture !== "llama" || !rope || rope.long) return null;
  const divisors = divisorsOf(baseOf(model), rope.inverseFrequencies);
  return divisors.every((divisor) => Math.abs(divisor - 1) < 1e-5) ? null : divisors;
}

/** Gemma 4's full-attention layers rotate a part of each head. GGUF says so by dividing the other frequencies by 1e30. */
function partDivisors(ropes: TransformerConfig["ropes"]): Float32Array | null {
  const [, full] = Object.entries(ropes).find(([name]) => name.startsWith("full_attention")) ?? [];
  return full ? full.inverseFrequencies.map((frequency) => (frequency === 0 ? 1e30 : 1)) : null;
}

/** The tensor of frequency divisors that Llama's and Gemma 4's files hold where metadata cannot say them. */
function ropeTensor(
  model: Model,
  architecture: string,
  { ropes }: TransformerConfig,
): { entry: WrittenTensor; divisors: Float32Array } | null {
  const divisors = architecture === "gemma4" ? partDivisors(ropes) : llamaDivisors(model, architecture, ropes);
  if (divisors === null) return null;
  const entry: WrittenTensor = {
    ...{ name: "rope_freqs.weight", shape: [divisors.length], type: F32, typeName: "F32" },
    byteLength: divisors.byteLength,
    async *parts() {
      yield bytesOf(divisors);
    },
  };
  return { entry, divisors };
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

/**
 * The tokenizer's added tokens, and those that only tokenizer_config.json has, as far as their ids are within the model's
 * vocabulary.
 */
function addedTokens({ tokenizerConfig }: Checkpoint, tokenizer: JsonObject, vocabulary: number): AddedToken[] {
  const { added_tokens, model } = tokenizer;
  const own = (Array.isArray(added_tokens) ? added_tokens.filter(isObject) : []) as unknown as AddedToken[];
  const known = new Set(own.map(({ id }) => id));
  const ids = new Map(
    isObject(model) && isObject(model.vocab) ? (Object.entries(model.vocab) as [string, number][]) : [],
  );
  let limit = 0;
  for (const id of ids.values()) limit = Math.max(limit, id + 1);
  return withConfigTokens(own, { ids, limit }, tokenizerConfig?.value ?? {}).filter(
    ({ id }) => known.has(id) || id < vocabulary,
  );
}
