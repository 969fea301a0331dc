import { existsSync, readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { goldenFolder } from "../../test/support/text-models.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { calibrationIds } from "../checkpoint/calibrate/walk.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { intxWeightOnly } from "../quantize/config.ts";
import { writeCalibrationText } from "./calibration-text.ts";

const folder = await temporaryFolder();
const checkpoint = join(folder, "tiny");
await writeTinyCheckpoint(checkpoint);

async function written(options: Parameters<typeof writeCalibrationText>[1], path = checkpoint) {
  const model = await loadCheckpoint(path);
  quantize(model, [intxWeightOnly({ bits: 2, groupSize: 16, algorithm: "gptq" })]);
  const before = [...model.configs];
  try {
    const found = await writeCalibrationText(model, options);
    return { ...found, ids: calibrationIds(model, found.text, 1e6) };
  } finally {
    expect([...model.configs]).toEqual(before);
    await model.close();
  }
}

describe("a text that a model writes itself", () => {
  it("is the same for a seed, has as many tokens as asked for, and leaves configurations as they are", async () => {
    const seen: number[] = [];
    const onProgress = (done: number, total: number) => seen.push(done, total);
    const [one, again, other] = [
      await written({ tokens: 300, seed: 1, onProgress }),
      await written({ tokens: 300, seed: 1 }),
      await written({ tokens: 300, seed: 2 }),
    ];
    expect(again.text).toBe(one.text);
    expect(other.text).not.toBe(one.text);
    expect(Math.max(...seen)).toBe(300);
    // A random model's bytes are no UTF-8: what is read again differs a little.
    expect(one.ids.length).toBeGreaterThan(150);
  });

  it("has chats in the model's template, code and several languages, without a template no chats", async () => {
    const { kinds, text } = await written({ tokens: 2000 });
    expect([...kinds.keys()]).toEqual(expect.arrayContaining(["chat", "code", "English", "Chinese"]));
    expect(text).toContain("<|user|>");
    const plain = join(folder, "plain");
    await writeTinyCheckpoint(plain, {});
    await rm(join(plain, "tokenizer_config.json"));
    expect((await written({ tokens: 600 }, plain)).kinds.has("chat")).toBe(false);
  });

  it("is refused by name for a model that writes none", async () => {
    const model = await loadCheckpoint(goldenFolder("bert-bge"));
    const act = writeCalibrationText(model);
    await expect(act).rejects.toThrow(UnsupportedError);
    await expect(act).rejects.toThrow(/tiny-bge: .* writes no text to calibrate with; give it one in a file/);
    await model.close();
    const mute = join(folder, "mute");
    await writeTinyCheckpoint(mute);
    await rm(join(mute, "tokenizer.json"));
    await expect(written({}, mute)).rejects.toThrow(InvalidFileError);
  });

  it("is what --calibrate self calibrates with", async () => {
    const [out, kept] = [join(folder, "self.pte"), join(folder, "kept.txt")];
    const common = ["quantize", checkpoint, "--qmode", "8da2w", "--algorithm", "gptq", "-o", out];
    const options = ["--calibrate", "self", "--calibration-tokens", "200", "--save-calibration", kept];
    const { code, stderr } = await lowbit([...common, ...options]);
    expect([code, stderr]).toEqual([0, expect.stringMatching(/the model wrote [\d,]+ characters to calibrate with: /)]);
    expect(existsSync(out)).toBe(true);
    expect(readFileSync(kept, "utf8")).toBe((await written({ tokens: 200 })).text);
    for (const flag of ["--calibration-seed", "--save-calibration"])
      expect(await lowbit([...common, "--calibrate", kept, flag, "1"])).toMatchObject({
        code: 2,
        stderr: expect.stringContaining(`${flag} is for a text that the model writes: expected --calibrate self`),
      });
  });
});
