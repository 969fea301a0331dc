/**
 * Models of 2026 against transformers in float32, from ../shared: logits, greedy tokens, a prompt longer than windows, token
 * by token the same as the prompt at once; eager as compiled; in 4 bits with activations in 8 as with float ones.
 */
import { afterAll, describe, expect, it } from "vitest";
import {
  EagerModel,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  type Model,
  quantize,
} from "../src/index.ts";
import { scalarCpu } from "../src/kernels/cpu.ts";
import { compileModel, loadProgramObject } from "../src/tools/index.ts";
import { distance } from "./support/distance.ts";
import { goldenOf, hasModels2026, modelFolder } from "./support/models-2026.ts";
import { expectSame } from "./support/same.ts";

/** Folders of ../shared/golden/models-2026 whose architectures are here. */
const names = ["gemma3-conditional", "qwen3_moe", "olmoe", "mixtral", "granitemoe", "gpt_oss", "gpt_oss-mxfp4"];

const hasExperts = new Set(["mixtral", "gpt_oss", "gpt_oss-mxfp4"]);

function argmax(logits: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i]! > logits[best]!) best = i;
  return best;
}

describe.skipIf(!hasModels2026).each(names)("%s (skipped without ../shared)", (name) => {
  const golden = hasModels2026 ? goldenOf(name) : undefined!;
  const opened: Model[] = [];
  const open = async () => {
    const model = await loadCheckpoint(modelFolder(name));
    // What is carried over in few bits is exact with float activations.
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
    const model = await load(await open());
    const decoder = model.createDecoder();
    const logits = await decoder.allLogits(golden.input_ids);
    const width = decoder.vocabularySize;
    const row = (i: number) => logits.slice(i * width, (i + 1) * width);
    for (const [i, index] of golden.logits_rows.entries())
      expect(distance(row(index), golden.logits[i]!).relative).toBeLessThan(1e-4);
    const long = model.createDecoder();
    expect(distance(await long.prefill(golden.long_input_ids), golden.long_last_logits).relative).toBeLessThan(1e-4);
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
    // Where rounding changes which experts a token goes to, what follows differs by more than rounding.
    const [most, least] = hasExperts.has(name) ? [0.08, 0.996] : [0.03, 0.9995];
    expect(relative).toBeLessThan(most);
    expect(correlation).toBeGreaterThan(least);
  });
});
