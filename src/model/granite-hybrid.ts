/** Granite 4.0 (2025) without experts and Mamba layers: Granite with gate and up in one, and in some models no rope. */
import { UnsupportedError } from "../errors.ts";
import type { Architecture } from "./decoder.ts";
import { readGranite } from "./granite.ts";
import { transformer } from "./transformer.ts";
import { stacked } from "./transformer-config.ts";

export const graniteHybrid: Architecture = {
  name: "GraniteMoeHybridForCausalLM",
  modelType: "granitemoehybrid",
  build(config) {
    const base = readGranite(config);
    if (config.number("num_local_experts", 8) > 0)
      throw new UnsupportedError(`${config.file}: num_local_experts above 0 is not supported in ${this.name}`);
    const types = config.has("layer_types") ? "layer_types" : "layers_block_type";
    if (!config.choices(types, base.depth, ["attention", "full_attention"]))
      throw new UnsupportedError(
        `${config.file}: ${this.name} without layer_types has Mamba layers alone, which are not supported`,
      );
    const hasRope = config.has("position_embedding_type") && config.string("position_embedding_type") === "rope";
    return transformer(
      this.name,
      stacked({
        ...base,
        attention: { ...base.attention, rope: hasRope ? "rope" : null },
        mlp: {
          ...base.mlp,
          intermediate: config.size("shared_intermediate_size", 1024),
          bias: false,
          fused: true,
          names: { mlp: "shared_mlp", both: "input_linear", down: "output_linear" },
        },
      }),
    );
  },
};
