/** GGUF files of mixtures of experts, as llama.cpp's converter writes them, read as the checkpoints that they were made from. */
import { expect, it } from "vitest";
import { EagerModel, loadCheckpoint, type Model } from "../src/index.ts";
import { weightOrigins } from "../src/tools/index.ts";
import { distance } from "./support/distance.ts";
import { temporaryFolder } from "./support/folders.ts";
import { type ExpertFileName, expertFiles, type StackType, writeExpertFiles } from "./support/gguf-experts.ts";

const folder = await temporaryFolder();
const ids = Array.from({ length: 30 }, (_, i) => (i * 29) % 90);

async function logitsOf(path: string, look: (model: Model) => void = () => {}): Promise<Float32Array> {
  const model = await loadCheckpoint(path);
  model.activations = "float";
  look(model);
  const eager = await EagerModel.load(model, { logits: "all" });
  const logits = eager.forward(ids, 0).data as Float32Array;
  await model.close();
  return logits;
}

it.each(Object.keys(expertFiles) as ExpertFileName[])("%s is its checkpoint, with stacks of matrices", async (name) => {
  const { source, path } = await writeExpertFiles(folder, name);
  const found = await logitsOf(path, (model) => {
    expect(model.decoder.architecture).toBe(expertFiles[name].name);
    expect(model.unreadTensors).toEqual([]);
  });
  expect(distance(found, await logitsOf(source)).relative).toBeLessThan(1e-4);
});

it("reads Mixtral's matrices of each expert by itself", async () => {
  const { source, path } = await writeExpertFiles(folder, "llama", { isOld: true });
  expect(distance(await logitsOf(path), await logitsOf(source)).relative).toBeLessThan(1e-4);
});

/** Rounds to blocks of MXFP4: an exponent and 32 values of a sign and 0, 0.5, 1, 1.5, 2, 3, 4 or 6, the first 16 in low bits. */
const mxfp4: StackType = {
  type: 39,
  bytes(values) {
    const steps = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
    const bytes = new Uint8Array((values.length / 32) * 17);
    for (let block = 0; block < values.length / 32; block++) {
      const own = values.subarray(32 * block, 32 * block + 32);
      const exponent = Math.floor(Math.log2(Math.max(...own.map(Math.abs)))) - 2;
      const code = (value: number) => {
        const size = Math.abs(value) / 2 ** exponent;
        const nearest = steps.reduce(
          (best, step, i) => (Math.abs(step - size) < Math.abs(steps[best]! - size) ? i : best),
          0,
        );
        return nearest + (value < 0 ? 8 : 0);
      };
      bytes[17 * block] = exponent + 127;
      for (let i = 0; i < 16; i++) bytes[17 * block + 1 + i] = code(own[i]!) + 16 * code(own[i + 16]!);
    }
    return bytes;
  },
};

it("carries stacks in few bits, which are near the floats that they were rounded from", async () => {
  const { source, path } = await writeExpertFiles(folder, "gpt-oss", { stacks: mxfp4 });
  const found = await logitsOf(path, (model) => {
    const origins = weightOrigins(model).filter(({ name }) => /experts\.\d+\.\w+_proj\.weight/.test(name));
    expect(origins.length).toBe(24);
    for (const { stored, treatment } of origins) expect([stored, treatment]).toEqual(["MXFP4", "kept as stored"]);
  });
  expect(distance(found, await logitsOf(source)).correlation).toBeGreaterThan(0.8);
});
