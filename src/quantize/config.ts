/** Configurations, named as TorchAO's: the scheme of a module's weights and the kind of operator that uses them. */
import { checkOptions, shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { ActivationKind } from "../quantized.ts";
import { checkScheme, needsActivations, type Scheme } from "./scheme.ts";

/** A frozen data object, the same in memory and in a recipe file. */
export interface QuantizationConfig extends Scheme {
  /** What is quantized, and how: the name of the config that `quantize` follows. */
  readonly kind: ConfigKind;
}

/** Fields of a scheme to set; one absent or undefined takes its default. */
export type ConfigOptions = { readonly [Field in keyof Scheme]?: Scheme[Field] | undefined };

const embeddingDefaults: Scheme = {
  bits: 4,
  groupSize: 32,
  mappingType: "asymmetric",
  algorithm: "affine",
  scaleDType: "f32",
};

const defaults = {
  int8DynamicActivationIntxWeight: {
    bits: 8,
    groupSize: 32,
    mappingType: "symmetric",
    algorithm: "affine",
    scaleDType: "f32",
    activationGranularity: "per_block",
  },
  intxWeightOnly: {
    bits: 8,
    groupSize: "axis",
    mappingType: "symmetric",
    algorithm: "affine",
    scaleDType: "f32",
  },
  embedding: embeddingDefaults,
  sharedEmbedding: { ...embeddingDefaults, activationGranularity: "per_block" },
} as const satisfies Record<string, Scheme>;

export type ConfigKind = keyof typeof defaults;
export const configKinds: readonly ConfigKind[] = Object.keys(defaults) as ConfigKind[];

/** Throws InvalidArgumentError for values that are no configuration, such as the name of a mode. */
export function checkConfig(name: string, config: Partial<QuantizationConfig> | null | undefined): void {
  if (!configKinds.some((kind) => kind === config?.kind))
    throw new InvalidArgumentError(
      `${name}: expected configurations, as ${configKinds.join(", ")} make them, but found ${shown(config)}`,
    );
}

/** A frozen configuration of any kind; InvalidArgumentError for a field that is unknown or out of range. */
export function makeConfig(kind: ConfigKind, options: ConfigOptions): QuantizationConfig {
  checkOptions(options);
  const fields = [...Object.keys(defaults[kind]), "ranges"];
  for (const field of Object.keys(options))
    if (!fields.includes(field))
      throw new InvalidArgumentError(`${kind}: unknown field "${field}"; known are ${fields.join(", ")}`);
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const config: QuantizationConfig = { kind, ...defaults[kind], ...given };
  checkScheme(kind, config);
  const isHead = kind === "sharedEmbedding" && (config.algorithm === "imatrix" || config.algorithm === "gptq");
  if ((kind === "embedding" || kind === "sharedEmbedding") && needsActivations(config.algorithm) && !isHead)
    throw new InvalidArgumentError(
      `${kind}: algorithm "${config.algorithm}" looks at what goes into linear layers; an embedding has "mse", "affine" or "hqq_scale_only", a shared one "imatrix" and "gptq", too`,
    );
  return Object.freeze(config);
}

/** Whether and how activations are quantized for weights of a configuration. */
export function activationsOf({ kind, activationGranularity }: QuantizationConfig): ActivationKind {
  if (kind === "intxWeightOnly") return "float";
  return activationGranularity === "per_token" ? "int8_per_token" : "int8";
}

/**
 * Linear layers with weights of 1 to 8 bits and activations quantized to 8 bits as they come, a scale for each block of 32.
 * With activationGranularity "per_token", they have one scale and zero point a row, as in TorchAO's
 * Int8DynamicActivationIntxWeightConfig. With scaleDType "f16", a 4-bit weight in groups of 32 takes 4.5 bits instead of 5.
 * Defaults: 8 bits, groups of 32, symmetric, affine, scales of f32. InvalidArgumentError for a wrong field.
 */
export function int8DynamicActivationIntxWeight(options: ConfigOptions = {}): QuantizationConfig {
  return makeConfig("int8DynamicActivationIntxWeight", options);
}

/**
 * Layers with weights of 1 to 8 bits and float activations: TorchAO's IntxWeightOnlyConfig. Defaults: 8 bits, one scale a
 * row ("axis"), symmetric, affine, scales of f32.
 * InvalidArgumentError for a wrong field.
 */
export function intxWeightOnly(options: ConfigOptions = {}): QuantizationConfig {
  return makeConfig("intxWeightOnly", options);
}

/**
 * An embedding table of its own: TorchAO's EmbeddingQuantizer, asymmetric with 4 bits in groups of 32 by
 * default.
 * InvalidArgumentError for a wrong field.
 */
export function embedding(options: ConfigOptions = {}): QuantizationConfig {
  return makeConfig("embedding", options);
}

/**
 * An embedding table that is the output layer's weight too: TorchAO's TiedEmbeddingQuantizer, asymmetric with
 * 4 bits in groups of 32 by default. InvalidArgumentError for a wrong field.
 */
export function sharedEmbedding(options: ConfigOptions = {}): QuantizationConfig {
  return makeConfig("sharedEmbedding", options);
}
