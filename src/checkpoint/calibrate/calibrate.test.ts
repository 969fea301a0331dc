import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { lowbit } from "../../../test/support/command-line.ts";
import { exactHost } from "../../../test/support/exact-rows.ts";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../../test/support/tiny-checkpoint.ts";
import { EagerModel } from "../../api/eager-model.ts";
import { exportProgram } from "../../api/export-program.ts";
import { InvalidArgumentError } from "../../errors.ts";
import type { ConfigOptions } from "../../quantize/config.ts";
import { int8DynamicActivationIntxWeight, intxWeightOnly, sharedEmbedding } from "../../quantize/config.ts";
import { dequantize, type QuantizedWeights } from "../../quantized.ts";
import { type Tensor, toFloat32 } from "../../tensor.ts";
import { loadCheckpoint } from "../load.ts";
import type { Model } from "../model.ts";
import { quantize } from "../quantize.ts";
import { type CalibrateOptions, calibrate } from "./calibrate.ts";
import { meanDivergence } from "./sensitivity.ts";
import { calibrationIds, FloatWalk, visitLinearLayers } from "./walk.ts";

const folder = await temporaryFolder();
const checkpoint = join(folder, "tiny");
const biased = join(folder, "biased");
await writeTinyCheckpoint(checkpoint, { dtype: "bf16" });
await writeTinyCheckpoint(biased, { config: { attention_bias: true, mlp_bias: true, tie_word_embeddings: false } });
const text = readFileSync(new URL("../../../models/shakespeare/heldout.txt", import.meta.url), "utf8").slice(0, 3000);
const windows = { window: 32, maxTokens: 96 };

async function logitsOf(model: Model): Promise<Tensor> {
  const eager = await EagerModel.load(model, { logits: "all" });
  return eager.forward(calibrationIds(model, text.slice(500), 48), 0);
}

/** How far the predictions of a model quantized in this way are from those of the float one. */
async function divergenceOf(path: string, options: ConfigOptions, how: CalibrateOptions | null): Promise<number> {
  const float = await loadCheckpoint(path);
  const model = await loadCheckpoint(path);
  quantize(model, [intxWeightOnly({ groupSize: 32, ...options })]);
  if (how) await calibrate(model, text, { ...windows, ...how });
  const divergence = meanDivergence([await logitsOf(float)], [await logitsOf(model)]);
  await float.close();
  await model.close();
  return divergence;
}

describe("the walk", () => {
  it("computes what the model does, and shows every linear layer its inputs", async () => {
    const model = await loadCheckpoint(checkpoint);
    const ids = calibrationIds(model, text, 75);
    const eager = await EagerModel.load(model, { logits: "all" });
    const names: string[] = [];
    const found = await new FloatWalk(model, [ids.slice(0, 32), ids.slice(32, 64), ids.slice(64)]).run(
      async (name, layer) => {
        if (!layer) return null;
        names.push(name);
        const { inputs, hessian } = layer;
        const { rows, columns, data } = inputs();
        expect(rows).toBe(75);
        let [sum, size] = [0, 0];
        for (let r = 0; r < rows; r++) size += Math.abs(data[r * columns]! * data[r * columns + 1]!);
        for (let r = 0; r < rows; r++) sum += data[r * columns]! * data[r * columns + 1]!;
        // Both factors are rounded to bf16.
        expect(Math.abs(hessian().data[1]! - sum)).toBeLessThan(2 ** -8 * size);
        return null;
      },
    );
    expect(names).toEqual(model.decoder.slots.filter(({ role }) => role === "linear").map(({ name }) => name));
    for (const [w, { data }] of found.entries())
      expect(data).toEqual(eager.forward(ids.slice(32 * w, 32 * w + 32), 0).data);
    await model.close();
  });

  it("goes on with the weights that a visitor gives", async () => {
    const model = await loadCheckpoint(checkpoint);
    const shape = [64, 32];
    const last: number[] = [];
    await visitLinearLayers(
      model,
      text,
      async ({ name, inputs }) => {
        if (name.endsWith("layers.1.mlp.down_proj.weight")) last.push(...inputs().data);
        return name.endsWith("layers.1.mlp.up_proj.weight") ? new Float32Array(shape[0]! * shape[1]!) : null;
      },
      windows,
    );
    expect(last.length).toBe(96 * 64);
    expect(last.every((value) => value === 0)).toBe(true);
    await model.close();
  });
});

