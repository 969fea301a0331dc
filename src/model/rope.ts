/** RoPE (rotary position embedding): inverse frequencies from a config in the form of transformers 4 or 5. */
import { InvalidFileError } from "../errors.ts";
import type { ConfigReader } from "./config-reader.ts";

export interface RopeConfig {
  /** Inverse frequencies, in radians a position: [rotated elements of a head / 2]. */
  readonly inverseFrequencies: Float32Array;
  /** Factor on cosines and sines. */
  readonly scale: number;
  /** Frequencies that replace the others in sequences of more than `from` tokens; null for none. */
  readonly long: { readonly inverseFrequencies: Float32Array; readonly from: number } | null;
}

export interface RopeOptions {
  readonly headDim: number;
  /** Base of the frequencies where the config says none. Default 10000. */
  readonly theta?: number;
  /** Whether `partial_rotary_factor` applies to every RoPE type: the architecture rotates only the first part of a head. */
  readonly partial?: boolean;
}

/**
 * The RoPEs of windowed and full layers, in the form of transformers 5, else 4, which takes precedence for full layers.
 * `original_max_position_embeddings` applies in their own objects only. `full` and `sliding`: default bases.
 */
export function ropesByType(
  given: ConfigReader,
  {
    headDim,
    full: theta,
    sliding: local,
  }: { readonly headDim: number; readonly full: number; readonly sliding: number },
): Record<"sliding_attention" | "full_attention", RopeConfig> {
  const config = given.without("original_max_position_embeddings");
  const parameters = config.object("rope_parameters");
  const full = parameters.object("full_attention");
  const old = config.object("rope_scaling");
  const merged = ropeField(config) === "rope_scaling" ? old.with({ ...full.fields, ...old.fields }) : full;
  const sliding = parameters.object("sliding_attention");
  return {
    full_attention: ropeOf(config, merged, { headDim, theta }),
    sliding_attention: ropeOf(config.without("rope_theta"), sliding, { headDim, theta: local }),
  };
}

/** Inputs of a kind of RoPE scaling. */
interface Scaling {
  readonly parameters: ConfigReader;
  readonly headDim: number;
  /** `partial_rotary_factor`, whether the architecture or only the type uses it. */
  readonly rotaryFactor: number;
  /** Rotated elements of a head (one more, when it is odd). */
  readonly dim: number;
  readonly theta: number;
  /** Longest sequence of the model; then, the longest before RoPE was scaled. */
  readonly contextLength: number;
  readonly originalLength: number;
}

type RopeKind = (scaling: Scaling) => RopeConfig;

/**
 * Reads `rope_scaling` (transformers 4), else `rope_parameters` (5); `rope_theta`, `partial_rotary_factor` and
 * `original_max_position_embeddings` are in these objects or beside them. UnsupportedError for an unknown type.
 */
export function ropeConfig(config: ConfigReader, options: RopeOptions): RopeConfig {
  return ropeOf(config, config.object(ropeField(config)), options);
}

/** The field with the RoPE settings; an empty `rope_scaling` counts as absent. */
export function ropeField(config: ConfigReader): "rope_scaling" | "rope_parameters" {
  return Object.keys(config.object("rope_scaling").fields).length > 0 ? "rope_scaling" : "rope_parameters";
}

/** RoPE settings from `parameters`, which may be those of one layer type. */
export function ropeOf(config: ConfigReader, parameters: ConfigReader, options: RopeOptions): RopeConfig {
  const { headDim, theta = 10000, partial = false } = options;
  const type = parameters.oneOf(parameters.has("rope_type") ? "rope_type" : "type", Object.keys(kinds), "default");
  const either = (name: string) => (parameters.has(name) ? parameters : config);
  const rotaryFactor = either("partial_rotary_factor").positive("partial_rotary_factor", 1);
  const dim = partial ? Math.floor(headDim * rotaryFactor) : headDim;
  const contextLength = config.size("max_position_embeddings", 2048);
  const original = "original_max_position_embeddings";
  if (dim < 1 || 2 * Math.ceil(dim / 2) > headDim)
    throw new InvalidFileError(config.file, `partial_rotary_factor: expected a part of ${headDim} but found ${dim}`);
  return kinds[type]!({
    parameters,
    headDim,
    rotaryFactor,
    dim,
    theta: either("rope_theta").positive("rope_theta", theta),
    contextLength,
    originalLength: config.has(original) ? config.size(original) : parameters.size(original, contextLength),
  });
}

/** Frequencies theta^(-2i / dim), each changed by `scaled`. */
function frequencies({ dim, theta }: Scaling, scaled: (frequency: number, i: number) => number): Float32Array {
  return Float32Array.from({ length: Math.ceil(dim / 2) }, (_, i) => scaled(Math.fround(theta ** ((-2 * i) / dim)), i));
}

