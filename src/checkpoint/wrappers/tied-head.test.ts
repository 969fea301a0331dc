/** Configs that tie the head to the embedding, of checkpoints that store something else: what transformers 5 makes of them. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { expectSame } from "../../../test/support/same.ts";
import {
  type TinyOptions,
  tinyConfig,
  tinyShapes,
  writeTinyCheckpoint,
} from "../../../test/support/tiny-checkpoint.ts";
import { EagerModel } from "../../api/eager-model.ts";
import { saveTorchao } from "../../api/save-torchao.ts";
import { ShapeError } from "../../errors.ts";
import { loadCheckpoint } from "../load.ts";

const folder = await temporaryFolder();
const [embedding, head] = ["model.embed_tokens.weight", "lm_head.weight"] as const;
const sizes = [tinyConfig.vocab_size, tinyConfig.hidden_size] as const;

/** Shapes of a checkpoint with the head, whatever its config says. */
const both = () => tinyShapes({ tie_word_embeddings: false });

async function write(name: string, options: TinyOptions): Promise<string> {
  await writeTinyCheckpoint(join(folder, name), options);
  return join(folder, name);
}

/** Logits after some tokens, and what the head is tied to. */
async function opened(path: string) {
  const model = await loadCheckpoint(path);
  const { data } = (await EagerModel.load(model)).forward([3, 1, 4, 1, 5], 0);
  const { tiedTo } = model.decoder.slots.find(({ name }) => name === head)!;
  await model.close();
  return { logits: data as Float32Array, tiedTo, unread: model.unreadTensors };
}

it("a head with values of its own is used, as if the config did not tie it", async () => {
  const path = await write("own", { shapes: both() });
  const found = await opened(path);
  const untied = await opened(await write("untied", { shapes: both(), config: { tie_word_embeddings: false } }));
  expect(found.tiedTo).toBeNull();
  expectSame(found.logits, untied.logits);
  const model = await loadCheckpoint(path);
  await saveTorchao(model, join(folder, "saved"));
  await model.close();
  expectSame((await opened(join(folder, "saved"))).logits, untied.logits);
});

it("a head that repeats the embedding stays tied to it", async () => {
  const fill = (name: string, values: Float32Array) => {
    if (name === head || name === embedding) for (const i of values.keys()) values[i] = Math.sin(i);
  };
  const repeated = await opened(await write("repeated", { shapes: both(), edit: fill, dtype: "bf16" }));
  const tied = await opened(await write("tied", { edit: fill, dtype: "bf16" }));
  expect(repeated).toMatchObject({ tiedTo: embedding, unread: [] });
  expect(tied.tiedTo).toBe(embedding);
  // The last value of the last row makes a difference, too.
  const last = (name: string, values: Float32Array) => {
    fill(name, values);
    if (name === head) values[values.length - 1] = 2;
  };
  expect((await opened(await write("last", { shapes: both(), edit: last, dtype: "bf16" }))).tiedTo).toBeNull();
});

it("a head in place of the embedding is both", async () => {
  const shapes = new Map([...tinyShapes()].map(([name, shape]) => [name === embedding ? head : name, shape]));
  const alone = await opened(await write("alone", { shapes }));
  const tied = await opened(await write("embedding", {}));
  expect(alone).toMatchObject({ tiedTo: embedding, unread: [] });
  expectSame(alone.logits, tied.logits);
});

it("a head of another shape is refused", async () => {
  const shapes = both().set(head, [sizes[0] + 1, sizes[1]]);
  await expect(loadCheckpoint(await write("shape", { shapes }))).rejects.toThrow(ShapeError);
  await expect(loadCheckpoint(join(folder, "shape"))).rejects.toThrow(
    `tensor ${head}: expected shape [${sizes}] by the config but found [${sizes[0] + 1},${sizes[1]}]`,
  );
});
