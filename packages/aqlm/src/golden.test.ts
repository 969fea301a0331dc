/** AQLM checkpoints against logits and weights of transformers with the aqlm package (on one thread). */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Cpu,
  cpuWith,
  EagerModel,
  exportProgram,
  hostCpu,
  int8DynamicActivationIntxWeight,
  type LanguageModel,
  loadCheckpoint,
  loadCompiled,
  loadProgram,
  quantize,
} from "lowbit";
import { describe, expect, it } from "vitest";
import { selectKernel } from "../../../src/kernels/select.ts";
import { wasmFeatures } from "../../../src/kernels/wasm/features.ts";
import { absence, shared, temporaryFolder } from "../../../test/support/folders.ts";
import type { AqlmWeights } from "./form.ts";
import { aqlmKernels } from "./kernels.ts";
import { dequantizeAqlm } from "./reference.ts";

interface Golden {
  readonly input_ids: readonly number[];
  readonly last_logits: readonly number[];
  readonly greedy: readonly number[];
  readonly q_proj0_row0_first16: readonly number[];
}

function relativeError(found: ArrayLike<number>, expected: readonly number[]): number {
  let [error, size] = [0, 0];
  for (const [i, value] of expected.entries()) {
    error += (found[i]! - value) ** 2;
    size += value ** 2;
  }
  return Math.sqrt(error / size);
}

async function greedy(llm: LanguageModel, ids: readonly number[], count: number): Promise<number[]> {
  const decoder = llm.createDecoder();
  const found: number[] = [];
  for (let logits = await decoder.prefill(ids); found.length < count; logits = await decoder.step(found.at(-1)!))
    found.push(logits.indexOf(Math.max(...logits)));
  return found;
}

const variants = ["2x8", "1x16", "1x8-g16", "2x8-og2"];
const folder = await temporaryFolder();
const reason = absence("golden/aqlm");

describe.skipIf(reason !== "").each(variants)(`AQLM %s${reason}`, (variant) => {
  const checkpoint = join(shared, "golden/aqlm", variant);
  const golden = () => JSON.parse(readFileSync(join(checkpoint, "golden.json"), "utf8")) as Golden;

  it("dequantizes the first row", async () => {
    const model = await loadCheckpoint(checkpoint);
    const weights = (await model.weight("model.layers.0.self_attn.q_proj.weight").load()) as AqlmWeights;
    await model.close();
    const row = dequantizeAqlm(weights);
    for (const [i, value] of golden().q_proj0_row0_first16.entries())
      expect(Math.abs(row[i]! - value)).toBeLessThan(1e-6);
  });

  it("gives the logits with float activations, eager, compiled and exported", async () => {
    const { input_ids, last_logits, greedy: expected } = golden();
    const cpu = cpuWith("scalar");
    const model = await loadCheckpoint(checkpoint);
    const eager = await EagerModel.load(model, { cpu });
    expect(relativeError(eager.forward(input_ids, 0).data as Float32Array, last_logits)).toBeLessThan(1e-4);
    const compiled = await loadCompiled(model, { cpu });
    expect(relativeError(await compiled.createDecoder().prefill(input_ids), last_logits)).toBeLessThan(1e-4);
    const path = join(folder, `${variant}.pte`);
    await exportProgram(model, path, { cpu });
    await model.close();
    const exported = await loadProgram(path, { cpu });
    expect(relativeError(await exported.createDecoder().prefill(input_ids), last_logits)).toBeLessThan(1e-4);
    expect(await greedy(exported, input_ids, expected.length)).toEqual(expected);
  });

  const cpus: Record<string, () => Cpu> = {
    "this CPU": hostCpu,
    WebAssembly: () => ({ name: "wasm", features: new Set(wasmFeatures()) }),
  };

  it.each(Object.keys(cpus))(
    "gives nearly the logits on %s, at once and token by token, and the text",
    async (name) => {
      const { input_ids, last_logits, greedy: expected } = golden();
      const model = await loadCheckpoint(checkpoint);
      const cpu = cpus[name]!();
      const llm = await loadCompiled(model, { cpu });
      await model.close();
      // Sixteen bits of tables, or more of vectors: a layer is off by 1e-4, and layers add up. Twelve bits: by 8e-4; sixteen
      // of a run's sums: by 5e-4.
      const rowOf = (m: number) => selectKernel(aqlmKernels, { layout: "aqlm_tiles8", bits: null, m }, cpu).name;
      const bound = (m: number) => (/lut12|lut16_.*x48_/.test(rowOf(m)) ? 8e-3 : 2e-3);
      const atOnce = await llm.createDecoder().prefill(input_ids);
      expect(relativeError(atOnce, last_logits)).toBeLessThan(bound(input_ids.length));
      const decoder = llm.createDecoder();
      let logits = await decoder.prefill(input_ids.slice(0, 1));
      for (const id of input_ids.slice(1)) logits = await decoder.step(id);
      expect(relativeError(logits, last_logits)).toBeLessThan(bound(1));
      expect(await greedy(llm, input_ids, expected.length)).toEqual(expected);
      await llm.dispose();
    },
  );

  it("gives nearly the logits with the head in 8 bits, whose activations have 8, too", async () => {
    const { input_ids, last_logits } = golden();
    const model = await loadCheckpoint(checkpoint);
    const head = int8DynamicActivationIntxWeight({ bits: 8, groupSize: 32 });
    quantize(model, [], { head });
    const small = await loadCompiled(model, { cpu: hostCpu() });
    await model.close();
    expect(relativeError(await small.createDecoder().prefill(input_ids), last_logits)).toBeLessThan(0.02);
  });
});
