import { describe, expect, it } from "vitest";
import { InvalidFileError, LowbitError, UnsupportedError } from "../errors.ts";
import { buildDecoder } from "./architectures.ts";
import type { Attention } from "./attention.ts";
import { ConfigReader, type JsonObject } from "./config-reader.ts";
import { ropeConfig } from "./rope.ts";

const config: JsonObject = {
  architectures: ["LlamaForCausalLM"],
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  vocab_size: 100,
};

const build = (changes: JsonObject = {}) => buildDecoder("config.json", { ...config, ...changes });
const shapes = (changes: JsonObject = {}) =>
  Object.fromEntries(build(changes).slots.map(({ name, shape }) => [name, shape.join("x")]));

describe("a llama config", () => {
  it("asks for the weights of transformers' checkpoints, in their shapes", () => {
    const found = shapes();
    expect(Object.keys(found)).toHaveLength(1 + 2 * 9 + 1 + 1);
    expect(found).toMatchObject({
      "model.embed_tokens.weight": "100x64",
      "model.layers.0.input_layernorm.weight": "64",
      "model.layers.0.self_attn.q_proj.weight": "64x64",
      "model.layers.1.self_attn.k_proj.weight": "32x64",
      "model.layers.1.self_attn.v_proj.weight": "32x64",
      "model.layers.1.self_attn.o_proj.weight": "64x64",
      "model.layers.1.mlp.gate_proj.weight": "96x64",
      "model.layers.1.mlp.down_proj.weight": "64x96",
      "model.norm.weight": "64",
      "lm_head.weight": "100x64",
    });
  });

  it("may have heads of another size than hidden / heads, biases and a tied head", () => {
    const changes = { head_dim: 32, attention_bias: true, mlp_bias: true, tie_word_embeddings: true };
    expect(shapes(changes)).toMatchObject({
      "model.layers.0.self_attn.q_proj.weight": "128x64",
      "model.layers.0.self_attn.q_proj.bias": "128",
      "model.layers.0.self_attn.o_proj.weight": "64x128",
      "model.layers.0.mlp.down_proj.bias": "64",
    });
    const head = build(changes).slots.at(-1)!;
    expect([head.name, head.tiedTo]).toEqual(["lm_head.weight", "model.embed_tokens.weight"]);
    expect(build().slots.at(-1)!.tiedTo).toBeNull();
  });

  it("has defaults for what configs leave out", () => {
    const decoder = build({ num_key_value_heads: null });
    expect(decoder).toMatchObject({ vocabularySize: 100, contextLength: 2048, layers: 2 });
    expect(shapes({ num_key_value_heads: null })["model.layers.0.self_attn.k_proj.weight"]).toBe("64x64");
  });

  it.each<[string, JsonObject, RegExp]>([
    [
      "an unknown architecture",
      { architectures: ["GPT2LMHeadModel"] },
      /architecture GPT2LMHeadModel is not supported, only LlamaForCausalLM/,
    ],
    ["no architecture", { architectures: undefined }, /architectures: expected a list of names but found undefined/],
    ["an empty list of architectures", { architectures: [] }, /architectures: expected a list of names/],
    ["a missing size", { hidden_size: undefined }, /hidden_size: expected a number but found undefined/],
    ["a text for a size", { vocab_size: "100" }, /vocab_size: expected a number but found "100"/],
    ["a size of 0", { num_hidden_layers: 0 }, /num_hidden_layers: expected a positive integer but found 0/],
    ["a fraction", { intermediate_size: 1.5 }, /intermediate_size: expected a positive integer but found 1.5/],
    ["a size beyond any model", { vocab_size: 2 ** 40 }, /vocab_size: expected at most 1073741824/],
    [
      "more heads than hidden values",
      { num_attention_heads: 65, num_key_value_heads: 65 },
      /num_attention_heads: expected at most hidden_size, 64, but found 65/,
    ],
    [
      "heads not divisible by those of keys",
      { num_key_value_heads: 3 },
      /divisible by num_key_value_heads .* found 4, 3 and 16/,
    ],
    ["an odd head_dim", { head_dim: 15 }, /an even head_dim/],
    ["another activation", { hidden_act: "mish" }, /hidden_act "mish" is not supported, only silu/],
    ["a number for a flag", { attention_bias: 1 }, /attention_bias: expected true or false but found 1/],
    ["a list for an object", { rope_scaling: [] }, /rope_scaling: expected an object but found \[\]/],
    [
      "an unknown rope type",
      { rope_scaling: { rope_type: "su" } },
      /rope_type "su" is not supported, only default, linear, dynamic, mrope, llama3, yarn, longrope, proportional/,
    ],
    [
      "a linear rope of factor 0",
      { rope_scaling: { rope_type: "linear", factor: 0 } },
      /config.json, rope_scaling: factor: expected a positive number but found 0/,
    ],
    ["a negative base", { rope_theta: -1 }, /rope_theta: expected a positive number but found -1/],
    [
      "a llama3 rope without its factor",
      { rope_scaling: { rope_type: "llama3" } },
      /config.json, rope_scaling: factor: expected a number/,
    ],
  ])("with %s is refused", (_, changes, message) => {
    expect(() => build(changes)).toThrow(message);
    expect(() => build(changes)).toThrow(LowbitError);
  });

  it("names file errors and unsupported wishes apart", () => {
    expect(() => build({ hidden_size: -1 })).toThrow(InvalidFileError);
    expect(() => build({ architectures: ["Other"] })).toThrow(UnsupportedError);
  });
});

