/** Mixtures of experts from checkpoints: weights of each expert or of all, quantized, calibrated, exported. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { distance } from "../../test/support/distance.ts";
import { exactHost } from "../../test/support/exact-rows.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { expectSame } from "../../test/support/same.ts";
import { tinyConfig, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { compileModel } from "../api/compile-model.ts";
import { EagerModel } from "../api/eager-model.ts";
import { exportProgram } from "../api/export-program.ts";
import { inspectProgram } from "../api/inspect.ts";
import { loadProgram } from "../api/load-program.ts";
import { loadProgramObject } from "../api/load-program-object.ts";
import { ShapeError, UnsupportedError } from "../errors.ts";
import { buildDecoder } from "../model/architectures.ts";
import { int8DynamicActivationIntxWeight, intxWeightOnly } from "../quantize/config.ts";
import { makeRecipe } from "../quantize/recipe.ts";
import { calibrate } from "./calibrate/calibrate.ts";
import { meanDivergence } from "./calibrate/sensitivity.ts";
import { calibrationIds } from "./calibrate/walk.ts";
import { loadCheckpoint } from "./load.ts";
import type { Model } from "./model.ts";
import { quantize, quantizeByRecipe } from "./quantize.ts";

const EXPERTS = 6;
const SIZE = 40;
const config = {
  ...tinyConfig,
  architectures: ["Qwen3MoeForCausalLM"],
  num_experts: EXPERTS,
  num_experts_per_tok: 2,
  moe_intermediate_size: SIZE,
  norm_topk_prob: true,
};
const folder = await temporaryFolder();
const text = readFileSync(new URL("../../models/shakespeare/heldout.txt", import.meta.url), "utf8").slice(0, 3000);
const ids = Array.from({ length: 24 }, (_, i) => (i * 37) % 250);

/** A checkpoint whose tensors have the values of their names. */
async function write(name: string, shapes: ReadonlyMap<string, readonly number[]>): Promise<string> {
  const path = join(folder, name);
  await writeTinyCheckpoint(path, { config, shapes: new Map(shapes) });
  return path;
}

const slots = new Map(
  buildDecoder("config.json", config)
    .slots.filter(({ tiedTo }) => tiedTo === null)
    .map(({ name, shape }) => [name, shape]),
);
const checkpoint = await write("experts", slots);

/** Logits of other text than is calibrated with. */
const textLogits = async (model: Model) =>
  (await EagerModel.load(model, { logits: "all" })).forward(calibrationIds(model, text.slice(1500), 48), 0);
const logitsOf = async (model: Model) =>
  (await EagerModel.load(model, { logits: "all" })).forward(ids, 0).data as Float32Array;

async function withModel<R>(path: string, work: (model: Model) => Promise<R>): Promise<R> {
  const model = await loadCheckpoint(path);
  try {
    return await work(model);
  } finally {
    await model.close();
  }
}

describe("weights of all experts in one tensor", () => {
  const stacked = new Map([...slots].filter(([name]) => !name.includes(".experts.")));
  for (const layer of [0, 1]) {
    stacked.set(`model.layers.${layer}.mlp.experts.gate_up_proj`, [EXPERTS, 2 * SIZE, 32]);
    stacked.set(`model.layers.${layer}.mlp.experts.down_proj`, [EXPERTS, 32, SIZE]);
  }

  it("are those of each, rows of gates before those of what they gate", async () => {
    await withModel(await write("stacked", stacked), async (model) => {
      expect(model.unreadTensors).toEqual([]);
      const { tensors } = model.checkpoint;
      const values = async (name: string) => [...((await tensors.read(name)).data as Float32Array)];
      const whole = await values("model.layers.1.mlp.experts.2.gate_proj.weight");
      expect(tensors.info("model.layers.1.mlp.experts.2.gate_proj.weight").shape).toEqual([SIZE, 32]);
      const rows = await tensors.readRows("model.layers.1.mlp.experts.2.gate_proj.weight", 3, 2);
      expect([...(rows.data as Float32Array)]).toEqual(whole.slice(96, 160));
      const up = await values("model.layers.1.mlp.experts.2.up_proj.weight");
      expect(up).not.toEqual(whole);
      await expect(tensors.readRows("model.layers.1.mlp.experts.2.up_proj.weight", SIZE, 1)).rejects.toThrow(
        /no rows 40 to 41/,
      );
      expect((await logitsOf(model)).some(Number.isNaN)).toBe(false);
    });
  });

  it.each([
    [EXPERTS - 1, 2 * SIZE, 32],
    [EXPERTS, 2 * SIZE + 1, 32],
    [EXPERTS, 2 * SIZE - 2, 32],
    [EXPERTS, 2 * SIZE],
  ])("of other sizes, %i %i %i, are refused by name", async (...shape) => {
    const name = "model.layers.0.mlp.experts.gate_up_proj";
    const path = await write(
      `odd-${shape.join("-")}`,
      new Map(stacked).set(
        name,
        shape.filter((size) => size !== undefined),
      ),
    );
    const refused = loadCheckpoint(path);
    await expect(refused).rejects.toThrow(ShapeError);
    await expect(refused).rejects.toThrow(/model\.layers\.0\.mlp\.experts\./);
  });
});

