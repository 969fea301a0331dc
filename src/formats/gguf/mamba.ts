/** Config of Granite's hybrid GGUF files, and the conversion of llama.cpp's Mamba 2 tensors. */
import { InvalidFileError } from "../../errors.ts";
import { elementCount, toFloat32 } from "../../tensor.ts";
import type { JsonObject } from "../json.ts";
import type { OpenTensors } from "../tensor-source.ts";
import type { LayerFacts } from "./config-facts.ts";
import { deltaSizes, listOf, required, withTaps } from "./recurrent.ts";

const KV_HEADS = "{arch}.attention.head_count_kv";

/** Names of a Mamba layer's tensors; those that are no weight of a module are listed with their ending. */
export const mambaNames: Readonly<Record<string, string>> = {
  ssm_in: "mamba.in_proj",
  ssm_conv1d: "mamba.conv1d",
  "ssm_dt.bias": "mamba.dt_bias",
  ssm_a: "mamba.A_log",
  ssm_d: "mamba.D",
  ssm_norm: "mamba.norm",
  ssm_out: "mamba.out_proj",
};

/** Names of the shared MLP, whose gate and up are two tensors; `_shexp` where it stands beside experts. */
export function sharedMlpNames(ending: "" | "_shexp"): Readonly<Record<string, string>> {
  return {
    [`ffn_gate${ending}`]: "shared_mlp.gate_proj",
    [`ffn_up${ending}`]: "shared_mlp.up_proj",
    [`ffn_down${ending}`]: "shared_mlp.output_linear",
  };
}

/** Granite 4.0 h: layers with 0 key heads are Mamba 2. */
export function graniteHybridConfig({ metadata, tensors, layers }: LayerFacts): JsonObject {
  const { keyHeads: groups, heads, keyDim, valueDim } = deltaSizes(metadata);
  const kvHeads = metadata.isList(KV_HEADS) ? listOf(metadata, KV_HEADS, layers) : null;
  const rows = ["ffn_gate_shexp", "ffn_gate"].map((name) => `blk.0.${name}.weight`).find((name) => tensors.has(name));
  if (rows === undefined) throw new InvalidFileError(metadata.file, "has no tensor blk.0.ffn_gate.weight");
  const has = (ending: string) => tensors.names.some((name) => name.endsWith(ending));
  return {
    layer_types: Array.from({ length: layers }, (_, i) => (kvHeads?.[i] === 0 ? "mamba" : "attention")),
    // llama.cpp encodes in this key whether there is RoPE.
    position_embedding_type: (metadata.boolean("{arch}.rope.scaling.finetuned") ?? true) ? "rope" : "nope",
    ...{ mamba_n_heads: heads, mamba_d_head: valueDim, mamba_n_groups: groups, mamba_d_state: keyDim },
    mamba_expand: (heads * valueDim) / metadata.size("{arch}.embedding_length")!,
    mamba_d_conv: required(metadata, "conv_kernel"),
    mamba_conv_bias: has(".ssm_conv1d.bias"),
    mamba_proj_bias: has(".ssm_in.bias"),
    attention_bias: has(".attn_q.bias"),
    shared_intermediate_size: tensors.info(rows).shape[0]!,
    shared_mlp_fused: false,
    num_local_experts: metadata.number("{arch}.expert_count") ?? 0,
  };
}

/** Converts Mamba 2 tensors to transformers' form: files store -exp(A_log), and some vectors as matrices. */
export function withMamba(tensors: OpenTensors): OpenTensors {
  const isVector = (name: string) => /\.mamba\.(A_log|D|norm\.weight)$/.test(name);
  const isRate = (name: string) => name.endsWith(".mamba.A_log");
  return withTaps({
    ...tensors,
    info(name) {
      const info = tensors.info(name);
      if (!isVector(name)) return info;
      return { ...info, shape: [elementCount(info.shape)], ...(isRate(name) && { dtype: "f32" as const }) };
    },
    async read(name) {
      const tensor = await tensors.read(name);
      if (!isVector(name)) return tensor;
      const shape = [elementCount(tensor.shape)];
      if (!isRate(name)) return { ...tensor, shape };
      return { dtype: "f32", shape, data: toFloat32(tensor).map((value) => Math.log(-value)) };
    },
  });
}
