/**
 * `npm run stress:drafts [-- model --prompts 200 --from 0 --tokens 40 --draft smaller --draft-head assistant --wasm]`: answers
 * prompts with every sampler option, with each kind of draft and without: texts, log probabilities, ends and counts must be the
 * same. Models are programs or checkpoints; default: the demo model, which also drafts for itself. Models with draft layers of
 * their own, or a checkpoint of them beside (`--draft-head`), use these, too. `--wasm`: the WebAssembly kernels.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { isCheckpoint } from "../../dist/checkpoint/load.js";
import { loadCheckpoint, loadCompiled, loadProgram } from "../../dist/index.js";
import { wasmFeatures } from "../../dist/kernels/wasm/features.js";
import { demoProgram } from "../demo/model.js";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    prompts: { type: "string", default: "200" },
    from: { type: "string", default: "0" },
    tokens: { type: "string", default: "40" },
    wasm: { type: "boolean", default: false },
    draft: { type: "string" },
    "draft-head": { type: "string" },
  },
});
const path = positionals[0] ?? (await demoProgram());
const own = options.wasm ? { cpu: { name: "WebAssembly", features: new Set(wasmFeatures()) } } : {};
/** @param {string} name */
async function load(name) {
  if (!(await isCheckpoint(name))) return loadProgram(name, own);
  const model = await loadCheckpoint(name, { draftHead: options["draft-head"] });
  const loaded = await loadCompiled(model, { ...own, contextLength: 1024 });
  await model.close();
  return loaded;
}
const llm = await load(path);
const smaller = await load(options.draft ?? path);
const [first, count] = [Number(options.from), Number(options.prompts)];

/** Beginnings of this project's documents, some of which are there twice, as edits are. */
const words = ["../../README.md", "../../ARCHITECTURE.md", "../../CONTRIBUTING.md", "../../docs/generate.md"]
  .flatMap((name) => readFileSync(new URL(name, import.meta.url), "utf8").split(/(?<=\s)/))
  .filter((word) => word.trim() !== "");
const prompts = Array.from({ length: count }, (_, n) => {
  const i = first + n;
  const text = words.slice((i * 37) % (words.length - 60), ((i * 37) % (words.length - 60)) + 12 + (i % 20)).join("");
  return i % 3 === 0 ? `${text}\n${text.slice(0, text.length / 2)}` : text;
});

/** Every option of the sampler by itself, and some together. @type {import("../../dist/index.js").GenerateOptions[]} */
const samplers = [
  { temperature: 0 },
  { temperature: 0.7 },
  { temperature: 1, topK: 5 },
  { temperature: 1, topP: 0.8 },
  { temperature: 1, minP: 0.1 },
  { temperature: 0, repetitionPenalty: 1.3 },
  { temperature: 0, presencePenalty: 0.8 },
  { temperature: 0, frequencyPenalty: 0.8, penaltyWindow: 16 },
  { temperature: 0, logitBias: { 5: 3, 9: Number.NEGATIVE_INFINITY } },
  { temperature: 0.5, suppressTokens: [3, 4, 5, 6] },
  { temperature: 0, stop: ["the", "\n\n"] },
  { temperature: 0, ignoreEos: true },
  { temperature: 0.4, logprobs: 3 },
  { temperature: 0, constraint: { kind: "json" } },
  { temperature: 0.8, topK: 40, topP: 0.9, repetitionPenalty: 1.1, presencePenalty: 0.2, logprobs: 1 },
];

let written = 0;

/**
 * Each text computes its prompt itself: AMX computes many rows in another way than few, so that one found in the store ends in other
 * bits.
 * @param {string} prompt @param {import("../../dist/index.js").GenerateOptions} how
 */
async function write(prompt, how) {
  const generation = llm.generate(prompt, { ...how, prefixScope: { salt: `${written++}` } });
  let text = "";
  for await (const piece of generation) text += piece;
  const { draftedTokens, acceptedTokens, finishReason, generatedTokens, logprobs, stopString } =
    await generation.result;
  return { told: { text, finishReason, generatedTokens, logprobs, stopString }, draftedTokens, acceptedTokens };
}

const kinds = ["lookup", "prediction", "model", ...(llm.program.has("draft") ? ["mtp"] : [])];
const drafted = Object.fromEntries(kinds.map((kind) => [kind, [0, 0]]));
for (const [place, prompt] of prompts.entries()) {
  const index = first + place;
  for (const [number, sampler] of samplers.entries()) {
    const how = { seed: index, maxTokens: Number(options.tokens), ...sampler };
    const { told } = await write(prompt, { ...how, draft: "off" });
    for (const kind of kinds) {
      const draft = kind === "model" ? smaller : kind === "mtp" ? kind : "lookup";
      const prediction = kind === "prediction" ? `${told.text.slice(0, 30)} ${told.text.slice(20)}` : "";
      const found = await write(prompt, { ...how, draft, prediction });
      assert.deepEqual(found.told, told, `prompt ${index}, sampler ${number}, ${kind}`);
      drafted[kind][0] += found.acceptedTokens;
      drafted[kind][1] += found.draftedTokens;
    }
  }
  if ((place + 1) % 20 === 0) console.log(`${place + 1} of ${count} prompts`);
}
for (const kind of kinds) {
  const [accepted, all] = drafted[kind];
  assert.ok(accepted > 0, `${kind}: no token came true`);
  console.log(`${kind}: ${accepted} of ${all} drafted tokens came true; no text differs`);
}
await smaller.dispose();
await llm.dispose();
