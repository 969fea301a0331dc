/** Tensors that the config gives no place, and values of norms and biases: told when a checkpoint is opened. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { writeAqlmCheckpoint } from "../../test/support/aqlm-checkpoint.ts";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { tinyConfig, tinyShapes, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import type { TensorEntry } from "../formats/safetensors-writer.ts";
import { loadCheckpoint } from "../index.ts";

const folder = await temporaryFolder();
const bias = "model.layers.1.self_attn.q_proj.bias";
const harmless = ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.self_attn.masked_bias"];

/** Names of the unread tensors of a checkpoint. */
async function unread(path: string): Promise<readonly string[]> {
  const model = await loadCheckpoint(path);
  await model.close();
  return model.unreadTensors;
}

it("biases that the config does not say are named; tables that follow from it are not", async () => {
  const path = join(folder, "float");
  const shapes = tinyShapes();
  for (const name of [bias, "model.extra.weight", ...harmless]) shapes.set(name, [32]);
  shapes.set("lm_head.weight", [tinyConfig.vocab_size, tinyConfig.hidden_size]);
  await writeTinyCheckpoint(path, { shapes });
  expect((await unread(path)).toSorted()).toEqual(["model.extra.weight", bias].toSorted());
  for (const argv of [
    ["logits", path, "--ids", "1"],
    ["quantize", path, "-o", join(folder, "float.pte")],
  ]) {
    const { code, stderr } = await lowbit(argv);
    expect(code).toBe(0);
    expect(stderr).toContain(`config.json: LlamaForCausalLM has no place for `);
    expect(stderr).toContain(bias);
  }
});

it("those of AQLM layers are their own, but for the bias", async () => {
  const path = join(folder, "aqlm");
  const form = { codebooks: 2, bits: 8, inGroup: 8, outGroup: 1 };
  await writeAqlmCheckpoint(path, form);
  expect(await unread(path)).toEqual([]);
  const data = async () => new Float32Array(32);
  const edit = (entries: TensorEntry[]) => [...entries, { name: bias, dtype: "f32" as const, shape: [32], data }];
  await writeAqlmCheckpoint(path, { ...form, edit });
  expect(await unread(path)).toEqual([bias]);
});

it("NaN and infinity in norms and biases are errors that name the tensor", async () => {
  const config = { attention_bias: true };
  for (const [name, value] of [
    [bias, Number.NaN],
    ["model.norm.weight", Number.POSITIVE_INFINITY],
  ] as const) {
    const path = join(folder, name);
    const edit = (other: string, values: Float32Array) => other === name && values.fill(value, 5, 6);
    await writeTinyCheckpoint(path, { config, edit });
    await expect(loadCheckpoint(path)).rejects.toThrow(
      `tensor ${name}: expected finite numbers but found ${value} at 5`,
    );
  }
});
