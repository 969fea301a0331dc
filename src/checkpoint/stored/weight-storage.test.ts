/** Storages of weights: what is asked of them when a checkpoint is opened. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../../test/support/tiny-checkpoint.ts";
import { InvalidFileError } from "../../errors.ts";
import { loadCheckpoint } from "../load.ts";
import { registerWeightStorage } from "./weight-storage.ts";

const folder = join(await temporaryFolder(), "tiny");
const stored = "model.layers.0.self_attn.q_proj.weight";

it("a weight is looked for once, and what was found is verified", async () => {
  await writeTinyCheckpoint(folder);
  const calls: string[] = [];
  let isBad = false;
  registerWeightStorage({
    name: "Listed",
    find(checkpoint, { name, shape }) {
      if (checkpoint.folder !== folder) return null;
      calls.push(`find ${name}`);
      if (name !== stored) return null;
      const load = () => checkpoint.tensors.read(name);
      const verify = async () => {
        calls.push(`verify ${name}`);
        if (isBad) throw new InvalidFileError(checkpoint.folder, `tensor ${name}: bad`);
      };
      return { name, shape, format: { kind: "float" }, load, verify };
    },
  });
  const model = await loadCheckpoint(folder);
  const own = model.decoder.slots.filter(({ tiedTo }) => tiedTo === null).map(({ name }) => name);
  expect(calls).toEqual([...own.map((name) => `find ${name}`), `verify ${stored}`]);
  await model.close();
  isBad = true;
  await expect(loadCheckpoint(folder)).rejects.toThrow(`${folder}: tensor ${stored}: bad`);
});

it.each([
  ["aqlm", 'quantization_config: expected an object but found "aqlm"'],
  [[1], "quantization_config: expected an object but found an array"],
  [{ quant_method: 4 }, "quantization_config.quant_method: expected a name but found 4"],
])("a quantization_config of another type is refused: %j", async (quantization, problem) => {
  const other = join(await temporaryFolder(), "wrong");
  await writeTinyCheckpoint(other, { config: { quantization_config: quantization } });
  await expect(loadCheckpoint(other)).rejects.toThrow(`config.json: ${problem}`);
  await expect(loadCheckpoint(other)).rejects.toThrow(InvalidFileError);
});
