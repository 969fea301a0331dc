/** GGUF files of Gemma 4's assistants, in the spellings that llama.cpp and its forks have had, draft as the folders that they were made from. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { openTensorFile } from "../src/formats/shards.ts";
import { loadCheckpoint, loadCompiled } from "../src/index.ts";
import { bytesOf } from "../src/tensor.ts";
import { temporaryFolder } from "./support/folders.ts";
import { type GgufEntry, ggufFile, type Metadata } from "./support/gguf.ts";
import { writeAssistantCheckpoint, writeHybridCheckpoint } from "./support/hybrid-checkpoint.ts";
import { expectSame } from "./support/same.ts";

const folder = await temporaryFolder();
const [target, assistant] = [join(folder, "gemma4"), join(folder, "assistant")] as const;
beforeAll(async () => {
  await writeHybridCheckpoint(target, "gemma4");
  await writeAssistantCheckpoint(assistant);
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
  readonly changes?: Readonly<Record<string, Metadata>>;
  readonly without?: string;
}

async function writeAssistantGguf({ architecture, projection, changes = {}, without }: Spelling): Promise<string> {
  const file = await openTensorFile(join(assistant, "model.safetensors"));
  const entries: GgufEntry[] = [];
  for (const stored of file.names) {
    const { shape, data } = await file.read(stored);
    const [, layer, part = ""] = /^model\.layers\.(\d+)\.(.+)$/.exec(stored) ?? [];
    const name =
      layer === undefined
        ? stored
            .replace("model.embed_tokens", "token_embd")
            .replace("model.norm", "output_norm")
            .replace(/^(pre|post)_projection/, (_, which) => projection.replace("*", which))
        : `blk.${layer}.${layerNames[part]}`;
    if (name !== without) entries.push({ name, sizes: shape.toReversed(), type: 0, data: bytesOf(data) });
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

it.each<[string, Omit<Spelling, "architecture" | "projection">, string]>([
  [
    "that lacks its projection",
    { without: "nextn.post_projection.weight" },
    "gemma4-assistant.gguf: expected a tensor nextn.post_projection.weight, which assistants have",
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
