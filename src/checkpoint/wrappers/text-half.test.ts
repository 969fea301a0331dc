/** Models that see as well: the same logits as of their text half by itself, whatever the names of its tensors begin with. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { expectSame } from "../../../test/support/same.ts";
import { tinyConfig, tinyShapes, writeTinyCheckpoint } from "../../../test/support/tiny-checkpoint.ts";
import { EagerModel } from "../../api/eager-model.ts";
import { UnsupportedError } from "../../errors.ts";
import { writeSafetensors } from "../../formats/safetensors-writer.ts";
import { openTensorFile } from "../../formats/shards.ts";
import { loadCheckpoint } from "../load.ts";
import type { Model } from "../model.ts";

const folder = await temporaryFolder();
const text = join(folder, "text");
await writeTinyCheckpoint(text, { shapes: tinyShapes({ tie_word_embeddings: false }) });
const { architectures: _, ...textFields } = tinyConfig;
const whole = {
  architectures: ["LlavaForConditionalGeneration"],
  model_type: "llava",
  tie_word_embeddings: false,
  text_config: { ...textFields, model_type: "llama" },
};

/** The text model within another, whose config is given, with a tensor of a vision tower beside it. */
async function within(name: string, config: object, shown: (name: string) => string): Promise<string> {
  const path = join(folder, name);
  await writeTinyCheckpoint(path);
  await writeFile(join(path, "config.json"), JSON.stringify(config));
  const file = await openTensorFile(join(text, "model.safetensors"));
  const entries = await Promise.all(
    file.names.map(async (stored) => {
      const { shape, data } = await file.read(stored);
      return { name: shown(stored), dtype: "f32" as const, shape, data: async () => data };
    }),
  );
  await file.close();
  const seen = {
    name: "vision_tower.patches.weight",
    dtype: "f32" as const,
    shape: [2],
    data: async () => new Float32Array(2),
  };
  const draft = { ...seen, name: "mtp.norm.weight" };
  await writeSafetensors(join(path, "model.safetensors"), [...entries, seen, draft]);
  return path;
}

function logits(model: Promise<Model>): Promise<Float32Array> {
  return model.then(async (opened) => {
    const { data } = (await EagerModel.load(opened)).forward([3, 1, 4, 1, 5], 0);
    await opened.close();
    return data as Float32Array;
  });
}

it.each<[string, (name: string) => string]>([
  ["language_model.model., as transformers 4 wrote", (name) => `language_model.${name}`],
  [
    "model.language_model., as transformers 5 writes",
    (name) => (name.startsWith("model.") ? name.replace("model.", "model.language_model.") : name),
  ],
  ["model.text_model.", (name) => (name.startsWith("model.") ? name.replace("model.", "model.text_model.") : name)],
  ["nothing of its own", (name) => name],
])("names that begin with %s", async (prefix, shown) => {
  const path = await within(prefix.slice(0, 12), whole, shown);
  const model = await loadCheckpoint(path);
  expect(model.network.architecture).toBe("LlamaForCausalLM");
  expect(model.unreadTensors).toEqual([]);
  expect(model.checkpoint.notes).toEqual([
    `${join(path, "config.json")}: LlavaForConditionalGeneration is used as its text half, LlamaForCausalLM; 2 tensors are left out: vision_tower, mtp`,
  ]);
  expectSame(await logits(Promise.resolve(model)), await logits(loadCheckpoint(text)));
});

it("a config that names no class is known by its text_config", async () => {
  const { architectures: _, ...nameless } = whole;
  const path = await within("nameless", nameless, (name) => `language_model.${name}`);
  const model = await loadCheckpoint(path);
  expect(model.checkpoint.notes).toEqual([expect.stringContaining("config.json: llava is used as its text half")]);
  expectSame(await logits(Promise.resolve(model)), await logits(loadCheckpoint(text)));
});

it("a config without text_config has the decoder's fields beside its own: those of Qwen 2, whose biases are missing here", async () => {
  const heads = { num_key_value_heads: 2, tie_word_embeddings: true };
  const config = {
    ...textFields,
    ...heads,
    architectures: ["Qwen2_5_VLForConditionalGeneration"],
    model_type: "qwen2_5_vl",
  };
  const path = await within(
    "flat",
    { ...config, rope_scaling: { type: "mrope", mrope_section: [1, 1, 2] } },
    (name) => name,
  );
  await expect(loadCheckpoint(path)).rejects.toThrow(/q_proj.bias/);
});

it("what ends a text may stand beside text_config; a stored head of its own is not tied", async () => {
  const tied = {
    ...whole,
    tie_word_embeddings: undefined,
    eos_token_id: 7,
    text_config: { ...whole.text_config, eos_token_id: undefined },
  };
  const model = await loadCheckpoint(await within("ends", tied, (name) => `language_model.${name}`));
  expect(model.checkpoint.config).toMatchObject({ eos_token_id: 7, tie_word_embeddings: false, model_type: "llama" });
  await model.close();
});

it("what published configs leave out is what transformers assumes of the type", async () => {
  const sparse = { ...whole, text_config: { model_type: "llama" } };
  const path = await within("sparse", sparse, (name) => `language_model.${name}`);
  await expect(loadCheckpoint(path)).rejects.toThrow(/expected shape \[32000,4096\]|32000/);
});

it("a text half that is not here is refused by its name", async () => {
  const other = { ...whole, text_config: { ...textFields, model_type: "bloom" } };
  const path = await within("other", other, (name) => name);
  await expect(loadCheckpoint(path)).rejects.toThrow(UnsupportedError);
  await expect(loadCheckpoint(path)).rejects.toThrow(
    /architecture LlavaForConditionalGeneration is not supported: its text half is of model_type "bloom", not one of llama, /,
  );
});

it("errors of fields name text_config", async () => {
  const wrong = { ...whole, text_config: { ...whole.text_config, num_hidden_layers: 0 } };
  const path = await within("wrong", wrong, (name) => name);
  await expect(loadCheckpoint(path)).rejects.toThrow(
    /config\.json, text_config: num_hidden_layers: expected a positive integer/,
  );
  expect(await readFile(join(path, "config.json"), "utf8")).toContain("llava");
});
