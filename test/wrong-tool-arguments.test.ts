/** Functions that command lines and converters are built from, with arguments of wrong types. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as aqlm from "lowbit/aqlm";
import { afterAll, beforeAll, expect, it } from "vitest";
import { operators } from "../src/extension/index.ts";
import * as api from "../src/index.ts";
import * as tools from "../src/tools/index.ts";
import { type Swept, sweep } from "./support/argument-sweep.ts";
import { temporaryFolder } from "./support/folders.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const folder = await temporaryFolder();
const cwd = process.cwd();
const path = (name: string) => join(folder, name);

let model: api.Model;
let llm: api.LanguageModel;
let program: tools.Program;

beforeAll(async () => {
  // Where a wrong path is a right one, a file is written.
  process.chdir(folder);
  await writeTinyCheckpoint(path("tiny"));
  model = await api.loadCheckpoint(path("tiny"));
  await api.exportProgram(model, path("tiny.pte"));
  llm = await api.loadProgram(path("tiny.pte"));
  program = await api.readProgram(await api.openFile(path("tiny.pte")));
});
afterAll(async () => {
  process.chdir(cwd);
  await llm.dispose();
  await model.close();
});

const swept = (
  name: string,
  call: (...given: never[]) => unknown,
  given: () => readonly unknown[],
  names: Swept["names"],
): Swept => ({ name, call, given, names });

const cpu = api.hostCpu();
const tokens = JSON.parse(
  readFileSync(new URL("../src/text/byte-level-tokenizer.json.golden", import.meta.url), "utf8"),
);
const form = { ...{ n: 8, k: 16, codebooks: 1, bits: 8, outGroup: 1, inGroup: 8 } };
const source: api.MethodSource = {
  name: "forward",
  inputs: [{ name: "x", spec: { dtype: "f32", shape: [2] }, smallest: [2] }],
  build: (_, [x]) => [x!],
};
const lists = () => ({ registry: operators, cpu });

const functions: readonly Swept[] = [
  swept("writeCalibrationText", tools.writeCalibrationText, () => [model, { tokens: 8 }], ["model", "options"]),
  swept("checkCompiles", tools.checkCompiles, () => [model, {}], ["model", "options"]),
  swept("compileModel", tools.compileModel, () => [model, {}], ["model", "options"]),
  swept("modelGraphs", tools.modelGraphs, () => [model, {}], ["model", "options"]),
  swept("programGraphs", tools.programGraphs, () => [path("tiny.pte"), {}], ["path", "options"]),
  swept("quantizeByDefault", tools.quantizeByDefault, () => [null], ["model"]),
  swept("kernelTable", tools.kernelTable, () => [cpu], ["cpu"]),
  swept("modelFactsOf", tools.modelFactsOf, () => [path("tiny.pte"), {}], ["path", "options"]),
  swept("listCachedPrograms", tools.listCachedPrograms, () => [path("cache")], ["cache"]),
  swept("removeCachedPrograms", tools.removeCachedPrograms, () => ["a", path("cache")], [
    "name|model of the cache",
    "cache",
  ]),
  swept("programCache", tools.programCache, () => [{}], ["environment"]),
  swept("hubSettings", tools.hubSettings, () => [{}], ["environment"]),
  swept("listWeights", tools.listWeights, () => [program], ["program"]),
  swept("parameterCount", tools.parameterCount, () => [[{ shape: [2] }]], ["weights"]),
  swept("bitsPerWeight", tools.bitsPerWeight, () => [[{ shape: [2], byteLength: 2 }]], ["weights"]),
  swept("hasAqlmWeights", aqlm.hasAqlmWeights, () => [model, aqlm.parseAqlmMode("aqlm-2x8")!], ["model", "mode"]),
  swept("parseAqlmMode", aqlm.parseAqlmMode, () => ["aqlm-2x8"], ["qmode"]),
  swept("aqlmBitsPerWeight", aqlm.aqlmBitsPerWeight, () => [form], ["form"]),
  swept("encodingOf", tools.encodingOf, () => ["aqlm-2x8"], ["qmode"]),
  swept("isCheckpoint", tools.isCheckpoint, () => [path("tiny")], ["path"]),
  swept("isHubName", tools.isHubName, () => ["hf:a/b"], ["name|path"]),
  swept("weightsInRecipe", tools.weightsInRecipe, () => [model, api.makeRecipe([])], ["model", "recipe"]),
  swept("weightOrigins", tools.weightOrigins, () => [model, "lowbit"], ["model", "destination"]),
  swept("describeOrigins", tools.describeOrigins, () => [tools.weightOrigins(model)], ["origins"]),
  swept("isQuantizedApart", tools.isQuantizedApart, () => [model, model.network.slots[0]!], ["model", "slot"]),
  swept("wasmKernelText", tools.wasmKernelText, () => ["rms_norm_f32_1x1x4_wasm_simd"], ["kernel|row"]),
  swept("compareModels", tools.compareModels, () => [llm, llm, [1, 2, 3], {}], [
    "model",
    "reference",
    "ids|text|token",
    "options",
  ]),
  swept("compareEach", tools.compareEach, () => [[llm], llm, [1, 2, 3], {}], [
    "models",
    "reference",
    "ids|text|token",
    "options",
  ]),
  swept("createDecoder", tools.createDecoder, () => [llm.program, undefined], ["program", "scope"]),
  swept("samplingDefaults", tools.samplingDefaults, () => [{}, "x", 9], ["generationConfig", "file", "vocabularySize"]),
  swept("cannotWrite", tools.cannotWrite, () => [path("x"), new Error("x")], ["path", "cause"]),
  swept("checkOutput", tools.checkOutput, () => [path("x"), []], ["path", "inputs"]),
  swept("checkOutputFolder", tools.checkOutputFolder, () => [path("x"), []], ["path", "inputs"]),
  swept("readFileWhole", tools.readFileWhole, () => [path("tiny.pte")], ["path"]),
  swept("writeFileWhole", tools.writeFileWhole, () => [path("x"), async () => {}], ["path", "write"]),
  swept("parseEmbedding", tools.parseEmbedding, () => ["4,32", {}], ["spec|embedding", "options"]),
  swept("parseGroupSize", tools.parseGroupSize, () => ["32"], ["text|group"]),
  swept("searched", tools.searched, () => [{ bits: 4 }], ["options|bits"]),
  swept("needsActivations", tools.needsActivations, () => ["mse"], ["algorithm"]),
  swept("capture", tools.capture, () => [source, operators, cpu], ["source|method", "registry", "cpu"]),
  swept("compile", tools.compile, () => [[source], lists()], ["sources", "options"]),
  swept("formatGraph", tools.formatGraph, () => [tools.capture(source, operators, cpu)], ["graph"]),
  swept(
    "new ChatTemplate",
    (...given: [string, string]) => new tools.ChatTemplate(...given),
    () => ["{{ 1 }}", "x"],
    ["source", "file|name"],
  ),
  swept("takesTools", tools.takesTools, () => ["{{ tools }}"], ["template|source"]),
  swept(
    "new Tokenizer",
    (...given: [unknown]) => new tools.Tokenizer(...given),
    () => [tokens],
    ["file|tokenizer"],
  ),
  swept("encodeChat", tools.encodeChat, () => [llm.tokenizer, llm.template, [{ role: "user", content: "a" }], {}], [
    "tokenizer",
    "template",
    "messages",
    "options",
  ]),
  swept("logitsProblem", tools.logitsProblem, () => [new Float32Array(2)], ["logits"]),
  swept(
    "claimPath",
    async (...given: Parameters<typeof tools.claimPath>) => (await tools.claimPath(...given)).release(),
    () => [path("claimed"), {}],
    ["path", "options"],
  ),
  swept("dequantizeAqlm", aqlm.dequantizeAqlm, () => [null], ["weights"]),
  swept("packCodes", aqlm.packCodes, () => [null], ["weights"]),
  swept("unpackCodes", aqlm.unpackCodes, () => [null], ["codes"]),
  swept(
    "LoadedProgram.load",
    async (...given: Parameters<typeof tools.LoadedProgram.load>) =>
      (await tools.LoadedProgram.load(...given)).dispose(),
    () => [program, {}],
    ["program", "options"],
  ),
  swept(
    "loadProgramObject",
    async (...given: Parameters<typeof tools.loadProgramObject>) => (await tools.loadProgramObject(...given)).dispose(),
    () => [program, "x", {}],
    ["program", "name", "options"],
  ),
  swept("PrefixCache.open", tools.PrefixCache.open, () => [{ folder: path("prefixes") }], ["options"]),
  swept(
    "mcpTools",
    tools.mcpTools,
    () => [{ listTools: async () => ({ tools: [] }), callTool: async () => ({}) }, "x"],
    ["client", "server"],
  ),
  swept("restorePrefix", tools.restorePrefix, () => [llm, path("none")], ["model", "path"]),
];

it("are refused by name, or taken", async () => {
  const { calls, problems } = await sweep(functions);
  expect(calls).toBeGreaterThan(800);
  expect(problems).toEqual([]);
}, 120_000);
