/** Inverse frequencies of rotary position embeddings, from a config in the style of transformers 4 or 5. */
import type { ConfigReader } from "./config-reader.ts";

export interface RopeConfig {
  /** [headDim / 2] angle per position. */
  readonly inverseFrequencies: Float32Array;
  /** Factor on cos and sin. */
  readonly scale: number;
}

/** Reads `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (4). Types: default, linear, llama3. */
export function ropeConfig(config: ConfigReader, headDim: number): RopeConfig {
  const parameters = config.object(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const typeField = parameters.has("rope_type") ? "rope_type" : "type";
  const type = parameters.oneOf(typeField, ["default", "linear", "llama3"], "default");
  const theta = parameters.has("rope_theta") ? parameters.number("rope_theta") : config.number("rope_theta", 10000);
  const frequencies = Float32Array.from({ length: headDim / 2 }, (_, i) => 1 / theta ** ((2 * i) / headDim));
  if (type === "default") return { inverseFrequencies: frequencies, scale: 1 };
  const factor = parameters.number("factor");
  const scaled = type === "linear" ? (f: number) => f / factor : llama3Scaling(parameters, factor);
  return { inverseFrequencies: frequencies.map(scaled), scale: 1 };
}

/** Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, with a smooth passage between. */
function llama3Scaling(parameters: ConfigReader, factor: number): (frequency: number) => number {
  const low = parameters.number("low_freq_factor");
  const high = parameters.number("high_freq_factor");
  const context = parameters.size("original_max_position_embeddings");
  return (frequency) => {
    const wavelength = (2 * Math.PI) / frequency;
    if (wavelength < context / high) return frequency;
    if (wavelength > context / low) return frequency / factor;
    const smooth = (context / wavelength - low) / (high - low);
    return (1 - smooth) * (frequency / factor) + smooth * frequency;
  };
}
