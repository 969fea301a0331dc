/** GGUF files of Gemma 4's assistants, in the spellings that llama.cpp and its forks have had, draft as the folders that they were made from. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { openTensorFile } from "../src/formats/shards.ts";
import { loadCheckpoint, loadCompiled } from "../src/index.ts";
import { bytesOf } from "../src/tensor.ts";
import { temporaryFolder } from "./support/folders.ts";
import { type GgufEntry, ggufFile, type Metadata } from "./support/gguf.ts";
import { addClusters, writeAssistantCheckpoint, writeHybridCheckpoint } from "./support/hybrid-checkpoint.ts";
import { Random } from "./support/random.ts";
import { expectSame } from "./support/same.ts";

const folder = await temporaryFolder();
const [target, assistant] = [join(folder, "gemma4"), join(folder, "assistant")] as const;
/** One whose tokens lie in clusters. */
const clustered = join(folder, "clustered");
beforeAll(async () => {
  await writeHybridCheckpoint(target, "gemma4");
  for (const path of [assistant, clustered]) await writeAssistantCheckpoint(path);
  await addClusters(clustered, { num_centroids: 47, centroid_intermediate_top_k: 5 });
});

const layerNames: Readonly<Record<string, string>> = {
  "input_layernorm.weight": "attn_norm.weight",
  "self_attn.q_proj.weight": "attn_q.weight",
  "self_attn.q_norm.weight": "attn_q_norm.weight",
  "self_attn.o_proj.weight": "attn_output.weight",
  "post_attention_layernorm.weight": "post_attention_norm.weight",
  "pre_feedforward_layernorm.weight": "ffn_norm.weight",
  "mlp.gate_proj.weight": "ffn_gate.weight",
  "mlp.up_proj.weight": "ffn_up.weight",
  "mlp.down_proj.weight": "ffn_down.weight",
  "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
  layer_scalar: "layer_output_scale.weight",
};

const facts = {
  ...{ context_length: 256, embedding_length: 32, feed_forward_length: 32, block_count: 2 },
  "attention.head_count": 4,
  "attention.head_count_kv": 2,
  "attention.key_length": 16,
  "attention.key_length_swa": 8,
  "attention.layer_norm_rms_epsilon": Math.fround(1e-5),
  "attention.sliding_window": 24,
  "attention.sliding_window_pattern": Int32Array.of(1, 0),
  "attention.shared_kv_layers": 2,
};

interface Spelling {
  readonly architecture: string;
  /** Names of the two projections, with `*` for "pre" and "post". */
  readonly projection: string;
  /** The folder that it is made of. */
  readonly from?: string;
  readonly changes?: Readonly<Record<string, Metadata>>;
  readonly without?: string;
  /** Scales of the blocks of 4 bits that the head has, beside their integers: a scale (Q4_0), or a minimum, too (Q4_1). */
  readonly headScales?: Uint16Array;
}

/** A row of the head as a block of 32 integers of 4 bits. */
function headBlocks(rows: number, scales: Uint16Array): Uint8Array {
  const bytes = Uint8Array.from(new Random(3).floats(rows * 16), (value) => 256 * Math.abs(value));
  return Buffer.concat(
    Array.from({ length: rows }, (_, i) => Buffer.concat([bytesOf(scales), bytes.subarray(16 * i, 16 * (i + 1))])),
  );
}

const typeOf: Readonly<Record<string, number>> = { f32: 0, i32: 26, i64: 27 };

async function writeAssistantGguf(spelling: Spelling): Promise<string> {
  const { architecture, projection, from = assistant, changes = {}, without, headScales } = spelling;
  const file = await openTensorFile(join(from, "model.safetensors"));
  const entries: GgufEntry[] = [];
  for (const stored of file.names) {
    const { shape, data, dtype } = await file.read(stored);
    const [, layer, part = ""] = /^model\.layers\.(\d+)\.(.+)$/.exec(stored) ?? [];
    const name =
      layer === undefined
        ? stored
            .replace("model.embed_tokens", "token_embd")
            .replace("model.norm", "output_norm")
            .replace(/^(pre|post)_projection/, (_, which) => projection.replace("*", which))
            .replace(/^masked_embedding\.token_ordering$/, `${projection.replace(/\*.*/, "token_ordering")}.weight`)
            .replace(/^masked_embedding\.(?=centroids)/, projection.replace(/\*.*/, ""))
        : `blk.${layer}.${layerNames[part]}`;
    // Converters write the order as int32.
    const [type, values] = dtype === "i64" ? ["i32", Int32Array.from(data, Number)] : [dtype, data];
    const sizes = shape.toReversed();
    if (name === "token_embd.weight" && headScales)
      entries.push({ name, sizes, type: headScales.length + 1, data: headBlocks(shape[0]!, headScales) });
    else if (name !== without) entries.push({ name, sizes, type: typeOf[type]!, data: bytesOf(values) });
  }
  await file.close();
  const own = Object.entries({ ...facts, ...changes }).map(([key, value]) => [`${architecture}.${key}`, value]);
  const path = join(folder, `${architecture}.gguf`);
  await writeFile(path, ggufFile({ "general.architecture": architecture, ...Object.fromEntries(own) }, entries));
  return path;
}

