/** Finds the network of a checkpoint: a decoder, or an encoder, as sentence-transformers' files say. */
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import type { Checkpoint } from "../formats/contract.ts";
import { describe, isObject } from "../formats/json.ts";
import { renamedTensors } from "../formats/renamed-tensors.ts";
import type { SentenceModule, SentenceModules } from "../formats/sentence-modules.ts";
import { architectures, buildDecoder } from "../model/architectures.ts";
import type { Network } from "../model/decoder.ts";
import { type HeadActivation, type HeadStep, textNetwork } from "../model/encoder.ts";
import { architectureName, buildEncoder, decoderAsEncoder, encoders } from "../model/encoders.ts";
import { isPooling, type Pooling, poolings } from "../pooling.ts";
import { scoreActivation } from "./assets.ts";
import { withModelPrefix } from "./wrappers/base-names.ts";
import { decoderOf, withNetworkConfig, withNetworkRows } from "./wrappers/order.ts";

/** The network, and the checkpoint with tensors under the names and with the order of rows that the network expects. */
export async function networkOf(opened: Checkpoint): Promise<[Checkpoint, Network]> {
  const [named, network] = await namedNetwork(withNetworkConfig(opened));
  return [withNetworkRows(named, network), network];
}

async function namedNetwork(checkpoint: Checkpoint): Promise<readonly [Checkpoint, Network]> {
  const { configFile, config, modules } = checkpoint;
  const score = modules?.modules.find(({ kind }) => kind === "LogitScore");
  if (modules && score) return generativeRerankerOf(checkpoint, modules, score);
  const isClassifier = architectureName(config).endsWith(CLASSIFIER);
  // For a cross-encoder, sentence-transformers lists only the transformer.
  if (modules && !(isClassifier && modules.modules.length === 0))
    return embedderOf(checkpoint, modules.modules.flatMap(stepsOf));
  if (architectureName(config).endsWith("Model") && buildEncoder(configFile, config)) {
    const note = `${configFile}: no modules.json says what becomes of hidden states; embeddings are their mean`;
    return embedderOf({ ...checkpoint, notes: [...checkpoint.notes, note] }, [meanOfRows]);
  }
  if (isClassifier) return rerankerOf(checkpoint);
  return decoderOf(checkpoint);
}

function embedderOf(checkpoint: Checkpoint, steps: readonly HeadStep[]): [Checkpoint, Network] {
  const { configFile, config } = checkpoint;
  if (steps[0]?.kind !== "pool")
    throw new UnsupportedError(`${configFile}: expected Pooling behind the transformer in modules.json`);
  const built = buildEncoder(configFile, config);
  if (built) return [withoutPrefix(checkpoint, built.prefix), textNetwork("embed", built.encoder, steps)];
  const encoder = decoderAsEncoder(configFile, config);
  const network = encoder && textNetwork("embed", encoder, steps);
  if (network) return [withModelPrefix(checkpoint, network), network];
  const known = [...encoders, ...architectures].map(({ name }) => name).join(", ");
  throw new UnsupportedError(
    `${configFile}: architecture ${architectureName(config)} is not supported for embeddings, only ${known}`,
  );
}

/** Ending of class names of classifiers. */
const CLASSIFIER = "ForSequenceClassification";

/** A cross-encoder: a classifier of one label, which scores pairs. UnsupportedError for several labels. */
function rerankerOf(checkpoint: Checkpoint): [Checkpoint, Network] {
  const { configFile, config, modules } = checkpoint;
  const built = buildEncoder(configFile, config);
  if (!built) {
    const known = encoders.map(({ name }) => name.replace(/Model$/, CLASSIFIER)).join(", ");
    throw new UnsupportedError(
      `${configFile}: architecture ${architectureName(config)} is not supported, only ${known}`,
    );
  }
  const labels = labelCount(config);
  if (labels !== 1)
    throw new UnsupportedError(
      `${configFile}: expected a classifier of one label, which is a score, but found ${labels}`,
    );
  checkActivation(configFile, modules?.activation ?? scoreActivation(config));
  return [withoutPrefix(checkpoint, built.prefix), textNetwork("rank", built.encoder, built.classifier)];
}

function checkActivation(file: string, activation: string | null): void {
  if (activation !== null && !/\b(Sigmoid|Identity)$/.test(activation))
    throw new UnsupportedError(`${file}: scores by ${activation} are not supported, only Sigmoid and Identity`);
}

/**
 * A language model as reranker (Qwen3-Reranker): the score is the logit of a token such as "yes" after the pair, minus that
 * of another.
 */
