/** Models with what drafts for them, quantized in several ways: that is quantized with them, and guesses on. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import {
  addClusters,
  hybridConfigs,
  type NamedTensors,
  writeAssistantCheckpoint,
  writeHybridCheckpoint,
} from "../../test/support/hybrid-checkpoint.ts";
import { tinyConfig, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { calibrate } from "../checkpoint/calibrate/calibrate.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import type { Model } from "../checkpoint/model.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { buildDecoder } from "../model/architectures.ts";
import { int8DynamicActivationIntxWeight, type QuantizationConfig } from "../quantize/config.ts";
import type { Algorithm } from "../quantize/scheme.ts";
import { programBytes } from "./export-program.ts";
import { fitSize } from "./fit-size.ts";
import { loadCompiled } from "./load-compiled.ts";
import { saveGguf } from "./save-gguf.ts";

const path = join(await temporaryFolder(), "mtp");
await writeHybridCheckpoint(path, "qwen3_5", { mtp_num_hidden_layers: 1 });
const text = readFileSync(new URL("../../models/shakespeare/heldout.txt", import.meta.url), "utf8").slice(0, 3000);
const reading = { maxTokens: 128, window: 64 };
const FC = "mtp.fc.weight";

/** Logits of a guess behind a text. */
async function guess(model: Model, token = 250): Promise<Float32Array> {
  const llm = await loadCompiled(model);
  const decoder = llm.createDecoder();
  await decoder.prefill([5, 100, 20, 7]);
  const logits = (await decoder.draft!([token]))!.slice();
  await llm.dispose();
  return logits;
}

function cosine(a: Float32Array, b: Float32Array): number {
  const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, value, i) => sum + value * y[i]!, 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

async function guessWith(change: (model: Model) => Promise<void>): Promise<Float32Array> {
  const model = await loadCheckpoint(path);
  await change(model);
  const logits = await guess(model);
  await model.close();
  return logits;
}

const float = await guessWith(async () => {});
const configOf = (algorithm: Algorithm): QuantizationConfig =>
  int8DynamicActivationIntxWeight({ bits: 8, groupSize: 32, algorithm });

test.each(["mse", "imatrix", "gptq", "awq"] as const)("by %s", async (algorithm) => {
  const found = await guessWith(async (model) => {
    quantize(model, [configOf(algorithm)]);
    expect(model.configOf(FC)?.bits).toBe(8);
    if (algorithm !== "mse") await calibrate(model, text, reading);
  });
  expect(cosine(found, float)).toBeGreaterThan(0.99);
});

test.each([false, true])("an assistant beside its model, with clusters of tokens: %s", async (hasClusters) => {
  const folder = await temporaryFolder();
  const [target, draftHead] = ["gemma4", "assistant"].map((name) => join(folder, name)) as [string, string];
  await writeHybridCheckpoint(target, "gemma4");
  await writeAssistantCheckpoint(draftHead);
  if (hasClusters) await addClusters(draftHead, { num_centroids: 6, centroid_intermediate_top_k: 6 });
  const guesses: Float32Array[] = [];
  for (const algorithm of [null, "mse", "gptq"] as const) {
    const model = await loadCheckpoint(target, { draftHead });
    if (algorithm) quantize(model, [configOf(algorithm)]);
    if (algorithm === "gptq") await calibrate(model, text, reading);
    guesses.push(await guess(model));
    await model.close();
  }
  for (const found of guesses.slice(1)) expect(cosine(found, guesses[0]!)).toBeGreaterThan(0.98);
});