describe("calibrated weights", () => {
  it.each([2, 3])("are nearer to the float model than rounded ones at %d bits", async (bits) => {
    const rounded = await divergenceOf(checkpoint, { bits }, null);
    for (const algorithm of ["imatrix", "gptq", "awq", "awq+gptq"] as const)
      expect(await divergenceOf(checkpoint, { bits, algorithm }, {}), algorithm).toBeLessThan(0.9 * rounded);
  });

  it("by GPTQ are of another text, too, a third as long, and nearer to the float model there", async () => {
    const other = "0123456789 +-*/=()[]{};\n".repeat(40);
    const asked: number[] = [];
    const otherText = async (tokens: number) => {
      asked.push(tokens);
      return other;
    };
    const losses: number[] = [];
    for (const options of [{}, { otherText }]) {
      const model = await loadCheckpoint(checkpoint);
      quantize(model, [intxWeightOnly({ bits: 2, groupSize: 32, algorithm: "gptq" })]);
      await calibrate(model, text, { window: 32, maxTokens: 256, ...options });
      const float = await loadCheckpoint(checkpoint);
      const logits = async (of: Model) => {
        const eager = await EagerModel.load(of, { logits: "all" });
        return eager.forward(calibrationIds(float, other.slice(7), 48), 0);
      };
      losses.push(meanDivergence([await logits(float)], [await logits(model)]));
      await model.close();
      await float.close();
    }
    expect(losses[1]).toBeLessThan(0.9 * losses[0]!);
    const model = await loadCheckpoint(checkpoint);
    quantize(model, [intxWeightOnly({ bits: 2, groupSize: 32, algorithm: "imatrix" })]);
    await calibrate(model, text, { ...windows, otherText });
    await model.close();
    expect(asked).toEqual([64]);
  });

  it.each([checkpoint, biased])("scaled channels are made up for: %s", async (path) => {
    const rounded = await divergenceOf(path, { bits: 8 }, null);
    for (const scaleDType of ["f32", "f16"] as const) {
      expect(await divergenceOf(path, { bits: 8, scaleDType, algorithm: "awq" }, {})).toBeLessThan(3 * rounded);
      expect(await divergenceOf(path, { bits: 8, scaleDType }, { smoothQuant: 0.5 })).toBeLessThan(10 * rounded);
    }
  });

  it.each(["per_block", "per_token"] as const)(
    "SmoothQuant serves channels that stand out, activations %s",
    async (how) => {
      const path = join(folder, `uneven-${how}`);
      const factor = (c: number) => (c % 8 === 0 ? 30 : 1);
      const edit = (name: string, values: Float32Array) => {
        if (/layers.*layernorm/.test(name)) for (let c = 0; c < values.length; c++) values[c]! *= factor(c);
        if (/(q|k|v|gate|up)_proj/.test(name)) for (let i = 0; i < values.length; i++) values[i]! /= factor(i % 32);
      };
      await writeTinyCheckpoint(path, { edit });
      const losses: number[] = [];
      for (const options of [null, { smoothQuant: 0.5 }]) {
        const logits: Tensor[] = [];
        for (const isFloat of [true, false]) {
          const model = await loadCheckpoint(path);
          if (!isFloat)
            quantize(model, [int8DynamicActivationIntxWeight({ bits: 8, groupSize: 32, activationGranularity: how })]);
          if (!isFloat && options) await calibrate(model, text, { ...windows, ...options });
          const eager = await EagerModel.load(model, { logits: "all", cpu: exactHost() });
          logits.push(eager.forward(calibrationIds(model, text.slice(500), 48), 0));
          await model.close();
        }
        losses.push(meanDivergence([logits[0]!], [logits[1]!]));
      }
      expect(losses[1]).toBeLessThan(0.5 * losses[0]!);
    },
  );

  it.each<ConfigOptions>([
    { bits: 3, mappingType: "kmeans", scaleDType: "i8", algorithm: "gptq" },
    { bits: 4, mappingType: "asymmetric", algorithm: "imatrix" },
  ])("of an interrupted run are taken by the same one: $mappingType", async (options) => {
    const parts = join(folder, `resumed-${options.mappingType}`);
    const written = () => new Map(readdirSync(parts).map((file) => [file, statSync(join(parts, file)).mtimeMs]));
    const run = async (kept: string | undefined, layers: number, read = text) => {
      const model = await loadCheckpoint(checkpoint);
      quantize(model, [intxWeightOnly({ groupSize: 32, ...options })]);
      let done = 0;
      const onProgress = () => {
        if (++done === layers) throw new Error("interrupted");
      };
      await calibrate(model, read, { ...windows, folder: kept, onProgress });
      const path = join(folder, "resumed.pte");
      await exportProgram(model, path);
      await model.close();
      return readFileSync(path);
    };
    const whole = await run(undefined, 0);
    await expect(run(parts, 5)).rejects.toThrow("interrupted");
    const before = written();
    expect(before.size).toBe(5);
    const damaged = join(parts, [...before.keys()][4]!);
    const bytes = readFileSync(damaged);
    bytes[bytes.length - 1]! ^= 1;
    writeFileSync(damaged, bytes);
    expect((await run(parts, 0)).equals(whole)).toBe(true);
    for (const [file, time] of [...before].slice(0, 4)) expect(written().get(file)).toBe(time);
    expect((await run(parts, 0, text.slice(1000))).equals(whole)).toBe(false);
    expect(written().get([...before.keys()][0]!)).toBeGreaterThan(before.get([...before.keys()][0]!)!);
  });

  it.each(["symmetric", "asymmetric"] as const)("are the same from a folder: %s", async (mappingType) => {
    const [parts, files] = [join(folder, `parts-${mappingType}`), ["memory.pte", "folder.pte"]];
    for (const file of files) {
      const model = await loadCheckpoint(checkpoint);
      quantize(model, [intxWeightOnly({ bits: 3, groupSize: 16, algorithm: "awq+gptq", mappingType })]);
      await calibrate(model, text, { ...windows, folder: file === "folder.pte" ? parts : undefined });
      await exportProgram(model, join(folder, file));
      await model.close();
    }
    expect(readdirSync(parts).length).toBe(15);
    const [memory, kept] = files.map((file) => readFileSync(join(folder, file)));
    expect(kept!.equals(memory!)).toBe(true);
  });

  it("a table that is the head, too, loses least of what the head gives, and is one buffer", async () => {
    const float = await loadCheckpoint(checkpoint);
    const weights = toFloat32((await float.weight("lm_head.weight").load()) as Tensor);
    let inputs = new Float32Array();
    await visitLinearLayers(
      float,
      text,
      async (layer) => {
        if (layer.name === "lm_head.weight") inputs = layer.inputs().data.slice();
        return null;
      },
      windows,
    );
    const losses: number[] = [];
    for (const algorithm of ["affine", "mse", "imatrix", "gptq"] as const) {
      const model = await loadCheckpoint(checkpoint);
      const config = sharedEmbedding({ bits: 3, groupSize: 32, mappingType: "symmetric", algorithm });
      quantize(model, [config]);
      if (algorithm === "imatrix" || algorithm === "gptq") {
        expect(() => model.weight("lm_head.weight")).toThrow(/lm_head.weight: algorithm "\w+" looks at activations/);
        await calibrate(model, text, windows);
        expect(() => quantize(model, [config])).toThrow(/is calibrated already/);
      }
      const [table, head] = ["model.embed_tokens.weight", "lm_head.weight"].map((name) => model.weight(name));
      expect(head!.name).toBe(table!.name);
      const found = dequantize((await head!.load()) as QuantizedWeights);
      expect(dequantize((await table!.load()) as QuantizedWeights)).toEqual(found);
      const k = head!.shape[1]!;
      let loss = 0;
      for (let row = 0; row < inputs.length; row += k)
        for (let n = 0; n < found.length; n += k) {
          let error = 0;
          for (let c = 0; c < k; c++) error += inputs[row + c]! * (found[n + c]! - weights[n + c]!);
          loss += error * error;
        }
      losses.push(loss);
      await model.close();
    }
    const [affine, mse, imatrix, gptq] = losses as [number, number, number, number];
    expect(mse).toBeLessThan(affine);
    expect(imatrix).toBeLessThan(mse);
    expect(gptq).toBeLessThan(0.9 * imatrix);
    await float.close();
  });

  it("are refused where they are not what was asked for", async () => {
    const model = await loadCheckpoint(checkpoint);
    const refused = (options: CalibrateOptions, message: RegExp) => {
      const act = calibrate(model, text, options);
      return Promise.all([expect(act).rejects.toThrow(InvalidArgumentError), expect(act).rejects.toThrow(message)]);
    };
    quantize(model, [intxWeightOnly({ bits: 4, groupSize: 32 })]);
    await refused({}, /expected linear layers of algorithm "imatrix"/);
    await refused({ damping: 0 }, /damping: expected a number above 0, at most 100, but found 0/);
    await refused({ smoothQuant: 2 }, /smoothQuant: expected a number from 0 to 1 but found 2/);
    quantize(model, [intxWeightOnly({ bits: 4, groupSize: 32, algorithm: "gptq" })]);
    await refused(
      { maxTokens: 63 },
      /GPTQ needs at least 64 tokens, of which a part is held out, but found 63; choose/,
    );
    quantize(model, [intxWeightOnly({ bits: 4, groupSize: 32, algorithm: "awq" })]);
    await refused({ smoothQuant: 0.5 }, /smoothQuant and AWQ scale the same channels/);
    await expect(exportProgram(model, join(folder, "none.pte"))).rejects.toThrow(
      /q_proj.weight: algorithm "awq" looks at activations; calibrate the model/,
    );
    await expect(calibrate(model, " ", {})).rejects.toThrow("the text to calibrate with has no tokens");
    const signal = AbortSignal.abort(new Error("enough"));
    await expect(calibrate(model, text, { ...windows, signal })).rejects.toThrow("enough");
    await calibrate(model, text, windows);
    const q = "model.layers.0.self_attn.q_proj.weight";
    expect(() => model.weight(q, { float: true })).toThrow(/load the checkpoint again for its float weights/);
    expect(() => sharedEmbedding({ algorithm: "awq" })).toThrow(/sharedEmbedding: algorithm "awq" looks at/);
    await model.close();
  });
});

