/** Drafts of whole models: texts alone and together, over windows, to the end of the context, are those without drafts. */
import { join } from "node:path";
import { afterAll, afterEach, beforeEach, expect, it, vi } from "vitest";
import {
  type GenerateOptions,
  int8DynamicActivationIntxWeight,
  type LanguageModel,
  loadCheckpoint,
  loadCompiled,
  quantize,
} from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { scalarCpu } from "../src/kernels/cpu.ts";
import { hasNative } from "../src/kernels/native/rows.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { exactHost } from "./support/exact-rows.ts";
import { temporaryFolder } from "./support/folders.ts";
import {
  addClusters,
  type HybridName,
  writeAssistantCheckpoint,
  writeHybridCheckpoint,
} from "./support/hybrid-checkpoint.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const wasmCpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
const own = hasNative() ? exactHost() : scalarCpu;
const CONTEXT = 160;
const folder = await temporaryFolder();
await writeTinyCheckpoint(join(folder, "tiny"), { config: { max_position_embeddings: CONTEXT } });
/** With windows, and with recurrent layers of several kinds; of two, what drafts for them beside lookup, too. */
const hybrids = ["gemma4", "lfm2", "granite_h"] satisfies HybridName[];
for (const name of hybrids) await writeHybridCheckpoint(join(folder, name), name, { max_position_embeddings: CONTEXT });
/** Drafts of its own layer of multi-token prediction, and of an assistant. */
const MTP = "qwen3_5 with mtp";
const ASSISTED = "gemma4 with an assistant";
const withMtp = { max_position_embeddings: CONTEXT, mtp_num_hidden_layers: 1 };
await writeHybridCheckpoint(join(folder, MTP), "qwen3_5", withMtp);
await writeAssistantCheckpoint(join(folder, "assistant"));
await addClusters(join(folder, "assistant"), { num_centroids: 47, centroid_intermediate_top_k: 20 });

const loaded: LanguageModel[] = [];
afterAll(async () => {
  for (const llm of loaded) await llm.dispose();
});

async function load(name: string, cpu: Cpu): Promise<LanguageModel> {
  const isAssisted = name === ASSISTED;
  const draftHead = isAssisted ? join(folder, "assistant") : undefined;
  const model = await loadCheckpoint(join(folder, isAssisted ? "gemma4" : name), { draftHead });
  quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 })]);
  const llm = await loadCompiled(model, { cpu, contextLength: CONTEXT });
  await model.close();
  if (name === MTP || isAssisted) llm.draft = "mtp";
  loaded.push(llm);
  return llm;
}

/** Texts that repeat themselves and each other. */
const prompts = ["ab ab ab ab ab", "the cat and the dog and the cat and", "1, 2, 3, 1, 2, 3, 1,", "ab ab the dog"];
const settings: readonly GenerateOptions[] = [
  { temperature: 0, maxTokens: 60 },
  { temperature: 0, ignoreEos: true },
  { temperature: 0.4, seed: 7, maxTokens: 60, topK: 3 },
  { temperature: 0, maxTokens: 60, repetitionPenalty: 1.2, penaltyWindow: 8, logprobs: 2 },
  {
    temperature: 0,
    maxTokens: 60,
    constraint: { kind: "jsonSchema", schema: { type: "array", items: { enum: [1, 2] }, minItems: 9, maxItems: 12 } },
  },
];

async function write(llm: LanguageModel, prompt: string, options: GenerateOptions) {
  const generation = llm.generate(prompt, options);
  let text = "";
  for await (const piece of generation) text += piece;
  const { finishReason, message, generatedTokens, logprobs, acceptedTokens } = await generation.result;
  return { told: { text, finishReason, message, generatedTokens, logprobs }, acceptedTokens };
}

// Steps cost the same whatever their rows, so that all drafts are worth it.
let clock = 0;
beforeEach(() => void vi.spyOn(performance, "now").mockImplementation(() => ++clock));
afterEach(() => void vi.restoreAllMocks());

const cases = [
  ...["tiny", MTP].map((name) => [name, wasmCpu] as const),
  ...["tiny", "lfm2", "granite_h", MTP, ASSISTED].map((name) => [name, own] as const),
].map(([name, cpu]) => [name, cpu.name, cpu] as const);

it.each(cases)(
  "%s on %s writes the same, alone and together",
  async (name, _, cpu) => {
    const llm = await load(name, cpu);
    let accepted = 0;
    for (const options of settings) {
      const expected: Awaited<ReturnType<typeof write>>["told"][] = [];
      for (const prompt of prompts) expected.push((await write(llm, prompt, { ...options, draft: "off" })).told);
      for (const [i, prompt] of prompts.entries()) {
        const { told, acceptedTokens } = await write(llm, prompt, options);
        expect(told).toEqual(expected[i]);
        accepted += acceptedTokens;
      }
      const together = await Promise.all(prompts.map((prompt) => write(llm, prompt, options)));
      expect(together.map(({ told }) => told)).toEqual(expected);
      const choices = llm.generateChoices(prompts[0]!, { ...options, n: 3 });
      const texts = ["", "", ""];
      for await (const { choice, text } of choices) texts[choice] += text;
      if (options.temperature === 0) expect(texts).toEqual(texts.map(() => expected[0]!.text));
      else expect(texts[0]).toBe(expected[0]!.text);
    }
    expect(accepted).toBeGreaterThan(20);
  },
  120_000,
);