test("what drafts for another model, lacks tensors or is damaged is refused, both named", async () => {
  const folder = await temporaryFolder();
  const gemma = join(folder, "gemma4");
  await writeHybridCheckpoint(gemma, "gemma4");
  const assistant = join(folder, "assistant");
  await writeAssistantCheckpoint(assistant);
  const { hidden_size: hidden, vocab_size: vocabulary } = hybridConfigs.gemma4;
  for (const [field, expected] of [
    ["backbone_hidden_size", hidden],
    ["vocab_size", vocabulary],
  ] as const) {
    const other = join(folder, field);
    await writeAssistantCheckpoint(other);
    const config = join(other, "config.json");
    const fields = JSON.parse(readFileSync(config, "utf8"));
    const owner = field in fields.text_config && field === "vocab_size" ? fields.text_config : fields;
    owner[field] = 7;
    writeFileSync(config, JSON.stringify(fields));
    const refused = loadCheckpoint(gemma, { draftHead: other });
    await expect(refused).rejects.toThrow(`${other}: does not draft for ${gemma}: `);
    await expect(refused).rejects.toThrow(`${field}: expected ${expected}, as in the model, but found 7`);
  }
  await expect(loadCheckpoint(path, { draftHead: assistant })).rejects.toThrow(
    `expected what drafts for Qwen3_5ForCausalLM of ${path} but found Gemma4AssistantForCausalLM`,
  );
  await expect(loadCheckpoint(path, { draftHead: gemma })).rejects.toThrow(
    `${gemma}: expected tensors mtp.* or an assistant of Gemma 4 to draft for ${path} but found neither`,
  );
  const wider = join(folder, "wider");
  await writeHybridCheckpoint(wider, "qwen3_5", { mtp_num_hidden_layers: 1, hidden_size: 64 });
  const refused = loadCheckpoint(path, { draftHead: wider });
  await expect(refused).rejects.toThrow(`${wider}: does not draft for ${path}: `);
  await expect(refused).rejects.toThrow("mtp.");
  const lacking = join(folder, "lacking");
  await writeTinyCheckpoint(lacking, {
    config: { ...hybridConfigs.qwen3_5 },
    shapes: new Map([["mtp.norm.weight", [32]]]),
  });
  await expect(loadCheckpoint(path, { draftHead: lacking })).rejects.toThrow(
    /lacking: does not draft for .*lacks tensor mtp\./,
  );
  const damaged = join(folder, "damaged");
  await writeHybridCheckpoint(damaged, "qwen3_5", { mtp_num_hidden_layers: 1 });
  const file = join(damaged, "model.safetensors");
  writeFileSync(file, readFileSync(file).subarray(0, -100));
  await expect(loadCheckpoint(path, { draftHead: damaged })).rejects.toThrow(file);
});

test("an assistant with clusters that are none is refused, both named", async () => {
  const folder = await temporaryFolder();
  const gemma = join(folder, "gemma4");
  await writeHybridCheckpoint(gemma, "gemma4");
  const ORDER = "masked_embedding.token_ordering";
  const CENTROIDS = "masked_embedding.centroids.weight";
  const orderOf = (change: (order: BigInt64Array) => BigInt64Array) => (tensors: NamedTensors) => {
    const data = change(tensors.get(ORDER)!.data as BigInt64Array);
    tensors.set(ORDER, { dtype: "i64", shape: [data.length], data });
  };
  const of = (count: number, topK: number) => ({ num_centroids: count, centroid_intermediate_top_k: topK });
  const cases: [ReturnType<typeof of>, (tensors: NamedTensors) => void, string][] = [
    [of(6, 2), (tensors) => tensors.delete(ORDER), `lacks tensor ${ORDER}`],
    [of(6, 2), (tensors) => tensors.delete(CENTROIDS), `lacks tensor ${CENTROIDS}`],
    [
      of(6, 2),
      (tensors) => [ORDER, CENTROIDS].map((name) => tensors.delete(name)),
      `lacks tensor ${CENTROIDS} and ${ORDER}`,
    ],
    [of(6, 2), orderOf((order) => order.with(3, order[2]!)), "expected each of 282 ids once but found"],
    [of(6, 2), orderOf((order) => order.with(3, 282n)), "expected ids from 0 to 281 but found 282"],
    [of(6, 2), orderOf((order) => order.with(3, -1n)), "expected ids from 0 to 281 but found -1"],
    [of(6, 2), orderOf((order) => order.slice(1)), "expected an id for each of 282 tokens but found 281"],
    [of(7, 2), () => {}, "num_centroids: expected a divisor of vocab_size, 282, but found 7"],
    [of(6, 7), () => {}, "centroid_intermediate_top_k: expected at most num_centroids, 6, but found 7"],
    [
      of(6, 2),
      (tensors) => tensors.set(CENTROIDS, { dtype: "f32", shape: [3, 32], data: new Float32Array(96) }),
      `${CENTROIDS}: expected shape [6,32] by the config but found [3,32]`,
    ],
  ];
  for (const [i, [clusters, edit, message]] of cases.entries()) {
    const draftHead = join(folder, `${i}`);
    await writeAssistantCheckpoint(draftHead);
    await addClusters(draftHead, clusters, edit);
    const refused = loadCheckpoint(gemma, { draftHead });
    await expect(refused).rejects.toThrow(`${draftHead}: does not draft for ${gemma}: `);
    await expect(refused).rejects.toThrow(message);
  }
});

