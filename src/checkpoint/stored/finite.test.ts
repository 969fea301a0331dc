/** Scales and minima of weights that are kept as stored, which would make all results of a layer NaN. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { Random } from "../../../test/support/random.ts";
import { tinyConfig, tinyShapes } from "../../../test/support/tiny-checkpoint.ts";
import { compileModel } from "../../api/compile-model.ts";
import { loadProgramObject } from "../../api/load-program-object.ts";
import { InvalidFileError } from "../../errors.ts";
import { type TensorEntry, writeSafetensors } from "../../formats/safetensors-writer.ts";
import { loadCheckpoint } from "../load.ts";

const folder = await temporaryFolder();
const MODULE = "model.layers.1.mlp.down_proj";

/** A checkpoint of MLX with one matrix of 4 bits in groups of 32, whose last scale and minimum are these. */
async function writeMlx(name: string, scale: number, minimum: number): Promise<string> {
  const random = new Random(5);
  const path = join(folder, name);
  await mkdir(path);
  const entries: TensorEntry[] = [...tinyShapes()].map(([tensor, shape]) => {
    const values = random.floats(
      shape.reduce((product, size) => product * size, 1),
      0.5,
    );
    return { name: tensor, dtype: "f32", shape, data: async () => values };
  });
  const at = entries.findIndex((entry) => entry.name === `${MODULE}.weight`);
  const [n, k] = entries[at]!.shape as [number, number];
  const words = Uint32Array.from({ length: (n * k) / 8 }, () => random.integer(0, 2 ** 31));
  const groups = (last: number) => random.floats((n * k) / 32, 0.1).with(-1, last);
  const [scales, biases] = [groups(scale), groups(minimum)];
  entries.splice(
    at,
    1,
    { name: `${MODULE}.weight`, dtype: "u32", shape: [n, k / 8], data: async () => words },
    { name: `${MODULE}.scales`, dtype: "f32", shape: [n, k / 32], data: async () => scales },
    { name: `${MODULE}.biases`, dtype: "f32", shape: [n, k / 32], data: async () => biases },
  );
  await writeSafetensors(join(path, "model.safetensors"), entries);
  const settings = { quantization: { bits: 4, group_size: 32 }, vocab_size: tinyConfig.vocab_size };
  await writeFile(join(path, "config.json"), JSON.stringify({ ...tinyConfig, ...settings }));
  return path;
}

it.each([
  ["a scale that is no number", Number.NaN, 0, /down_proj\.weight: expected scales of at most 2\^110 but found NaN/],
  ["an infinite scale", Number.NEGATIVE_INFINITY, 0, /expected scales of at most 2\^110 but found -Infinity/],
  ["a scale beyond float32", 3e38, 0, /expected scales of at most 2\^110 but found/],
  ["a minimum that is no number", 1, Number.NaN, /down_proj\.weight: expected minima of at most 2\^110 but found NaN/],
  ["a minimum beyond float32", 1, -3e38, /expected minima of at most 2\^110 but found/],
])("%s is refused, whatever activations are", async (name, scale, minimum, message) => {
  const model = await loadCheckpoint(await writeMlx(name, scale, minimum));
  for (const activations of ["int8", "float"] as const) {
    model.activations = activations;
    const loading = loadProgramObject(compileModel(model), name);
    await expect(loading).rejects.toThrow(message);
    await expect(loading).rejects.toThrow(InvalidFileError);
  }
  await model.close();
});

it("others are read", async () => {
  const model = await loadCheckpoint(await writeMlx("good", 2, -3));
  const llm = await loadProgramObject(compileModel(model), "good");
  expect((await llm.createDecoder().prefill([1, 2, 3])).every(Number.isFinite)).toBe(true);
  await model.close();
});
