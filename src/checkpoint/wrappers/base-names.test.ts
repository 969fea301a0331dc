/** Checkpoints whose names lack "model.", and tensors of doubles: the same logits as of usual ones. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { expectSame } from "../../../test/support/same.ts";
import { tinyConfig, tinyShapes, writeTinyCheckpoint } from "../../../test/support/tiny-checkpoint.ts";
import { EagerModel } from "../../api/eager-model.ts";
import { writeSafetensors } from "../../formats/safetensors-writer.ts";
import { openTensorFile } from "../../formats/shards.ts";
import { bytesOf } from "../../tensor.ts";
import { loadCheckpoint } from "../load.ts";

const folder = await temporaryFolder();
const usual = join(folder, "usual");
await writeTinyCheckpoint(usual, { shapes: tinyShapes({ tie_word_embeddings: false }) });
await writeTinyCheckpoint(join(folder, "tied"));

/** A copy of a checkpoint with the tensors that `changed` makes of its own. */
async function copy(
  from: string,
  name: string,
  changed: (name: string, values: Float32Array) => { name: string; data: Float32Array | Float64Array },
): Promise<string> {
  const path = join(folder, name);
  await writeTinyCheckpoint(path);
  await writeFile(join(path, "config.json"), await readFile(join(from, "config.json")));
  const file = await openTensorFile(join(from, "model.safetensors"));
  const entries = await Promise.all(
    file.names.map(async (stored) => {
      const { shape, data } = await file.read(stored);
      const made = changed(stored, data as Float32Array);
      const dtype = made.data instanceof Float64Array ? ("f64" as const) : ("f32" as const);
      return { name: made.name, dtype, shape, data: async () => made.data };
    }),
  );
  await file.close();
  await writeSafetensors(join(path, "model.safetensors"), entries);
  return path;
}

async function logits(path: string): Promise<Float32Array> {
  const model = await loadCheckpoint(path);
  expect(model.unreadTensors).toEqual([]);
  const { data } = (await EagerModel.load(model)).forward([3, 1, 4, 1, 5], 0);
  await model.close();
  return data as Float32Array;
}

const withoutPrefix = (name: string, data: Float32Array) => ({ name: name.replace(/^model\./, ""), data });

it("names without the prefix are those of the decoder", async () => {
  expectSame(await logits(await copy(usual, "base", withoutPrefix)), await logits(usual));
  const tied = join(folder, "tied");
  expectSame(await logits(await copy(tied, "tied-base", withoutPrefix)), await logits(tied));
});

it("a tensor that such a checkpoint lacks is named", async () => {
  const path = await copy(usual, "lacking", (name, data) =>
    withoutPrefix(name === "model.norm.weight" ? "model.other.weight" : name, data),
  );
  await expect(loadCheckpoint(path)).rejects.toThrow("expected tensor model.norm.weight, which the checkpoint lacks");
});

it("doubles are read as float32", async () => {
  const path = await copy(usual, "doubles", (name, data) => ({
    name,
    data: Float64Array.from(data, (x) => x + 1e-12),
  }));
  expectSame(await logits(path), await logits(usual));
  const model = await loadCheckpoint(path);
  const { tensors } = model.checkpoint;
  expect(tensors.info("model.norm.weight").dtype).toBe("f32");
  expect(tensors.storedType?.("model.norm.weight")).toBe("f64");
  const rows = await tensors.readRows("lm_head.weight", 3, 2);
  expect([rows.dtype, bytesOf(rows.data).length]).toEqual(["f32", 2 * 4 * tinyConfig.hidden_size]);
  await model.close();
});