async function guessWith(draftHead: string): Promise<Float32Array> {
  const model = await loadCheckpoint(target, { draftHead });
  expect(model.unreadTensors).toEqual([]);
  const llm = await loadCompiled(model);
  await model.close();
  const decoder = llm.createDecoder();
  await decoder.prefill([5, 100, 20, 7]);
  const logits = (await decoder.draft!([250]))!.slice();
  await llm.dispose();
  return logits;
}

const upstream: Spelling = { architecture: "gemma4-assistant", projection: "nextn.*_projection" };

it.each<Spelling>([
  upstream,
  { architecture: "gemma4_assistant", projection: "mtp.*_projection" },
  { architecture: "gemma4_mtp", projection: "mtp_*_proj" },
])("$architecture", async (spelling) => {
  expectSame(await guessWith(await writeAssistantGguf(spelling)), await guessWith(assistant));
});

it.each<Spelling>([
  { ...upstream, from: clustered, changes: { centroid_top_k: 5 } },
  {
    ...{ architecture: "gemma4_assistant", projection: "mtp.*_projection", from: clustered },
    changes: { centroid_top_k: 5, use_ordered_embeddings: true },
  },
  {
    ...{ architecture: "gemma4_mtp", projection: "mtp_*_proj", from: clustered },
    changes: { centroid_top_k: 5, centroid_count: 47 },
  },
])("$architecture with clusters of tokens", async (spelling) => {
  const found = await guessWith(await writeAssistantGguf(spelling));
  expectSame(found, await guessWith(clustered));
  expect(new Set(found).size).toBe(5 * 6 + 1);
});

it.each([
  ["Q4_0", Uint16Array.of(0x2800)],
  ["Q4_1", Uint16Array.of(0x2800, 0xaa00)],
])("clusters of a head of %s, which is kept as stored", async (_, headScales) => {
  const of = { ...upstream, from: clustered, headScales };
  const whole = await guessWith(
    await writeAssistantGguf({ ...of, changes: { centroid_top_k: 5, use_ordered_embeddings: false } }),
  );
  const found = await guessWith(await writeAssistantGguf({ ...of, changes: { centroid_top_k: 5 } }));
  const least = Math.min(...found);
  const chosen = [...found.keys()].filter((id) => found[id] !== least);
  expect(chosen).toHaveLength(5 * 6);
  for (const id of chosen) expect(found[id]).toBeCloseTo(whole[id]!, 4);
});

it("one that says that it has no clusters, and one that does not say how many count", async () => {
  const none = { ...upstream, from: clustered, changes: { use_ordered_embeddings: false } };
  expectSame(await guessWith(await writeAssistantGguf(none)), await guessWith(assistant));
  const found = await guessWith(await writeAssistantGguf({ ...upstream, from: clustered }));
  expect(new Set(found).size).toBe(32 * 6 + 1);
});

it.each<[string, Omit<Spelling, "architecture" | "projection">, string]>([
  [
    "that lacks its projection",
    { without: "nextn.post_projection.weight" },
    "gemma4-assistant.gguf: expected a tensor nextn.post_projection.weight, which assistants have",
  ],
  ["that lacks centroids", { from: clustered, without: "nextn.centroids.weight" }, "masked_embedding.centroids.weight"],
  [
    "that lacks an order",
    { from: clustered, without: "nextn.token_ordering.weight" },
    `gemma4-assistant.gguf: does not draft for ${target}: use_ordered_embeddings: lacks tensor masked_embedding.token_ordering`,
  ],
  [
    "with more clusters than there are",
    { from: clustered, changes: { centroid_top_k: 48 } },
    "at most num_centroids, 47",
  ],
  ["that lacks a matrix", { without: "blk.1.attn_q.weight" }, "assistant.model.layers.1.self_attn.q_proj.weight"],
  [
    "with other heads",
    { changes: { "attention.head_count_kv": 4 } },
    "the model has no layer of sliding_attention with 4 heads of keys",
  ],
])("one %s is refused by name", async (_, changes, message) => {
  const path = await writeAssistantGguf({ ...upstream, ...changes });
  const refused = loadCheckpoint(target, { draftHead: path });
  await expect(refused).rejects.toThrow(message);
});

it("one by itself is no model", async () => {
  const path = await writeAssistantGguf(upstream);
  await expect(loadCheckpoint(path)).rejects.toThrow("Gemma4AssistantForCausalLM");
});