const unscaled: RopeKind = (scaling) => ({
  inverseFrequencies: frequencies(scaling, (frequency) => frequency),
  scale: 1,
  long: null,
});

const linear: RopeKind = (scaling) => {
  const factor = scaling.parameters.positive("factor");
  return { ...unscaled(scaling), inverseFrequencies: frequencies(scaling, (frequency) => frequency / factor) };
};

/** Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, with a smooth ramp between. */
const llama3: RopeKind = (scaling) => {
  const { parameters, originalLength } = scaling;
  const factor = parameters.positive("factor");
  const low = parameters.positive("low_freq_factor");
  const high = parameters.positive("high_freq_factor");
  const scaled = (frequency: number) => {
    const wavelength = (2 * Math.PI) / frequency;
    if (wavelength < originalLength / high) return frequency;
    if (wavelength > originalLength / low) return frequency / factor;
    const smooth = (originalLength / wavelength - low) / (high - low);
    return (1 - smooth) * (frequency / factor) + smooth * frequency;
  };
  return { ...unscaled(scaling), inverseFrequencies: frequencies(scaling, scaled) };
};

/** YaRN (Peng et al. 2023): a ramp over the dimensions from kept to stretched frequencies. */
const yarn: RopeKind = (scaling) => {
  const { parameters, dim, theta, contextLength, originalLength } = scaling;
  const factor = parameters.positive("factor", contextLength / originalLength);
  const dimensionOf = (rotations: number) =>
    (dim * Math.log(originalLength / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
  const first = dimensionOf(parameters.notNegative("beta_fast", 0) || 32);
  const last = dimensionOf(parameters.notNegative("beta_slow", 0) || 1);
  const whole = parameters.boolean("truncate", true);
  const low = Math.max(whole ? Math.floor(first) : first, 0);
  const high = Math.min(whole ? Math.ceil(last) : last, dim - 1);
  const width = high === low ? 0.001 : high - low;
  const scaled = (frequency: number, i: number) => {
    const stretched = Math.min(1, Math.max(0, (i - low) / width));
    return (frequency / factor) * stretched + frequency * (1 - stretched);
  };
  return { inverseFrequencies: frequencies(scaling, scaled), scale: yarnScale(parameters, factor), long: null };
};

function yarnScale(parameters: ConfigReader, factor: number): number {
  const scaleOf = (m: number) => (factor <= 1 ? 1 : 0.1 * m * Math.log(factor) + 1);
  const m = parameters.number("mscale", 0);
  const all = parameters.number("mscale_all_dim", 0);
  return parameters.number("attention_factor", m && all ? scaleOf(m) / scaleOf(all) : scaleOf(1));
}

/** LongRoPE (Ding et al. 2024): a divisor for each frequency, one set for short sequences and one for long ones. */
const longrope: RopeKind = (scaling) => {
  const { parameters, dim, contextLength, originalLength } = scaling;
  const dividedBy = (name: string) => {
    const divisors = parameters.numbers(name, Math.ceil(dim / 2));
    if (divisors.some((divisor) => divisor <= 0))
      throw new InvalidFileError(parameters.file, `${name}: expected positive numbers but found [${divisors}]`);
    return frequencies(scaling, (frequency, i) => frequency / divisors[i]!);
  };
  const factor = parameters.positive("factor", contextLength / originalLength);
  const scale = factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(originalLength));
  return {
    inverseFrequencies: dividedBy("short_factor"),
    scale: parameters.number("attention_factor", scale),
    long: { inverseFrequencies: dividedBy("long_factor"), from: originalLength },
  };
};

/** Rotates the first part of a head with the frequencies of the whole head; the rest has frequency 0. */
const proportional: RopeKind = (scaling) => {
  const { parameters, headDim, rotaryFactor } = scaling;
  const pairs = Math.floor((rotaryFactor * headDim) / 2);
  const factor = parameters.positive("factor", 1);
  const all = { ...scaling, dim: headDim };
  return { ...unscaled(all), inverseFrequencies: frequencies(all, (f, i) => (i < pairs ? f / factor : 0)) };
};

/**
 * RoPE types. `dynamic` changes nothing up to max_position_embeddings, which no sequence exceeds here. `mrope` rotates
 * parts of a head by positions in time, height and width, which are equal for text.
 */
const kinds: Readonly<Record<string, RopeKind>> = {
  default: unscaled,
  linear,
  dynamic: unscaled,
  mrope: unscaled,
  llama3,
  yarn,
  longrope,
  proportional,
};