const other = (name: string, changes: JsonObject = {}) => build({ architectures: [name], ...changes });

describe("other configs", () => {
  it("have tied heads and head sizes that transformers assumes", () => {
    const shapesOf = (name: string) => new Map(other(name).slots.map((slot) => [slot.name, slot.shape.join("x")]));
    expect(shapesOf("GemmaForCausalLM").get("model.layers.0.self_attn.q_proj.weight")).toBe("1024x64");
    expect(shapesOf("Qwen3ForCausalLM").get("model.layers.0.self_attn.q_norm.weight")).toBe("128");
    expect(other("Gemma2ForCausalLM").slots.at(-1)!.tiedTo).toBe("model.embed_tokens.weight");
    expect(other("SmolLM3ForCausalLM").slots.at(-1)!.tiedTo).toBe("model.embed_tokens.weight");
    expect(other("MistralForCausalLM", { num_key_value_heads: 2 }).contextLength).toBe(131072);
    expect(shapesOf("Phi3ForCausalLM").get("model.layers.1.self_attn.qkv_proj.weight")).toBe("128x64");
    expect(shapesOf("Phi3ForCausalLM").get("model.layers.1.mlp.gate_up_proj.weight")).toBe("192x64");
    expect(shapesOf("Olmo2ForCausalLM").has("model.layers.0.input_layernorm.weight")).toBe(false);
    expect(shapesOf("Olmo2ForCausalLM").get("model.layers.0.self_attn.k_norm.weight")).toBe("32");
  });

  it.each([
    ["GemmaForCausalLM", 16],
    ["Gemma2ForCausalLM", 4],
    ["Gemma3ForCausalLM", 4],
    ["MistralForCausalLM", 8],
    ["GraniteForCausalLM", 32],
  ])("have heads of keys that transformers assumes: %s", (name, kvHeads) => {
    const heads = { num_attention_heads: 32, head_dim: 4 };
    const headsOf = (changes: JsonObject) => {
      const { mixer } = other(name, { ...heads, ...changes }).transformer!.layers[0]!;
      return (mixer as Attention).config.kvHeads;
    };
    expect(headsOf({ num_key_value_heads: undefined })).toBe(kvHeads);
    expect(headsOf({ num_key_value_heads: null })).toBe(32);
  });

  it("say their type as transformers does, or not at all", () => {
    expect(other("Gemma3ForCausalLM", { model_type: "gemma3_text" }).architecture).toBe("Gemma3ForCausalLM");
    expect(other("MistralForCausalLM", { model_type: "ministral", num_key_value_heads: 2 }).layers).toBe(2);
    expect(() => other("LlamaForCausalLM", { model_type: "mistral" })).toThrow(
      'config.json: model_type: expected "llama" as architectures says LlamaForCausalLM but found "mistral"',
    );
  });

  it.each<[string, string, JsonObject, RegExp]>([
    ["an activation", "MistralForCausalLM", { hidden_act: "relu6" }, /hidden_act "relu6" is not supported, only silu/],
    ["a sort of layer", "Qwen2ForCausalLM", { layer_types: ["linear_attention", "x"] }, /layer_types with "linear_att/],
    ["too few sorts of layers", "Gemma2ForCausalLM", { layer_types: ["full_attention"] }, /a list of at least 2/],
    ["a window without size", "Gemma2ForCausalLM", { sliding_window: null }, /expected a number for sliding_window/],
    ["a long factor of another length", "Phi3ForCausalLM", longrope(3), /short_factor: expected a list of 8 numbers/],
    ["both directions", "Gemma3ForCausalLM", { use_bidirectional_attention: true }, /only causal attention/],
    ["no causal mask", "Qwen2ForCausalLM", { is_causal: false, num_key_value_heads: 2 }, /is_causal false is not supp/],
    [
      "layers apart",
      "MistralForCausalLM",
      { per_layer_config: { "0": { skip: ["mlp"] } } },
      /per_layer_config of layers 0 is/,
    ],
    ["images", "Gemma3ForCausalLM", { text_config: {} }, /only text models/],
    ["one tap", "Lfm2ForCausalLM", { conv_L_cache: 1 }, /conv_L_cache 1 is not supported, only 2 or more/],
    ["taps beyond any model", "Lfm3ForCausalLM", { conv_L_cache: 2 ** 20 }, /conv_L_cache: expected at most 256/],
    [
      "a window in LFM2",
      "Lfm2ForCausalLM",
      { layer_types: ["conv", "sliding_attention"] },
      /with "sliding_attention" is/,
    ],
    [
      "heads of values that keys do not divide",
      "Qwen3_5ForCausalLM",
      { linear_num_value_heads: 5, linear_num_key_heads: 2 },
      /linear_num_value_heads divisible by linear_num_key_heads but found 5 and 2/,
    ],
    [
      "another gate of the convolution",
      "Qwen3_5ForCausalLM",
      { hidden_act: "gelu" },
      /hidden_act "gelu" is not supported/,
    ],
    [
      "Mamba heads of another width",
      "GraniteMoeHybridForCausalLM",
      { mamba_n_heads: 4, mamba_d_head: 16 },
      /mamba_n_heads times mamba_d_head equal to mamba_expand times hidden_size, 128, .* found 4, 16 and 1/,
    ],
    [
      "time steps within limits",
      "GraniteMoeHybridForCausalLM",
      { mamba_n_heads: 4, time_step_limit: [0.1, { __float__: "Infinity" }] },
      /time_step_limit \[0.1,{"__float__":"Infinity"}\] is not supported, only/,
    ],
    [
      "an architecture of Mamba",
      "NemotronHForCausalLM",
      {},
      /architecture NemotronHForCausalLM is not supported, only/,
    ],
    ["a part of no head", "Phi3ForCausalLM", { partial_rotary_factor: 1.5 }, /partial_rotary_factor: expected a part/],
  ])("with %s that is not supported are refused", (_, name, changes, message) => {
    expect(() => other(name, changes)).toThrow(message);
  });
});

function longrope(length: number): JsonObject {
  const factors = Array.from({ length }, () => 1);
  return { rope_scaling: { type: "longrope", short_factor: factors, long_factor: factors } };
}

describe("rope frequencies", () => {
  const frequencies = (fields: JsonObject, headDim = 8) => {
    const { inverseFrequencies, scale } = ropeConfig(new ConfigReader("config.json", fields), { headDim });
    expect(scale).toBe(1);
    return [...inverseFrequencies];
  };
  const float32 = (values: number[]) => values.map(Math.fround);

  it("are theta^(-2i / head_dim), with theta in either place", () => {
    const expected = float32([1, 0.1, 0.01, 0.001]);
    expect(frequencies({})).toEqual(expected);
    expect(frequencies({ rope_parameters: { rope_type: "default", rope_theta: 10000 } })).toEqual(expected);
    expect(frequencies({ rope_theta: 10 ** 8 })).toEqual(float32([1, 0.01, 0.0001, 0.000001]));
    expect(frequencies({ rope_theta: 7, rope_parameters: { rope_theta: 10 ** 8 } })[1]).toBe(Math.fround(0.01));
  });

  it("linear: divided by the factor", () => {
    expect(frequencies({ rope_scaling: { type: "linear", factor: 4 } })).toEqual(
      float32([0.25, 0.025, 0.0025, 0.00025]),
    );
  });

  it("proportional: 0 beyond a part of the head, which stands in either place", () => {
    const expected = float32([0.5, 0.05, 0, 0]);
    const parameters = { rope_type: "proportional", factor: 2 };
    expect(frequencies({ rope_parameters: { ...parameters, partial_rotary_factor: 0.5 } })).toEqual(expected);
    expect(frequencies({ rope_parameters: parameters, partial_rotary_factor: 0.5 })).toEqual(expected);
    expect(frequencies({ rope_scaling: parameters, partial_rotary_factor: 0.6 })).toEqual(expected);
  });

  it("of Gemma 3's full layers: rope_scaling counts first, a length beside the objects does not", () => {
    const ropes = (fields: JsonObject) =>
      other("Gemma3ForCausalLM", { num_key_value_heads: 2, head_dim: 8, ...fields }).transformer!.ropes;
    const full_attention = { rope_type: "linear", rope_theta: 10 ** 8, factor: 2 };
    const both = { rope_scaling: { rope_type: "linear", factor: 4 }, rope_parameters: { full_attention } };
    expect([...ropes(both).full_attention!.inverseFrequencies]).toEqual(float32([0.25, 0.0025, 0.000025, 0.00000025]));
    const yarn = { rope_parameters: { full_attention: { rope_type: "yarn", factor: 4 } } };
    expect(ropes({ ...yarn, original_max_position_embeddings: 40 })).toEqual(ropes(yarn));
  });

  it("llama3: short wavelengths stay, long ones are divided, the passage is smooth", () => {
    const fields = { rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4 };
    const found = frequencies({
      rope_theta: 10000,
      rope_scaling: { ...fields, original_max_position_embeddings: 1000 },
    });
    // Wavelengths 6.28, 62.8, 628 and 6283 against 1000 / 4 = 250 and 1000 / 1.
    expect(found[0]).toBe(1);
    expect(found[1]).toBe(Math.fround(0.1));
    const wavelength = (2 * Math.PI) / 0.01;
    const smooth = (1000 / wavelength - 1) / 3;
    expect(found[2]).toBeCloseTo((1 - smooth) * (0.01 / 8) + smooth * 0.01, 8);
    expect(found[3]).toBe(Math.fround(Math.fround(0.001) / 8));
  });
});