/** Values of a tensor that follow from its name. */
function fillByName(name: string, values: Float32Array): void {
  let state = [...name].reduce((sum, character) => (31 * sum + character.charCodeAt(0)) % 65521, 7);
  for (const i of values.keys()) {
    state = (1103515245 * state + 12345) % 2147483648;
    values[i] = state / 2147483648 - 0.5;
  }
}

test("with an embedding and a head of its own, of a checkpoint and of a GGUF file, the first of two layers", async () => {
  const folder = await temporaryFolder();
  const [shared, own] = [join(folder, "shared"), join(folder, "own")] as const;
  const TABLE = "model.embed_tokens.weight";
  const { hidden_size: hidden, vocab_size: vocabulary } = hybridConfigs.qwen3_5;
  await writeHybridCheckpoint(shared, "qwen3_5", { mtp_num_hidden_layers: 1 }, fillByName);
  const changes = { mtp_num_hidden_layers: 1, mtp_use_dedicated_embeddings: true, mtp_use_dedicated_head: true };
  await writeHybridCheckpoint(own, "qwen3_5", changes, (name, values) => {
    const isTable = name === "mtp.embed_tokens.weight" || name === "mtp.shared_head.head.weight";
    fillByName(isTable ? TABLE : name, values);
    // Token 250 is what 17 is elsewhere; the last row of the head is that of token 0.
    if (name === "mtp.embed_tokens.weight") values.copyWithin(250 * hidden, 17 * hidden, 18 * hidden);
    if (name === "mtp.shared_head.head.weight") values.copyWithin((vocabulary - 1) * hidden, 0, hidden);
  });
  const guessOf = async (path: string, token: number, draftHead?: string) => {
    const model = await loadCheckpoint(path, { draftHead });
    expect(model.unreadTensors).toEqual([]);
    const logits = await guess(model, token);
    if (path === own) await saveGguf(model, `${own}.gguf`);
    await model.close();
    return logits;
  };
  const expected = await guessOf(shared, 17);
  expected[vocabulary - 1] = expected[0]!;
  expect(await guessOf(own, 250)).toEqual(expected);
  expect(cosine(await guessOf(`${own}.gguf`, 250), expected)).toBeGreaterThan(0.999);
  expect(cosine(await guessOf(shared, 250, `${own}.gguf`), expected)).toBeGreaterThan(0.999);
});

/** What MiMo's layer makes of a token behind one other, where values of its attention are zeros: as plain loops have it. */
function mimoGuess(tensors: ReadonlyMap<string, Float32Array>, before: readonly number[], token: number): number[] {
  const layer = (name: string) => tensors.get(`model.mtp_layers.0.${name}.weight`)!;
  const times = (weights: Float32Array, x: readonly number[]) =>
    Array.from({ length: weights.length / x.length }, (_, row) =>
      x.reduce((sum, value, i) => sum + value * weights[row * x.length + i]!, 0),
    );
  const normed = (x: readonly number[], name: string) => {
    const mean = x.reduce((sum, value) => sum + value * value, 0) / x.length;
    return x.map((value, i) => (value / Math.sqrt(mean + 1e-5)) * layer(name)[i]!);
  };
  const table = tensors.get("model.embed_tokens.weight")!;
  const embedded = Array.from(table.subarray(token * before.length, (token + 1) * before.length));
  const joined = [...normed(before, "hidden_layernorm"), ...normed(embedded, "token_layernorm")];
  const x = times(layer("input_proj"), joined);
  const inner = normed(x, "post_attention_layernorm");
  const [gate, up] = [times(layer("mlp.gate_proj"), inner), times(layer("mlp.up_proj"), inner)];
  const gated = gate.map((value, i) => (value / (1 + Math.exp(-value))) * up[i]!);
  const thought = times(layer("mlp.down_proj"), gated);
  const last = normed(
    x.map((value, i) => value + thought[i]!),
    "final_layernorm",
  );
  return times(tensors.get("lm_head.weight")!, last);
}

