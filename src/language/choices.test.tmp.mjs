// src/language/choices.test.ts
import { beforeAll, describe, expect, it, vi } from "/tmp/h-text/vshim.mjs";

// test/support/folders.ts
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll } from "/tmp/h-text/vshim.mjs";
var shared = fileURLToPath(new URL("../../../shared/", "file:///work/h-text/test/support/folders.ts"));
async function temporaryFolder() {
  const folder2 = await mkdtemp(join(tmpdir(), "lowbit-test-"));
  afterAll(() => rm(folder2, { recursive: true, force: true }));
  return folder2;
}

// test/support/tiny-checkpoint.ts
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath as fileURLToPath2 } from "node:url";
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
async function writeTinyCheckpoint(folder2, options2 = {}) {
  const { config = {}, shapes = tinyShapes(config), dtype = "f32", chatTemplate = template, edit } = options2;
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
  const tokenizer = fileURLToPath2(new URL("../../src/text/byte-level-tokenizer.json.golden", "file:///work/h-text/test/support/tiny-checkpoint.ts"));
  await copyFile(tokenizer, `${folder2}/tokenizer.json`);
  const tokens = { bos_token: "<|bos|>", eos_token: "<|end|>", chat_template: chatTemplate };
  await writeFile(`${folder2}/tokenizer_config.json`, JSON.stringify(tokens));
  await writeFile(`${folder2}/generation_config.json`, JSON.stringify({ do_sample: false }));
}
function encode(values, dtype) {
  if (dtype === "f32") return values;
  return Uint16Array.from(values, dtype === "f16" ? f32ToF162 : f32ToBf162);
}

// src/language/choices.test.ts
import { compileModel } from "/work/h-text/dist/api/compile-model.js";
import { loadCheckpoint } from "/work/h-text/dist/checkpoint/load.js";
import { ContextLengthError, InvalidArgumentError } from "/work/h-text/dist/errors.js";
import { loadProgramObject } from "/work/h-text/dist/language/language-model.js";
vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "reference";
});
var folder = await temporaryFolder();
var models = [];
beforeAll(async () => {
  await writeTinyCheckpoint(folder, { config: { max_position_embeddings: 256 } });
  const model = await loadCheckpoint(folder);
  for (const target of ["lowbit", "executorch"])
    models.push(await loadProgramObject(compileModel(model, { target, maxSeqLen: 64 }), folder));
  await model.close();
});
var prompt = "The quick brown fox jumps over the lazy dog, and over the lazy dog again";
var options = { temperature: 1, seed: 5, maxTokens: 12, ignoreEos: true };
async function textsOf(choices, n) {
  const texts = new Array(n).fill("");
  for await (const { choice, text } of choices) texts[choice] += text;
  return texts;
}
async function textOf(llm, seed) {
  let text = "";
  for await (const piece of llm.generate(prompt, { ...options, seed })) text += piece;
  return text;
}
describe.each([
  ["a store", 0],
  ["states", 1]
])("of a program with %s", (_, index) => {
  it.each([1, 2, 5])("%i texts are those of generations with seeds that follow each other", async (n) => {
    const llm = models[index];
    const choices = llm.generateChoices(prompt, { ...options, n });
    const texts = await textsOf(choices, n);
    const expected = [];
    for (let i = 0; i < n; i++) expected.push(await textOf(llm, options.seed + i));
    expect(texts).toEqual(expected);
    expect(new Set(texts).size).toBe(n);
    expect(choices.results.map(({ generatedTokens }) => generatedTokens)).toEqual(new Array(n).fill(12));
    await expect(textsOf(choices, n)).rejects.toThrow(InvalidArgumentError);
  });
  it("a fork goes on by itself", async () => {
    const decoder = models[index].createDecoder();
    const ids = Array.from({ length: 70 }, (_2, i) => 7 * i % 250);
    await decoder.prefill(ids);
    const forks = [decoder, decoder.fork(), decoder.fork()];
    for (const [i, fork] of forks.entries()) await fork.prefill([i, 100 + i]);
    for (const [i, fork] of forks.entries()) {
      const alone = models[index].createDecoder();
      expect((await fork.step(9)).slice()).toEqual(await alone.prefill([...ids, i, 100 + i, 9]));
      await alone.dispose();
    }
    const busy = decoder.step(1);
    expect(() => decoder.fork()).toThrow("expected one call at a time");
    await busy;
    for (const fork of forks) await fork.dispose();
    expect(() => decoder.fork()).toThrow("was disposed of");
  });
});
it("computes the prompt once, and gives everything back", async () => {
  const [llm] = models;
  const { program } = llm;
  const ids = Array.from({ length: 90 }, (_, i) => 11 * i % 250);
  const before = program.sequenceStatistics;
  const decoders = /* @__PURE__ */ new Set();
  for await (const { choice } of llm.generateChoices(ids, { ...options, n: 4 })) {
    decoders.add(choice);
    const { sequences, sharedPages } = program.sequenceStatistics;
    expect(sequences - before.sequences).toBe(4);
    if (decoders.size === 1) expect(sharedPages).toBeGreaterThanOrEqual(2);
  }
  expect(decoders.size).toBe(4);
  expect(program.sequenceStatistics).toMatchObject({ sequences: before.sequences, pages: before.pages });
});
it("ends all texts when it is left, aborted, or fails, and while nobody reads", async () => {
  const [llm] = models;
  const { program } = llm;
  const before = program.sequenceStatistics.sequences;
  for await (const { text } of llm.generateChoices(prompt, { ...options, n: 3 })) if (text !== "") break;
  expect(program.sequenceStatistics.sequences).toBe(before);
  const stop = new AbortController();
  const aborted = (async () => {
    for await (const _ of llm.generateChoices(prompt, { ...options, maxTokens: 100, n: 3, signal: stop.signal })) {
      stop.abort(new Error("enough"));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  await expect(aborted).rejects.toThrow("enough");
  expect(program.sequenceStatistics.sequences).toBe(before);
  const long = new Array(300).fill(1);
  await expect(textsOf(llm.generateChoices(long, { n: 2 }), 2)).rejects.toThrow(ContextLengthError);
  expect(program.sequenceStatistics.sequences).toBe(before);
  for (const n of [0, 1.5, Number.NaN, 1025]) expect(() => llm.generateChoices(prompt, { n })).toThrow("n: expected");
});
