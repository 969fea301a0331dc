/**
 * Models whose layers are not alike, recurrent ones and such as share caches, in all that programs do: a sequence is what it is alone, however it is cut, shared, cut back
 * and saved; compiled, exported and loaded; on every kind of kernel; in every mode of quantization; calibrated.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  calibrate,
  EagerModel,
  exportProgram,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  type LanguageModel,
  loadCheckpoint,
  loadCompiled,
  loadProgram,
  type Model,
  quantize,
  sharedEmbedding,
  UnsupportedError,
} from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { hostCpu, scalarCpu } from "../src/kernels/cpu.ts";
import { hasNative } from "../src/kernels/native/rows.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { restorePrefix, savePrefix } from "../src/tools/index.ts";
import { distance } from "./support/distance.ts";
import { exactHost, hostHasExceptions } from "./support/exact-rows.ts";
import { temporaryFolder } from "./support/folders.ts";
import { hybridNames, writeHybridCheckpoint } from "./support/hybrid-checkpoint.ts";
import { Random } from "./support/random.ts";
import { expectSame } from "./support/same.ts";

const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const cpus: readonly Cpu[] = [scalarCpu, wasmCpu, ...(hasNative() ? [exactHost()] : [])];

type Rules = Parameters<typeof quantize>[1];
const eightBitActivations: Rules = [
  int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 }),
  sharedEmbedding({ bits: 4 }),
];
type Options = NonNullable<Parameters<typeof loadCompiled>[1]>;

const folder = await temporaryFolder();
for (const name of hybridNames) await writeHybridCheckpoint(join(folder, name), name);

async function withModel<R>(name: string, rules: Rules, use: (model: Model) => Promise<R>): Promise<R> {
  const model = await loadCheckpoint(join(folder, name));
  try {
    if (rules.length > 0) quantize(model, rules);
    return await use(model);
  } finally {
    await model.close();
  }
}

const load = (name: string, options: Options = {}, rules = eightBitActivations): Promise<LanguageModel> =>
  withModel(name, rules, (model) => loadCompiled(model, options));

const random = new Random(5);
const idsOf = (length: number) => Array.from({ length }, () => random.integer(0, 275));
const prompts = [1, 33, 64, 65, 130].map(idsOf);
const long = prompts.at(-1)!;

function largest(values: Float32Array): number {
  return values.indexOf(Math.max(...values));
}

type Decoder = ReturnType<LanguageModel["createDecoder"]>;

/** Logits of what is given, and of greedy tokens after it, one row after the other. */
async function goOn(decoder: Decoder, prompt: readonly number[], count = 4): Promise<Float32Array> {
  const rows = [(await decoder.prefill(prompt)).slice()];
  for (let i = 1; i < count; i++) rows.push((await decoder.step(largest(rows.at(-1)!))).slice());
  return Float32Array.from(rows.flatMap((row) => [...row]));
}

async function logitsOf(llm: LanguageModel, prompt: readonly number[]): Promise<Float32Array> {
  const decoder = llm.createDecoder();
  const found = await goOn(decoder, prompt);
  await decoder.dispose();
  return found;
}

async function allLogits(llm: LanguageModel, ids: readonly number[]): Promise<Float32Array> {
  const decoder = llm.createDecoder();
  const logits = (await decoder.allLogits(ids)).slice();
  await decoder.dispose();
  await llm.dispose();
  return logits;
}