test("of MiMo, whose tensors have other names and whose parts are joined in the other order", async () => {
  const folder = join(await temporaryFolder(), "mimo");
  const { hidden_size: hidden } = tinyConfig;
  const config = {
    ...{ architectures: ["MiMoForCausalLM"], num_nextn_predict_layers: 1, tie_word_embeddings: false },
    attention_bias: true,
  };
  const { slots } = buildDecoder("config.json", { ...tinyConfig, ...config, mtp_num_hidden_layers: 1 });
  const names: Readonly<Record<string, string>> = {
    ...{ "mtp.fc": "input_proj", "mtp.norm": "final_layernorm" },
    ...{ "mtp.pre_fc_norm_embedding": "token_layernorm", "mtp.pre_fc_norm_hidden": "hidden_layernorm" },
  };
  const storedName = (name: string) => {
    const own = names[name.replace(/\.weight$/, "")];
    return own ? `model.mtp_layers.0.${own}.weight` : name.replace("mtp.layers.0", "model.mtp_layers.0");
  };
  const tensors = new Map<string, Float32Array>();
  await writeTinyCheckpoint(folder, {
    config,
    shapes: new Map(slots.map(({ name, shape }) => [storedName(name), shape])),
    edit(name, values) {
      if (/mtp.+v_proj/.test(name)) values.fill(0);
      // The first logits are the hidden state.
      if (name === "lm_head.weight")
        for (let i = 0; i < hidden * hidden; i++) values[i] = i % hidden === Math.floor(i / hidden) ? 1 : 0;
      tensors.set(name, values);
    },
  });
  const model = await loadCheckpoint(folder);
  expect(model.unreadTensors).toEqual([]);
  const llm = await loadCompiled(model);
  await model.close();
  const decoder = llm.createDecoder();
  const before = Array.from((await decoder.prefill([5, 100])).subarray(0, hidden));
  const found = (await decoder.draft!([250]))!;
  for (const [i, value] of mimoGuess(tensors, before, 250).entries()) expect(found[i]).toBeCloseTo(value, 4);
  await llm.dispose();
});

test("of layers behind the first, and of kinds that there is no place for, a note tells", async () => {
  const folder = await temporaryFolder();
  const several = join(folder, "several");
  await writeHybridCheckpoint(several, "qwen3_5", { mtp_num_hidden_layers: 1 });
  const config = join(several, "config.json");
  const fields = JSON.parse(readFileSync(config, "utf8"));
  writeFileSync(config, JSON.stringify({ ...fields, mtp_num_hidden_layers: 3 }));
  const model = await loadCheckpoint(several);
  expect(model.checkpoint.notes).toEqual([`${config}: of 3 layers of multi-token prediction, the first drafts`]);
  expect(model.decoder.draftHead).not.toBe(null);
  await model.close();
  writeFileSync(config, JSON.stringify({ ...fields, mtp_num_hidden_layers: 0, num_nextn_predict_layers: 1 }));
  const other = await loadCheckpoint(several);
  const named = "num_nextn_predict_layers 1 of Qwen3_5ForCausalLM is not supported; the model cannot draft for itself";
  expect(other.checkpoint.notes[0]).toBe(`${config}: ${named}`);
  await other.close();
});

test("to a size, which is no reason to have fewer bits where no prediction shows it", async () => {
  const found = await guessWith(async (model) => {
    quantize(model, [configOf("mse")]);
    const bytes = Math.round(programBytes(model) * 0.93);
    await fitSize(model, text, { ...reading, bytes });
    expect(programBytes(model)).toBeLessThanOrEqual(bytes);
    expect(model.configOf(FC)?.bits).toBe(8);
  });
  expect(cosine(found, float)).toBeGreaterThan(0.95);
});

test.each([
  ["floats", null],
  ["8 bits", configOf("mse")],
] as const)("of a large vocabulary, tokens of the least ids are guessed: %s", async (_, config) => {
  const vocabulary = 98_336;
  const folder = join(await temporaryFolder(), "large");
  await writeHybridCheckpoint(folder, "qwen3_5", { mtp_num_hidden_layers: 1, vocab_size: vocabulary });
  const guessOf = async (change: (model: Model) => void) => {
    const model = await loadCheckpoint(folder);
    if (config) quantize(model, [config]);
    change(model);
    const logits = await guess(model);
    await model.close();
    return logits;
  };
  const all = await guessOf(({ decoder }) => {
    for (const part of [decoder.draftHead!, decoder.transformer!.drafter!])
      Object.defineProperty(part, "vocabularySize", { value: vocabulary });
  });
  const found = await guessOf(() => {});
  expect([all.length, found.length]).toEqual([vocabulary, 98_304]);
  expect(found).toEqual(all.subarray(0, found.length));
});
