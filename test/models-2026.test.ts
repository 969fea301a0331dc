/**
 * Models of 2026 against transformers in float32, from ../shared: logits, greedy tokens, a prompt longer than windows, token
 * by token the same as the prompt at once; eager as compiled; in 4 bits with activations in 8 as with float ones.
 */
import { cpSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import {
  EagerModel,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  type Model,
  quantize,
  saveTorchao,
} from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { scalarCpu } from "../src/kernels/cpu.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { compileModel, loadProgramObject } from "../src/tools/index.ts";
import { distance } from "./support/distance.ts";
import { temporaryFolder } from "./support/folders.ts";
import { goldenOf, hasModels2026, modelFolder, models2026 } from "./support/models-2026.ts";
import { expectSame } from "./support/same.ts";
import { changeByScaling } from "./support/scaled-channels.ts";

/**
 * How far 8-bit activations may move logits: rows of 64 values, of which the largest says the steps, are rounded harder than
 * those of real models. Products of what linear layers give, as in gated convolutions, states and per-layer inputs, add up the roundings of each.
 */
const attentionBounds = { relative: 0.05, correlation: 0.999 };
const productBounds = { relative: 0.09, correlation: 0.996 };
/** Where rounding changes which experts a token goes to, what follows differs by more than rounding. */
const expertBounds = { relative: 0.11, correlation: 0.993 };

function argmax(logits: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i]! > logits[best]!) best = i;
  return best;
}

describe.skipIf(!hasModels2026).each(Object.entries(models2026))(
  "%s (skipped without ../shared)",
  (name, architecture) => {
    const golden = hasModels2026 ? goldenOf(name) : undefined!;
    const opened: Model[] = [];
    const open = async () => {
      const model = await loadCheckpoint(modelFolder(name));
      // What is kept as stored in few bits is exact with float activations.
      model.activations = "float";
      opened.push(model);
      return model;
    };
    const load = async (model: Model) => loadProgramObject(compileModel(model, {}), name, {});
    const logitsOf = async (model: Model) => (await load(model)).createDecoder().allLogits(golden.input_ids);
    afterAll(async () => {
      for (const model of opened) await model.close();
    });

    it("computes what transformers does, at once and token by token", async () => {
      const opened = await open();
      expect(opened.decoder.architecture).toBe(architecture);
      expect(opened.unreadTensors).toEqual([]);
      const model = await load(opened);
      const decoder = model.createDecoder();
      const logits = await decoder.allLogits(golden.input_ids);
      const width = decoder.vocabularySize;
      const row = (i: number) => logits.slice(i * width, (i + 1) * width);
      for (const [i, index] of golden.logits_rows.entries())
        expect(distance(row(index), golden.logits[i]!).relative).toBeLessThan(1e-4);
      const long = model.createDecoder();
      const longLogits = (await long.prefill(golden.long_input_ids)).slice();
      expect(distance(longLogits, golden.long_last_logits).relative).toBeLessThan(1e-4);
      const stepwise = model.createDecoder();
      let next = await stepwise.prefill(golden.input_ids.slice(0, 1));
      for (const [i, id] of golden.input_ids.slice(1).entries()) {
        expect(distance(next, row(i)).relative).toBeLessThan(1e-5);
        next = await stepwise.step(id);
      }
      for (const id of golden.greedy) {
        expect(argmax(next)).toBe(id);
        next = await stepwise.step(id);
      }
      const longStepwise = model.createDecoder();
      for (const id of golden.long_input_ids) next = await longStepwise.step(id);
      expect(distance(next, longLogits).relative).toBeLessThan(1e-5);
    });

    it("is the same by the fields that transformers 4 wrote", async () => {
      const older = join(modelFolder(name), "config.older.json");
      const folder = await temporaryFolder();
      cpSync(modelFolder(name), folder, { recursive: true });
      cpSync(older, join(folder, "config.json"));
      const [model, same] = [await open(), await loadCheckpoint(folder)];
      expect(same.decoder.transformer).toEqual(model.decoder.transformer);
      await same.close();
    });

    it("is the same eager and compiled, bit by bit on the reference kernels", async () => {
      const model = await open();
      const decoder = (
        await loadProgramObject(compileModel(model, { cpu: scalarCpu }), name, { cpu: scalarCpu })
      ).createDecoder();
      const eager = await EagerModel.load(model, { cpu: scalarCpu });
      const ids = golden.input_ids.slice(0, 20);
      expectSame(await decoder.prefill(ids), eager.forward(ids, 0).data as Float32Array);
      const next = golden.input_ids[20]!;
      expectSame(await decoder.step(next), eager.forward([next], ids.length).data as Float32Array);
    });

    it("in 4 bits with activations in 8 is near what it is with float ones", async () => {
      const [model, exact] = [await open(), await open()];
      quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 })]);
      quantize(exact, [intxWeightOnly({ bits: 4, groupSize: 32 })]);
      const { relative, correlation } = distance(await logitsOf(model), await logitsOf(exact));
      const hasProducts = model.decoder.transformer!.layers.some(({ mixer, adapter }) => mixer.states > 0 || adapter);
      const hasExperts = model.decoder.transformer!.layers.some(({ mlp }) => mlp.stacks !== undefined);
      const bounds = hasExperts ? expertBounds : hasProducts ? productBounds : attentionBounds;
      expect(relative).toBeLessThan(bounds.relative);
      expect(correlation).toBeGreaterThan(bounds.correlation);
    });

    it("says which channels may be scaled without a change of the logits", async () => {
      const [model, scaled] = [await open(), await open()];
      expect(await changeByScaling(model, scaled, golden.input_ids)).toBeLessThan(2e-5);
    });
  },
);

describe.skipIf(!hasModels2026).each(["ernie4_5", "glm4"])("%s (skipped without ../shared)", (name) => {
  it.each([false, true])(
    "written for TorchAO has its rows of heads in their own order; quantized: %s",
    async (quantized) => {
      const model = await loadCheckpoint(modelFolder(name));
      if (quantized) quantize(model, [intxWeightOnly({ bits: 4, groupSize: 32 })], { quantizeHead: false });
      const folder = join(await temporaryFolder(), "torchao");
      await saveTorchao(model, folder);
      const again = await loadCheckpoint(folder);
      const ids = goldenOf(name).input_ids;
      const [expected, found] = await Promise.all(
        [model, again].map(async (each) => (await EagerModel.load(each)).forward(ids, 0).data as Float32Array),
      );
      expectSame(found!, expected!);
      await Promise.all([model.close(), again.close()]);
    },
  );
});

const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };

describe.skipIf(!hasModels2026).each(["ministral3", "gemma4-conditional", "bitnet", "gemma4_text-moe"])(
  "%s (skipped without ../shared)",
  (name) => {
    it("computes what transformers does on WebAssembly", async () => {
      const golden = goldenOf(name);
      const opened = await loadCheckpoint(modelFolder(name));
      const model = await loadProgramObject(compileModel(opened, { cpu: wasmCpu }), name, { cpu: wasmCpu });
      const last = await model.createDecoder().prefill(golden.long_input_ids);
      expect(distance(last, golden.long_last_logits).relative).toBeLessThan(1e-4);
      await opened.close();
    });
  },
);

it.skipIf(!hasModels2026)(
  "Ministral 3 has no form for ExecuTorch, which says why (skipped without ../shared)",
  async () => {
    const model = await loadCheckpoint(modelFolder("ministral3"));
    expect(() => compileModel(model, { target: "executorch" })).toThrow(/queries that grow with positions/);
    await model.close();
  },
);
