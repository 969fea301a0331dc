/** A model written in TorchAO's names and read again is the same model, to the last bit of its integers and scales. */
import { mkdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { InvalidFileError } from "../src/errors.ts";
import {
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  quantize,
  saveTorchao,
} from "../src/index.ts";
import { compileModel, loadProgramObject } from "../src/tools/index.ts";
import { temporaryFolder } from "./support/folders.ts";
import { expectSame } from "./support/same.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const folder = await temporaryFolder();
const source = join(folder, "source");
await writeTinyCheckpoint(source, { config: { tie_word_embeddings: false } });

async function logitsOf(path: string, configs: Parameters<typeof quantize>[1], saveTo?: string): Promise<Float32Array> {
  const model = await loadCheckpoint(path);
  if (configs.length > 0) quantize(model, configs, { quantizeHead: false });
  if (saveTo) await saveTorchao(model, saveTo);
  const llm = await loadProgramObject(compileModel(model), path);
  await model.close();
  return llm.createDecoder().prefill([5, 1, 200, 17]);
}

describe("saveTorchao", () => {
  it.each([
    [
      "8da4w in groups",
      int8DynamicActivationIntxWeight({
        bits: 4,
        groupSize: 32,
        mappingType: "asymmetric",
        activationGranularity: "per_token",
      }),
    ],
    [
      "8da3w by rows",
      int8DynamicActivationIntxWeight({
        bits: 3,
        groupSize: "axis",
        mappingType: "asymmetric",
        activationGranularity: "per_token",
      }),
    ],
    ["weights only", intxWeightOnly({ bits: 8, groupSize: 16, mappingType: "asymmetric" })],
  ])("%s", async (name, config) => {
    const target = join(folder, name);
    const before = await logitsOf(source, [config], target);
    expectSame(await logitsOf(target, []), before);
    const written = JSON.parse(await readFile(join(target, "config.json"), "utf8"));
    expect(written.quantization_config).toMatchObject({ quant_method: "torchao" });
  });

  it("names a file that it cannot write", async () => {
    const model = await loadCheckpoint(source);
    const inTheWay = join(folder, "in the way", "tokenizer.json");
    await mkdir(inTheWay, { recursive: true });
    await expect(saveTorchao(model, dirname(inTheWay))).rejects.toThrow(
      new InvalidFileError(inTheWay, "expected a file to write but found a directory"),
    );
    await model.close();
  });

  it("refuses what TorchAO's integers cannot hold", async () => {
    const model = await loadCheckpoint(source);
    quantize(model, [int8DynamicActivationIntxWeight({ bits: 1, groupSize: 32 })]);
    await expect(saveTorchao(model, join(folder, "one"))).rejects.toThrow(/cannot hold codebooks/);
    await model.close();
  });
});
