/** Quantized checkpoints of others against the values that their own libraries give, and logits of transformers on those. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openCheckpoint } from "../src/formats/checkpoint.ts";
import { EagerModel, intxWeightOnly, loadCheckpoint, quantize } from "../src/index.ts";
import { toFloat32 } from "../src/tensor.ts";
import { compileModel, loadProgramObject } from "../src/tools/index.ts";
import { distance } from "./support/distance.ts";
import { doubleLlama } from "./support/double-llama.ts";
import { absence, shared } from "./support/folders.ts";

interface Golden {
  readonly input_ids: readonly number[];
  readonly dequantized_first_row: Readonly<Record<string, readonly number[]>>;
  readonly last_logits: readonly number[];
}

const path = "golden/models-2026/quantized";
const folders = absence(path) ? [] : readdirSync(join(shared, path));

/** Models whose logits change by 3.5 and 4.0 % when activations are rounded to 8 bits with a scale a row: see docs/accuracy.md. */
const far = ["bnb-int8", "gptq-w2-g32-asym"];

/** Zero without a sign: codebooks have one zero, e2m1 two. */
const unsigned = (value: number) => value + 0;

describe.skipIf(folders.length === 0)(`quantized checkpoints${absence(path)}`, () => {
  const goldenOf = (name: string) =>
    JSON.parse(readFileSync(join(shared, path, name, "golden.json"), "utf8")) as Golden;

  it.each(folders)("%s is read exactly", async (name) => {
    const { tensors, close } = await openCheckpoint(join(shared, path, name));
    for (const [weight, row] of Object.entries(goldenOf(name).dequantized_first_row))
      expect(toFloat32(await tensors.readRows(weight, 0, 1)).map(unsigned)).toEqual(Float32Array.from(row, unsigned));
    await close();
  });

  it.each(folders)("%s gives the logits of its values", async (name) => {
    const golden = goldenOf(name);
    const model = await loadCheckpoint(join(shared, path, name)).catch((error: Error) => {
      // A model of an architecture that there is not yet.
      if (/architecture \w+ is not supported/.test(error.message)) return null;
      throw error;
    });
    if (!model) return;
    const logitsOf = async () =>
      (await loadProgramObject(compileModel(model), name)).createDecoder().prefill(golden.input_ids);
    model.activations = "float";
    expect(distance(await logitsOf(), golden.last_logits).relative).toBeLessThan(1e-4);
    const all = toFloat32((await EagerModel.load(model)).forward(golden.input_ids, 0));
    expect(distance(all.slice(-golden.last_logits.length), golden.last_logits).relative).toBeLessThan(1e-4);
    model.activations = null;
    const rounded = await logitsOf();
    const { relative, correlation } = distance(rounded, golden.last_logits);
    // What rounding costs is what it costs in double precision: kernels add nothing to it.
    if (model.network.architecture === "llama")
      expect(distance(rounded, await doubleLlama(model.checkpoint, golden.input_ids, true)).relative).toBeLessThan(
        1e-5,
      );
    const isFar = far.includes(name);
    expect(relative).toBeLessThan(isFar ? 0.04 : 0.03);
    expect(correlation).toBeGreaterThan(isFar ? 0.999 : 0.9995);
    quantize(model, [intxWeightOnly({ bits: 8, groupSize: 32 })], { quantizeHead: false });
    expect(distance(await logitsOf(), golden.last_logits).relative).toBeLessThan(0.04);
    await model.close();
  });
});
