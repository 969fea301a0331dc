/**
 * Granite 4.0 (2025): Granite with gate and up in one matrix. Some models have Mamba 2 in most layers and no RoPE; some have a
 * mixture of experts beside the MLP.
 */
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { Attention } from "./attention.ts";
import { type ConfigReader, shown } from "./config-reader.ts";
import type { Architecture } from "./decoder.ts";
import { GatedMlp } from "./gated-mlp.ts";
import { readExperts, readGranite } from "./granite.ts";
import { Mamba2 } from "./mamba2.ts";
import { tapsOf } from "./short-convolution.ts";
import { HEADS_MAX, mixed } from "./transformer-config.ts";

/** Type names of Mamba layers in transformers' versions. */
const MAMBA = ["mamba", "linear_attention"] as const;
const ATTENTION = ["attention", "full_attention"] as const;

/** Whether each layer is Mamba; true for all where the config says nothing. */
function mambaLayers(config: ConfigReader, depth: number): readonly boolean[] {
  const field = config.has("layer_types") ? "layer_types" : "layers_block_type";
  const types = config.choices(field, depth, [...MAMBA, ...ATTENTION]);
  return Array.from({ length: depth }, (_, i) => types === null || (MAMBA as readonly string[]).includes(types[i]!));
}

/** UnsupportedError for limits of time steps that would take effect. */
function checkTimeSteps(config: ConfigReader): void {
  const { time_step_limit: limit = null } = config.fields;
  const [least, most] = Array.isArray(limit) ? limit : [0, null];
  const isNumber = (value: unknown) => typeof value === "number" && Number.isFinite(value);
  if ((isNumber(least) && least > 0) || isNumber(most))
    throw new UnsupportedError(`${config.file}: time_step_limit ${shown(limit)} is not supported, only [0, Infinity]`);
}

function readMamba(config: ConfigReader, hidden: number): Mamba2 {
  checkTimeSteps(config);
  config.oneOf("hidden_act", ["silu", "swish"], "silu");
  const heads = config.size("mamba_n_heads", 128, HEADS_MAX);
  const groups = config.size("mamba_n_groups", 1, HEADS_MAX);
  const inner = Math.trunc(config.positive("mamba_expand", 2) * hidden);
  const given = config.fields.mamba_d_head ?? "auto";
  const headDim = given === "auto" ? Math.floor(inner / heads) : config.size("mamba_d_head");
  if (headDim * heads !== inner || heads % groups !== 0)
    throw new InvalidFileError(
      config.file,
      `expected mamba_n_heads times mamba_d_head equal to mamba_expand times hidden_size, ${inner}, and divisible by mamba_n_groups but found ${heads}, ${headDim} and ${groups}`,
    );
  return new Mamba2({
    ...{ hidden, heads, headDim, groups },
    stateDim: config.size("mamba_d_state", 256, 1 << 16),
    taps: tapsOf(config, "mamba_d_conv", 4),
    biases: { convolution: config.boolean("mamba_conv_bias", true), linear: config.boolean("mamba_proj_bias", false) },
  });
}

export const graniteHybrid: Architecture = {
  name: "GraniteMoeHybridForCausalLM",
  modelType: "granitemoehybrid",
  read(config) {
    const base = readGranite(config);
    const isMamba = mambaLayers(config, base.depth);
    const hasRope = config.has("position_embedding_type") && config.string("position_embedding_type") === "rope";
    const attention = new Attention({ ...base.attention, rope: hasRope ? "rope" : null });
    const mamba = isMamba.includes(true) ? readMamba(config, base.hidden) : attention;
    const mlp = {
      ...base.mlp,
      intermediate: config.size("shared_intermediate_size", 1024),
      bias: false,
      // GGUF files store gate and up apart.
      fused: config.boolean("shared_mlp_fused", true),
      names: { mlp: "shared_mlp", both: "input_linear", down: "output_linear" },
    };
    const shared = new GatedMlp(mlp);
    const hasExperts = config.count("num_local_experts", 8) > 0;
    const thought = hasExperts
      ? readExperts(config, base, { shared: { mlp: shared, gate: null, isBeside: true } })
      : shared;
    return mixed(
      base,
      (i) => (isMamba[i] ? mamba : attention),
      () => thought,
    );
  },
};