function generativeRerankerOf(
  checkpoint: Checkpoint,
  { modules, activation }: SentenceModules,
  { config: fields, configFile: file }: SentenceModule,
): [Checkpoint, Network] {
  const { configFile, config } = checkpoint;
  if (modules.length !== 1)
    throw new UnsupportedError(`${file}: expected nothing but LogitScore behind the transformer in modules.json`);
  checkActivation(file, activation ?? scoreActivation(config));
  const encoder = decoderAsEncoder(configFile, config);
  const head = encoder && buildDecoder(configFile, config).slots.find(({ name }) => name === "lm_head.weight");
  if (!head)
    throw new UnsupportedError(
      `${configFile}: architecture ${architectureName(config)} is not supported with LogitScore, only ${architectures.map(({ name }) => name).join(", ")}`,
    );
  const token = (field: string) => {
    const id = fields[field];
    if (!Number.isInteger(id) || (id as number) < 0 || (id as number) >= encoder.vocabularySize)
      throw new InvalidFileError(
        file,
        `${field}: expected a token id from 0 to ${encoder.vocabularySize - 1} but found ${describe(id)}`,
      );
    return id as number;
  };
  const falseToken = (fields.false_token_id ?? null) === null ? null : token("false_token_id");
  const score: HeadStep = { kind: "tokenScore", head, trueToken: token("true_token_id"), falseToken };
  const network = textNetwork("rank", encoder, [{ kind: "pool", poolings: ["lasttoken"] }, score]);
  return [withModelPrefix(checkpoint, network), network];
}

/**
 * Number of labels of a classifier. Without a number, transformers counts the names of labels, and takes 2 without names.
 */
function labelCount({ num_labels: count, id2label: names }: Checkpoint["config"]): number {
  if (typeof count === "number") return count;
  return isObject(names) ? Object.keys(names).length : 2;
}

/** sentence-transformers' default head. */
const meanOfRows: HeadStep = { kind: "pool", poolings: ["mean"] };

/**
 * The checkpoint with the encoder's own names: without the prefix of classes with a head, and with today's names of norms.
 */
function withoutPrefix(checkpoint: Checkpoint, prefix: string): Checkpoint {
  const { tensors } = checkpoint;
  const shown = (name: string) =>
    (name.startsWith(prefix) ? name.slice(prefix.length) : name)
      .replace(/LayerNorm\.gamma$/, "LayerNorm.weight")
      .replace(/LayerNorm\.beta$/, "LayerNorm.bias");
  return tensors.names.every((name) => shown(name) === name)
    ? checkpoint
    : { ...checkpoint, tensors: renamedTensors(tensors, shown) };
}

/** Head steps of a sentence-transformers module. UnsupportedError for an unknown module. */
function stepsOf(module: SentenceModule): HeadStep[] {
  switch (module.kind) {
    case "Pooling":
      return [{ kind: "pool", poolings: poolingsOf(module) }];
    case "Dense":
      return [denseOf(module)];
    case "Normalize":
      return [{ kind: "normalize" }];
    case "Dropout":
      return [];
    default:
      throw new UnsupportedError(
        `${module.configFile}: module ${module.kind} is not supported, only Pooling, Dense, Normalize, Dropout and LogitScore`,
      );
  }
}

/** Pooling fields of older files, one boolean for each mode, in the order in which results are concatenated. */
const olderModes = [
  ["pooling_mode_cls_token", "cls"],
  ["pooling_mode_max_tokens", "max"],
  ["pooling_mode_mean_tokens", "mean"],
  ["pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"],
  ["pooling_mode_weightedmean_tokens", "weightedmean"],
  ["pooling_mode_lasttoken", "lasttoken"],
] as const;

function poolingsOf({ config, configFile }: SentenceModule): Pooling[] {
  if (config.include_prompt === false)
    throw new UnsupportedError(`${configFile}: include_prompt false is not supported, only pooling over whole texts`);
  const mode = config.pooling_mode;
  const names =
    mode === undefined
      ? olderModes.filter(([field]) => config[field] === true).map(([, name]) => name)
      : Array.isArray(mode)
        ? mode
        : [mode];
  const wrong = names.find((name) => typeof name !== "string" || !isPooling(name));
  if (wrong !== undefined || names.length === 0)
    throw new UnsupportedError(
      `${configFile}: pooling_mode ${describe(wrong)} is not supported, only ${poolings.join(", ")}`,
    );
  return names as Pooling[];
}

/** Activations by the last part of their names in PyTorch. */
const activations: Readonly<Record<string, HeadActivation | null>> = {
  Identity: null,
  Tanh: "tanh",
  GELU: "gelu",
  ReLU: "relu",
};

function denseOf({ config, configFile, path }: SentenceModule): HeadStep {
  const { out_features: size, bias = true, activation_function: activation = "Tanh" } = config;
  if (!Number.isInteger(size) || (size as number) < 1)
    throw new InvalidFileError(configFile, `out_features: expected a positive integer but found ${describe(size)}`);
  const name = String(activation).split(".").at(-1)!;
  if (!Object.hasOwn(activations, name))
    throw new UnsupportedError(
      `${configFile}: activation_function ${describe(activation)} is not supported, only ${Object.keys(activations).join(", ")}`,
    );
  return {
    kind: "dense",
    module: `${path}.linear`,
    size: size as number,
    hasBias: bias !== false,
    activation: activations[name]!,
  };
}