it("leaves the model as it was where it fails", async () => {
  const model = await loadCheckpoint(checkpoint);
  quantize(model, [intxWeightOnly({ bits: 4, groupSize: 32, algorithm: "awq" })]);
  const states = () => model.decoder.slots.map(({ name }) => model.slotWeight(name));
  const before = states();
  const controller = new AbortController();
  const onProgress = (done: number, total: number) => done > total / 2 && controller.abort(new Error("enough"));
  const options = { ...windows, signal: controller.signal };
  await expect(calibrate(model, text, { ...options, onProgress })).rejects.toThrow("enough");
  expect(states()).toEqual(before);
  await calibrate(model, text, windows);
  expect(model.isCalibrated).toBe(true);
  await model.close();
});

it("is done from the command line", async () => {
  const [textFile, out] = [join(folder, "text.txt"), join(folder, "out.pte")];
  await writeFile(textFile, text);
  const common = ["quantize", checkpoint, "--qmode", "8da3w", "--scale-dtype", "f16", "-o", out];
  const withText = [...common, "--calibrate", textFile, "--calibration-tokens", "100"];
  for (const options of [["--algorithm", "awq+gptq", "--size", "1MB"], ["--smoothquant"], ["--damping", "1"]]) {
    expect(await lowbit([...withText, ...options])).toMatchObject({ code: 0 });
    expect(existsSync(`${out}.parts`)).toBe(false);
    expect(await lowbit(["logits", out, "--ids", "1,2,3"])).toMatchObject({ code: 0 });
  }
  const refusals: [string[], string][] = [
    [[...common, "--algorithm", "gptq"], "algorithm gptq looks at the activations of a text; give one by --calibrate"],
    [[...common, "--size", "6bpw"], "--size looks at the activations of a text"],
    [
      [...withText, "--size", "3.x"],
      'Expected bytes, such as 180MB or 1.2GiB, or bits a weight, such as 4.5bpw, but found "3.x"',
    ],
    [[...withText, "--smoothquant", "2"], 'Expected a number from 0 to 1 but found "2"'],
    [[...withText, "--algorithm", "mse"], "--calibrate needs something that looks at activations"],
    [[...common, "--damping", "0.1"], "--damping says how much a text counts: expected --calibrate"],
    [[...common, "--algorithm", "gptq", "--calibrate", join(folder, "none.txt")], "none.txt: the text cannot be read"],
  ];
  for (const [args, message] of refusals) {
    const { code, stderr } = await lowbit(args);
    expect(code).not.toBe(0);
    expect(stderr).toContain(message);
  }
});

it("NaN and infinity in weights, and in what the text makes of them, are errors that name the layer", async () => {
  const up = "model.layers.1.mlp.up_proj.weight";
  for (const [name, value, problem] of [
    [up, Number.POSITIVE_INFINITY, `tensor ${up}: expected finite weights to quantize but found Infinity at 7`],
    ["model.embed_tokens.weight", Number.NaN, "q_proj.weight: expected finite inputs of the text to calibrate with"],
  ] as const) {
    const path = join(folder, name);
    const edit = (other: string, values: Float32Array) =>
      other === name && values.fill(value, 7, name === up ? 8 : undefined);
    await writeTinyCheckpoint(path, { edit });
    for (const algorithm of ["gptq", "awq"] as const) {
      const model = await loadCheckpoint(path);
      quantize(model, [intxWeightOnly({ groupSize: 32, bits: 4, algorithm })]);
      await expect(calibrate(model, text, windows)).rejects.toThrow(problem);
      await model.close();
    }
  }
});