describe("quantized", () => {
  it.each([2, 4, 8])("in %i bits is near what it is with float activations, and the same from a file", async (bits) => {
    const exact = await withModel(checkpoint, async (model) =>
      logitsOf(quantize(model, [intxWeightOnly({ bits, groupSize: 8 })])),
    );
    await withModel(checkpoint, async (model) => {
      quantize(model, [int8DynamicActivationIntxWeight({ bits, groupSize: 8 })]);
      const found = await logitsOf(model);
      expect(distance(found, exact).correlation).toBeGreaterThan(0.97);
      const file = join(folder, `bits-${bits}.pte`);
      await exportProgram(model, file);
      const weights = (await inspectProgram(file, { verify: true })).weights.filter(({ name }) =>
        name.includes("experts"),
      );
      expect(weights.map(({ shape, bits: found, intact }) => ({ shape, bits: found, intact }))).toEqual(
        [0, 1]
          .flatMap(() => [
            [EXPERTS, 2 * SIZE, 32],
            [EXPERTS, 32, SIZE],
          ])
          .map((shape) => ({ shape, bits, intact: true })),
      );
      const program = await loadProgram(file);
      expectSame(await program.createDecoder().allLogits(ids), found);
      await program.dispose();
    });
  });

  it("gives a token the same bits alone and among others", async () => {
    await withModel(checkpoint, async (model) => {
      quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 8 })]);
      const cpu = exactHost();
      const program = await loadProgramObject(compileModel(model, { cpu }), "experts", { cpu });
      const all = await program.createDecoder().allLogits(ids);
      const decoder = program.createDecoder();
      const width = decoder.vocabularySize;
      let next = await decoder.prefill(ids.slice(0, 1));
      for (const [i, id] of ids.slice(1).entries()) {
        expectSame(next, all.slice(i * width, (i + 1) * width), `token ${i}`);
        next = await decoder.step(id);
      }
      await program.dispose();
    });
  });

  it("leaves the router as it is, and gives all experts of a layer one form", async () => {
    await withModel(checkpoint, async (model) => {
      quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 8 })]);
      expect(model.configOf("model.layers.0.mlp.gate.weight")).toBeUndefined();
      quantizeByRecipe(
        model,
        makeRecipe([
          ["model.layers.1.mlp.experts.3.up_proj", intxWeightOnly({ bits: 8, groupSize: 8 })],
          ["_default", intxWeightOnly({ bits: 4, groupSize: 8 })],
        ]),
      );
      expect(() => compileModel(model, {})).toThrow(UnsupportedError);
      expect(() => compileModel(model, {})).toThrow(/layers\.1\.mlp\.experts.*one form.*experts\.3\.up_proj\.weight/s);
    });
  });
});

describe("calibrated", () => {
  it.each(["gptq", "awq", "awq+gptq"] as const)(
    "by %s is nearer to the float model than rounded",
    async (algorithm) => {
      const options = { bits: 3, groupSize: 16 };
      const float = await withModel(checkpoint, textLogits);
      const rounded = await withModel(checkpoint, (model) => textLogits(quantize(model, [intxWeightOnly(options)])));
      const found = await withModel(checkpoint, async (model) => {
        quantize(model, [intxWeightOnly({ ...options, algorithm })]);
        await calibrate(model, text.slice(0, 1500), { window: 32, maxTokens: 512 });
        return textLogits(model);
      });
      expect(meanDivergence([float], [found])).toBeLessThan(0.95 * meanDivergence([float], [rounded]));
    },
  );

  it("rounds experts that no token reaches, and says so", async () => {
    const notes: string[] = [];
    vi.stubEnv("LOWBIT_LOG", "info");
    const log = vi.spyOn(console, "error").mockImplementation((note) => notes.push(String(note)));
    await withModel(checkpoint, async (model) => {
      quantize(model, [intxWeightOnly({ bits: 4, groupSize: 8, algorithm: "imatrix" })]);
      await calibrate(model, text, { window: 2, maxTokens: 2 });
      expect((await logitsOf(model)).some(Number.isNaN)).toBe(false);
    });
    log.mockRestore();
    vi.unstubAllEnvs();
    expect(
      notes.filter((note) => /experts\.\d+\.gate_proj\.weight: the text reaches this expert with no token/.test(note))
        .length,
    ).toBeGreaterThan(2);
  });
});
