/** Numbers of experts that a config says, before anything is made of them. */
import { describe, expect, it } from "vitest";
import { hybridConfigs, mixtureConfigs } from "../../test/support/hybrid-checkpoint.ts";
import { InvalidFileError } from "../errors.ts";
import { buildDecoder } from "./architectures.ts";

const gemma = {
  ...hybridConfigs.gemma4,
  hidden_size_per_layer_input: 0,
  num_kv_shared_layers: 0,
  enable_moe_block: true,
  moe_intermediate_size: 32,
  num_experts: 4,
  top_k_experts: 2,
};

describe.each([
  ["Qwen3-MoE", mixtureConfigs.qwen3_moe, "num_experts_per_tok"],
  ["Gemma 4", gemma, "top_k_experts"],
] as const)("experts of %s", (_, config, perToken) => {
  const build = (changes: object) => buildDecoder("config.json", { ...config, ...changes });

  it.each([0, -1, 4097, 2 ** 30, 2 ** 31, 2 ** 53, "4", null])("are not %s", (num_experts) => {
    if (num_experts === null && perToken !== "top_k_experts") return;
    expect(() => build({ num_experts })).toThrow(InvalidFileError);
  });

  it("of a token are no more than there are", () => {
    expect(() => build({ [perToken]: 6 })).toThrow(`${perToken}: expected at most`);
    expect(build({}).slots.some(({ name }) => name.includes(".experts.1."))).toBe(true);
  });

  it("are bounded for all layers together", () => {
    const layer_types = new Array(4096).fill("full_attention");
    expect(() => build({ num_hidden_layers: 4096, layer_types, num_experts: 4096 })).toThrow(
      "num_experts: expected at most 32",
    );
  });
});