describe.each(hybridNames)("%s", (name) => {
  it.each(cpus)(
    "a sequence is the same alone and among others on $name",
    async (cpu) => {
      const alone = await load(name, { cpu, threads: 1, maxSeqLen: 256 });
      const expected: Float32Array[] = [];
      for (const prompt of prompts) expected.push(await logitsOf(alone, prompt));
      await alone.dispose();
      for (const [threads, maxSeqLen, prefillTokens] of [
        [1, 16, 5],
        [2, 64, 40],
      ]) {
        const llm = await load(name, { cpu, threads, maxSeqLen, prefillTokens } as Options);
        const found = await Promise.all(prompts.map((prompt) => logitsOf(llm, prompt)));
        for (const [i, row] of found.entries()) expectSame(row, expected[i]!, `prompt ${i}, ${threads} threads`);
        // A second time, prefixes are in the store.
        const again = await Promise.all(prompts.map((prompt) => logitsOf(llm, prompt)));
        for (const [i, row] of again.entries()) expectSame(row, expected[i]!, `prompt ${i} again`);
        // Of keys and values alone, parts of pages are shared, too.
        const reused = name === "gemma4" ? 32 + 63 + 64 + 128 : 32 + 32 + 64 + 128;
        expect(llm.program.sequenceStatistics!.reusedTokens).toBe(reused);
        await llm.dispose();
      }
    },
    60_000,
  );

  it("a sequence is cut back to any of its tokens", async () => {
    const cpu = exactHost();
    const [llm, other] = [await load(name, { cpu }), await load(name, { cpu })];
    const decoder = llm.createDecoder();
    await decoder.prefill(long);
    for (const position of [129, 128, 64, 3]) {
      decoder.rewind(position);
      const next = idsOf(20);
      expectSame(
        await goOn(decoder, next),
        await logitsOf(other, [...long.slice(0, position), ...next]),
        `${position}`,
      );
    }
    for (const opened of [llm, other]) await opened.dispose();
  });

  it("a prefix in a file is gone on from by another process's model", async () => {
    const path = join(folder, `${name}.lbsq`);
    const cpu = exactHost();
    const [first, second] = [await load(name, { cpu }), await load(name, { cpu })];
    const expected = await logitsOf(first, long);
    expect(await savePrefix(first, long, path)).toBe(128);
    expect(await restorePrefix(second, path)).toBe(128);
    expectSame(await logitsOf(second, long), expected);
    expect(second.program.sequenceStatistics!.reusedTokens).toBe(128);
    for (const opened of [first, second]) await opened.dispose();
  });

  it("is the same exported and loaded, on WebAssembly as on the reference to roundings", async () => {
    const path = join(folder, `${name}.pte`);
    await withModel(name, eightBitActivations, (model) => exportProgram(model, path));
    const expected = await allLogits(await load(name), long);
    expectSame(await allLogits(await loadProgram(path), long), expected);
    const exact = await allLogits(await load(name, { cpu: scalarCpu }, []), long);
    for (const cpu of hostHasExceptions ? [...cpus, hostCpu()] : cpus) {
      const found = await allLogits(await load(name, { cpu }, []), long);
      expect(distance(found, exact).relative, cpu.name).toBeLessThan(1e-5);
    }
  });

  it.each<[string, Rules, number]>([
    ["8da8w", [int8DynamicActivationIntxWeight({ bits: 8, groupSize: 32 })], 0.1],
    ["8-bit weights", [intxWeightOnly({ bits: 8, groupSize: 32 })], 0.05],
    ["4-bit weights", [intxWeightOnly({ bits: 4, groupSize: 32 }), sharedEmbedding({ bits: 8 })], 0.7],
    ["3-bit weights by HQQ", [intxWeightOnly({ bits: 3, groupSize: 32, algorithm: "hqq_scale_only" })], 0.8],
  ])("%s are near float weights, eager as compiled", async (_, rules, bound) => {
    const ids = long.slice(0, 40);
    // Steps of the program end where pages do, eager ones do not.
    const cpu = exactHost();
    const exact = await allLogits(await load(name, {}, []), ids);
    const found = await allLogits(await load(name, { cpu }, rules), ids);
    expect(distance(found, exact).relative).toBeLessThan(bound);
    expect(distance(await allLogits(await load(name, {}, rules), ids), exact).relative).toBeLessThan(bound);
    await withModel(name, rules, async (model) => {
      const eager = await EagerModel.load(model, { logits: "all", cpu });
      expect(distance(found, eager.forward(ids, 0).data as Float32Array).relative).toBeLessThan(1e-5);
    });
  });

  it("is calibrated: GPTQ and AWQ lose less than rounding alone, SmoothQuant keeps what it computes", async () => {
    const text = readFileSync(new URL("../models/shakespeare/heldout.txt", import.meta.url), "utf8").slice(0, 3000);
    const float = await load(name, {}, []);
    // Random tokens are far from what GPTQ was told of, and rows of layers take all of that in again and again.
    const ids = name === "gemma4" ? float.tokenizer!.encode(text).slice(0, 100) : long.slice(0, 40);
    const exact = await allLogits(float, ids);
    const lossOf = async (rules: Rules, options: Parameters<typeof calibrate>[2] | null) =>
      withModel(name, rules, async (model) => {
        if (options) await calibrate(model, text, { window: 64, maxTokens: 128, ...options });
        return distance(await allLogits(await loadCompiled(model), ids), exact).relative;
      });
    const weights = (algorithm?: "gptq" | "awq+gptq") => [
      intxWeightOnly({ bits: 4, groupSize: 32, ...(algorithm ? { algorithm } : {}) }),
    ];
    const plain = await lossOf(weights(), null);
    expect(await lossOf(weights("gptq"), {})).toBeLessThan(plain);
    expect(await lossOf(weights("awq+gptq"), {})).toBeLessThan(plain);
    // No channel of random weights stands out: there is nothing to gain, and little is to be lost.
    const bits8 = [int8DynamicActivationIntxWeight({ bits: 8, groupSize: 32 })];
    expect(await lossOf(bits8, { smoothQuant: 0.5 })).toBeLessThan(1.3 * (await lossOf(bits8, null)));
  });

  it("has no form for ExecuTorch, which says why", async () => {
    await expect(load(name, { target: "executorch" }, [])).rejects.toThrow(UnsupportedError);
    await expect(load(name, { target: "executorch" }, [])).rejects.toThrow(/recurrent states/);
  });
});
