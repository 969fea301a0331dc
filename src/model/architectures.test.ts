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

  it("take null for what transformers takes it for", () => {
    const ropesOf = (name: string, changes: JsonObject) =>
      other(name, { hidden_size_per_layer_input: 0, num_key_value_heads: 2, ...changes }).transformer!.ropes;
    expect(ropesOf("Gemma4ForCausalLM", { rope_parameters: null })).toEqual(ropesOf("Gemma4ForCausalLM", {}));
    for (const changes of [{}, { rope_parameters: null }, { rope_scaling: null, rope_theta: 1000 }]) {
      const rope = ropesOf("GptOssForCausalLM", { num_local_experts: 4, num_experts_per_tok: 2, ...changes }).rope!;
      expect(rope.scale).toBeCloseTo(0.1 * Math.log(32) + 1, 12);
      expect(rope.inverseFrequencies[1]).toBeCloseTo(("rope_theta" in changes ? 1000 : 150000) ** (-2 / 64), 6);
    }
    const names = (mamba_conv_bias: unknown) =>
      other("GraniteMoeHybridForCausalLM", {
        ...{ layer_types: ["mamba", "attention"], num_local_experts: 0, mamba_n_heads: 4, num_key_value_heads: 2 },
        mamba_conv_bias,
      }).slots.map(({ name }) => name);
    expect(names(null)).not.toContain("model.layers.0.mamba.conv1d.bias");
    expect(names(undefined)).toContain("model.layers.0.mamba.conv1d.bias");
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
    [
      "a scale of no number",
      "Gemma2ForCausalLM",
      { query_pre_attn_scalar: -4 },
      /query_pre_attn_scalar: expected a positive/,
    ],
    ["an eps below 0", "Qwen2ForCausalLM", { rms_norm_eps: -1e-5 }, /rms_norm_eps: expected a number from 0 on/],
    ["logits divided by 0", "GraniteForCausalLM", { logits_scaling: 0 }, /logits_scaling: expected a positive number/],
    [
      "part of a dense layer",
      "Lfm2MoeForCausalLM",
      { num_dense_layers: 0.5 },
      /num_dense_layers: expected a positive int/,
    ],
    [
      "less than no layers that share",
      "Gemma4ForCausalLM",
      { num_kv_shared_layers: -1 },
      /num_kv_shared_layers: expected/,
    ],
    [
      "heads beyond any model",
      "Gemma4ForCausalLM",
      { global_head_dim: 1e9 },
      /global_head_dim: expected at most 65536/,
    ],
    [
      "a layer's heads beyond any model",
      "Gemma4ForCausalLM",
      { per_layer_config: { 1: { head_dim: 1e9 } } },
      /per_layer_config, 1: head_dim: expected at most 65536/,
    ],
    [
      "a layer's heads that share unevenly",
      "Gemma4ForCausalLM",
      { num_key_value_heads: 4, per_layer_config: { 1: { num_key_value_heads: 3 } } },
      /expected num_attention_heads divisible by num_key_value_heads/,
    ],
    [
      "states beyond any model",
      "Qwen3_5ForCausalLM",
      { linear_key_head_dim: 1e9 },
      /linear_key_head_dim: expected at most/,
    ],
    [
      "part of an embedding",
      "Gemma4ForCausalLM",
      { hidden_size_per_layer_input: 1.5 },
      /hidden_size_per_layer_input: exp/,
    ],
    [
      "padding outside of the vocabulary",
      "Gemma4ForCausalLM",
      { hidden_size_per_layer_input: 0, image_token_id: 7, pad_token_id: 100 },
      /pad_token_id: expected less than 100 but found 100/,
    ],
    [
      "rotations below 0",
      "MistralForCausalLM",
      { rope_scaling: { type: "yarn", factor: 2, beta_fast: -1 } },
      /beta_fast: expected a number from 0 on/,
    ],
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

/** The attention of each layer, by the fields that the config may vary. */
const attentionsOf = (name: string, changes: JsonObject) =>
  other(name, changes).transformer!.layers.map(({ mixer }) => (mixer as Attention).config);

describe("layers that differ", () => {
  const four = { num_hidden_layers: 4, num_key_value_heads: 2, head_dim: 16 };

  it("Olmo 3: three windows to a full layer; the scaling is that of full layers, the base of windows 500000", () => {
    const changes = { ...four, rope_theta: 10 ** 8, rope_scaling: { rope_type: "linear", factor: 4 } };
    expect(attentionsOf("Olmo3ForCausalLM", changes).map(({ window }) => window)).toEqual([4096, 4096, 4096, 0]);
    const { ropes } = other("Olmo3ForCausalLM", changes).transformer!;
    expect(ropes.full_attention!.inverseFrequencies[1]).toBeCloseTo(0.1 / 4, 6);
    expect(ropes.sliding_attention!.inverseFrequencies[1]).toBeCloseTo(500000 ** (-1 / 8), 6);
  });

  it("EXAONE 4.0: layers of letters or of a number; without windows all have a rope", () => {
    const of = (changes: JsonObject) =>
      attentionsOf("Exaone4ForCausalLM", { ...four, ...changes }).map(({ window, rope }) => `${window} ${rope}`);
    expect(of({ sliding_window: 8, sliding_window_pattern: "LG" })).toEqual(["8 rope", "0 null", "8 rope", "0 null"]);
    expect(of({ sliding_window: 8, sliding_window_pattern: "L" })).toEqual(["8 rope", "8 rope", "8 rope", "0 null"]);
    expect(of({ sliding_window: 8 })).toEqual(["8 rope", "8 rope", "8 rope", "0 null"]);
    expect(of({ sliding_window: null })).toEqual(["0 rope", "0 rope", "0 rope", "0 rope"]);
  });

  it("Hunyuan: alpha stretches the base", () => {
    const rope_scaling = { type: "dynamic", alpha: 1000, factor: 1 };
    const { ropes } = other("HunYuanDenseV1ForCausalLM", { ...four, rope_scaling }).transformer!;
    expect(ropes.rope!.inverseFrequencies[1]).toBeCloseTo((10000 * 1000 ** (16 / 14)) ** (-1 / 8), 7);
  });

  it("ERNIE 4.5 and GLM-4 store rows of heads as pairs, all or the first part", () => {
    const pairsOf = (name: string, changes: JsonObject = {}) =>
      other(name, { num_key_value_heads: 2, ...changes }).slots.flatMap(({ name: slot, pairs }) =>
        pairs && slot.startsWith("model.layers.0")
          ? [[slot.replace(/.*attn\./, ""), pairs.headDim, pairs.rotated]]
          : [],
      );
    expect(pairsOf("Ernie4_5ForCausalLM", { head_dim: null })).toEqual([
      ["q_proj.weight", 16, 16],
      ["k_proj.weight", 16, 16],
    ]);
    expect(pairsOf("Glm4ForCausalLM", { head_dim: 16 })).toEqual([
      ["q_proj.weight", 16, 8],
      ["q_proj.bias", 16, 8],
      ["k_proj.weight", 16, 8],
      ["k_proj.bias", 16, 8],
    ]);
  });

  it("Ministral 3: the rope and growth of queries that transformers assumes", () => {
    const [attention] = attentionsOf("Ministral3ForCausalLM", four);
    expect(attention).toMatchObject({ queryScaling: { beta: 0.1, length: 16384 }, window: 0 });
  });

  it("Gemma 4: sizes of full heads, owners of caches, and the last layer, which is full whatever the config says", () => {
    const layer_types = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"];
    const changes = { ...four, layer_types, sliding_window: 8, num_kv_shared_layers: 2, use_double_wide_mlp: true };
    const found = attentionsOf("Gemma4ForCausalLM", { ...changes, global_head_dim: 32 });
    expect(found.map(({ headDim, window, sharedWith }) => [headDim, window, sharedWith])).toEqual([
      [16, 8, undefined],
      [32, 0, undefined],
      [16, 8, 0],
      [32, 0, 1],
    ]);
    const { slots } = other("Gemma4ForCausalLM", changes);
    const shapes = new Map(slots.map(({ name, shape }) => [name, shape.join("x")]));
    expect(shapes.get("model.layers.3.mlp.up_proj.weight")).toBe("192x64");
    expect(shapes.get("model.layers.1.mlp.up_proj.weight")).toBe("96x64");
    expect(shapes.get("model.embed_tokens_per_layer.weight")).toBe("100x1024");
    expect(shapes.has("model.layers.3.self_attn.k_proj.weight")).toBe(false);
  });

  it("Gemma 4 unified: values made of keys, with heads of their own number, and no embeddings of layers", () => {
    const changes = {
      ...four,
      attention_k_eq_v: true,
      num_global_key_value_heads: 1,
      use_bidirectional_attention: "vision",
    };
    const found = attentionsOf("Gemma4UnifiedForCausalLM", changes);
    expect(found.map(({ window, kvHeads }) => [window, kvHeads])).toEqual([
      [1024, 2],
      [1024, 2],
      [1024, 2],
      [0, 1],
    ]);
    const names = other("Gemma4UnifiedForCausalLM", changes).slots.map(({ name }) => name);
    expect(names).not.toContain("model.embed_tokens_per_layer.weight");
    expect(names).toContain("model.layers.0.self_attn.v_proj.weight");
    expect(names).not.toContain("model.layers.3.self_attn.v_proj.weight");
  });

  it.each<[string, JsonObject, RegExp]>([
    ["both directions", { use_bidirectional_attention: "all" }, /use_bidirectional_attention "all" is not supported/],
    ["a field of a layer", { per_layer_config: { "1": { skip: true } } }, /skip is not supported, only head_dim/],
    ["no owner of a cache", { num_kv_shared_layers: 4 }, /leaves no layer of sliding_attention/],
    ["more than all caches shared", { num_kv_shared_layers: 9 }, /leaves no layer of sliding_attention/],
  ])("Gemma 4 with %s is refused", (_, changes, message) => {
    expect(() => other("Gemma4ForCausalLM", { ...four, ...changes })).toThrow(message);
  });

  it("Granite 4.0: no rope unless the config says so", () => {
    const dense = { num_local_experts: 0, layer_types: ["attention", "full_attention"], num_key_value_heads: 2 };
    const ropes = (changes: JsonObject) =>
      attentionsOf("GraniteMoeHybridForCausalLM", { ...dense, ...changes }).map(({ rope }) => rope);
    expect(ropes({})).toEqual([null, null]);
    expect(ropes({ position_embedding_type: "rope" })).toEqual(["rope", "rope"]);
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
