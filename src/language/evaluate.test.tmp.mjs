// src/language/evaluate.test.ts
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "/tmp/h-text/vshim.mjs";

// test/support/tiny-checkpoint.ts
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { writeSafetensors } from "/work/h-text/dist/formats/safetensors-writer.js";
import { f32ToBf16 as f32ToBf162, f32ToF16 as f32ToF162 } from "/work/h-text/dist/half.js";

// test/support/random.ts
import { e4m3Table } from "/work/h-text/dist/float8.js";
import { f16Table, f32ToBf16, f32ToF16 } from "/work/h-text/dist/half.js";
import {
  groupCount,
  hasFactors,
  SUPER_GROUP,
  superGroupCount
} from "/work/h-text/dist/quantized.js";
var Random = class {
  #state;
  constructor(seed) {
    this.#state = seed >>> 0;
  }
  next() {
    this.#state = this.#state + 1831565813 >>> 0;
    let t = Math.imul(this.#state ^ this.#state >>> 15, this.#state | 1);
    t = t + Math.imul(t ^ t >>> 7, t | 61) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  }
  /** A whole number from `low` to `high`, both included. */
  integer(low, high) {
    return low + Math.floor(this.next() * (high - low + 1));
  }
  pick(items) {
    return items[this.integer(0, items.length - 1)];
  }
  /** Floats evenly spread over -size .. size. */
  floats(length, size = 1) {
    const values = new Float32Array(length);
    for (let i = 0; i < length; i++) values[i] = size * (2 * this.next() - 1);
    return values;
  }
};

// test/support/tiny-checkpoint.ts
var HIDDEN = 32;
var INTERMEDIATE = 64;
var LAYERS = 2;
var HEADS = 4;
var KV_HEADS = 2;
var HEAD_DIM = 8;
var VOCABULARY = 282;
var TINY_CONTEXT = 64;
var END = 277;
var tinyConfig = {
  architectures: ["LlamaForCausalLM"],
  hidden_act: "silu",
  hidden_size: HIDDEN,
  intermediate_size: INTERMEDIATE,
  num_hidden_layers: LAYERS,
  num_attention_heads: HEADS,
  num_key_value_heads: KV_HEADS,
  head_dim: HEAD_DIM,
  vocab_size: VOCABULARY,
  max_position_embeddings: TINY_CONTEXT,
  rms_norm_eps: 1e-5,
  rope_theta: 1e4,
  tie_word_embeddings: true,
  bos_token_id: 276,
  eos_token_id: END
};
var template = "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
function tinyShapes(changes = {}) {
  const config = { ...tinyConfig, ...changes };
  const { hidden_size: hidden, intermediate_size: intermediate, head_dim: headDim } = config;
  const q = config.num_attention_heads * headDim;
  const kv = config.num_key_value_heads * headDim;
  const shapes = /* @__PURE__ */ new Map([
    ["model.embed_tokens.weight", [config.vocab_size, hidden]],
    ["model.norm.weight", [hidden]]
  ]);
  const linear = (name, n, k, bias) => {
    shapes.set(`${name}.weight`, [n, k]);
    if (bias) shapes.set(`${name}.bias`, [n]);
  };
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const layer = `model.layers.${i}`;
    shapes.set(`${layer}.input_layernorm.weight`, [hidden]);
    shapes.set(`${layer}.post_attention_layernorm.weight`, [hidden]);
    linear(`${layer}.self_attn.q_proj`, q, hidden, changes.attention_bias);
    linear(`${layer}.self_attn.k_proj`, kv, hidden, changes.attention_bias);
    linear(`${layer}.self_attn.v_proj`, kv, hidden, changes.attention_bias);
    linear(`${layer}.self_attn.o_proj`, hidden, q, changes.attention_bias);
    linear(`${layer}.mlp.gate_proj`, intermediate, hidden, changes.mlp_bias);
    linear(`${layer}.mlp.up_proj`, intermediate, hidden, changes.mlp_bias);
    linear(`${layer}.mlp.down_proj`, hidden, intermediate, changes.mlp_bias);
  }
  if (!config.tie_word_embeddings) shapes.set("lm_head.weight", [config.vocab_size, hidden]);
  return shapes;
}
async function writeTinyCheckpoint(folder2, options = {}) {
  const { config = {}, shapes = tinyShapes(config), dtype = "f32", chatTemplate = template, edit } = options;
  await mkdir(folder2, { recursive: true });
  const random = new Random(1);
  const entries = [...shapes].map(([name, shape]) => ({
    name,
    dtype,
    shape,
    data: async () => {
      const count = shape.reduce((a, b) => a * b, 1);
      const values = random.floats(count, shape.length === 1 ? 1 : 0.4);
      edit?.(name, values);
      return encode(values, dtype);
    }
  }));
  await writeSafetensors(`${folder2}/model.safetensors`, entries);
  await writeFile(`${folder2}/config.json`, JSON.stringify({ ...tinyConfig, ...config }));
  const tokenizer = fileURLToPath(new URL("../../src/text/byte-level-tokenizer.json.golden", "file:///work/h-text/test/support/tiny-checkpoint.ts"));
  await copyFile(tokenizer, `${folder2}/tokenizer.json`);
  const tokens = { bos_token: "<|bos|>", eos_token: "<|end|>", chat_template: chatTemplate };
  await writeFile(`${folder2}/tokenizer_config.json`, JSON.stringify(tokens));
  await writeFile(`${folder2}/generation_config.json`, JSON.stringify({ do_sample: false }));
}
function encode(values, dtype) {
  if (dtype === "f32") return values;
  return Uint16Array.from(values, dtype === "f16" ? f32ToF162 : f32ToBf162);
}

// src/language/evaluate.test.ts
import { EagerModel } from "/work/h-text/dist/api/eager-model.js";
import { loadCompiled } from "/work/h-text/dist/api/load-compiled.js";
import { loadCheckpoint } from "/work/h-text/dist/checkpoint/load.js";
import { evaluatePerplexity } from "/work/h-text/dist/language/evaluate.js";
var folder = mkdtempSync(join(tmpdir(), "lowbit-evaluate-"));
afterAll(() => rmSync(folder, { recursive: true }));
var text = "The quick brown fox jumps over the lazy dog, twice; na\xEFve \u6F22\u5B57 follow.";
var model;
beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  model = await loadCheckpoint(folder);
});
afterAll(() => model.close());
async function natsOf(ids, start, i) {
  const eager = await EagerModel.load(model);
  const logits = [...eager.forward(ids.slice(start, i), 0).data];
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);
  return -Math.log(Math.exp(logits[ids[i]]) / total);
}
describe("evaluatePerplexity", () => {
  test("of a model whose logits are NaN is an error", async () => {
    const path = join(folder, "nan");
    const edit = (name, values) => name.includes("up_proj") && values.fill(Number.NaN);
    await writeTinyCheckpoint(path, { edit });
    const bad = await loadCheckpoint(path);
    const llm = await loadCompiled(bad);
    await expect(evaluatePerplexity(llm, text)).rejects.toThrow("logits: expected numbers but found NaN in the window");
    await bad.close();
  });
  test.each([
    { target: "lowbit", maxSeqLen: 7 },
    { target: "executorch", logits: "all", maxSeqLen: 7 },
    { target: "executorch", logits: "last", maxSeqLen: 7 }
  ])("scores each token once, in the first window that has it: %j", async (options) => {
    const llm = await loadCompiled(model, options);
    const ids = llm.tokenizer.encode(text);
    const window = 20;
    const stride = 8;
    let nats = 0;
    for (let i = 1; i < ids.length; i++) {
      const start = i < window ? 0 : Math.ceil((i + 1 - window) / stride) * stride;
      nats += await natsOf(ids, start, i);
    }
    const progress = [];
    const result = await evaluatePerplexity(llm, text, {
      window,
      stride,
      onProgress: (done, total) => progress.push(done / total)
    });
    expect(result.tokens).toBe(ids.length - 1);
    expect(result.windows).toBe(1 + Math.ceil((ids.length - window) / stride));
    expect(result.bytes).toBe(new TextEncoder().encode(text).length);
    expect(result.natsPerToken).toBeCloseTo(nats / result.tokens, 5);
    expect(result.perplexity).toBeCloseTo(Math.exp(result.natsPerToken), 9);
    expect(result.bitsPerByte).toBeCloseTo(result.natsPerToken * result.tokens / Math.log(2) / result.bytes, 9);
    expect(progress.at(-1)).toBe(1);
    expect(progress).toHaveLength(result.windows);
  });
  test("takes ids, the first of a text, and the context as the window", async () => {
    const llm = await loadCompiled(model);
    const ids = llm.tokenizer.encode(text);
    const whole = await evaluatePerplexity(llm, text, { maxTokens: 5 });
    expect(whole).toMatchObject({ tokens: 4, window: TINY_CONTEXT, stride: TINY_CONTEXT / 2, windows: 1 });
    const first = await evaluatePerplexity(llm, ids.slice(0, 5));
    expect(first.natsPerToken).toBe(whole.natsPerToken);
    expect([first.bytes, first.bitsPerByte]).toEqual([null, null]);
  });
  test("refuses sizes out of range and stops on abort", async () => {
    const llm = await loadCompiled(model);
    await expect(evaluatePerplexity(llm, text, { window: 65 })).rejects.toThrow(
      "window: expected a whole number from 2 to 64"
    );
    await expect(evaluatePerplexity(llm, text, { window: 8, stride: 8 })).rejects.toThrow("stride: expected");
    await expect(evaluatePerplexity(llm, "")).rejects.toThrow("at least 2 tokens but found 1");
    const signal = AbortSignal.abort(new Error("enough"));
    await expect(evaluatePerplexity(llm, text, { signal })).rejects.toThrow("enough");
  });
});
