/** What callers without types give by mistake is refused by name, in every function that takes a model, options or a text. */
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { temporaryFolder } from "../test/support/folders.ts";
import { writeTinyCheckpoint } from "../test/support/tiny-checkpoint.ts";
import { compileModel } from "./api/compile-model.ts";
import { EagerModel } from "./api/eager-model.ts";
import { exportProgram } from "./api/export-program.ts";
import { modelGraphs } from "./api/graphs.ts";
import { inspectProgram } from "./api/inspect.ts";
import { kernelTable } from "./api/kernel-table.ts";
import { loadCompiled } from "./api/load-compiled.ts";
import { loadProgram } from "./api/load-program.ts";
import { exportMethods } from "./api/methods.ts";
import { saveGguf } from "./api/save-gguf.ts";
import { saveTorchao } from "./api/save-torchao.ts";
import { calibrate } from "./checkpoint/calibrate/calibrate.ts";
import { loadCheckpoint } from "./checkpoint/load.ts";
import type { Model } from "./checkpoint/model.ts";
import { quantize, quantizeByRecipe } from "./checkpoint/quantize.ts";
import { weightOrigins } from "./checkpoint/weight-origins.ts";
import { InvalidArgumentError } from "./errors.ts";
import { pullModel } from "./hub/snapshot.ts";
import { benchmark } from "./language/benchmark.ts";
import { evaluatePerplexity } from "./language/evaluate.ts";
import type { LanguageModel } from "./language/language-model.ts";
import { embedding, int8DynamicActivationIntxWeight } from "./quantize/config.ts";

const folder = await temporaryFolder();
const path = join(folder, "model.pte");
let model: Model;
let loaded: LanguageModel;
beforeAll(async () => {
  await writeTinyCheckpoint(join(folder, "model"));
  model = await loadCheckpoint(join(folder, "model"));
  loaded = await loadCompiled(model);
});
afterAll(async () => {
  await loaded.dispose();
  await model.close();
});

/** Whatever is thrown at once or later. */
async function failure(call: () => unknown): Promise<unknown> {
  try {
    await call();
  } catch (error) {
    return error;
  }
  return null;
}

const takeModels: Record<string, (model: never) => unknown> = {
  exportProgram: (given) => exportProgram(given, path),
  compileModel,
  "EagerModel.load": (given) => EagerModel.load(given),
  loadCompiled,
  modelGraphs,
  quantize: (given) => quantize(given, [embedding()]),
  quantizeByRecipe: (given) => quantizeByRecipe(given, []),
  calibrate: (given) => calibrate(given, "text"),
  saveGguf: (given) => saveGguf(given, path),
  saveTorchao: (given) => saveTorchao(given, folder),
  weightOrigins,
};
const takePrograms: Record<string, (model: never) => unknown> = {
  benchmark,
  evaluatePerplexity: (given) => evaluatePerplexity(given, "text"),
};

test.each([
  ...Object.entries(takeModels).map(([name, call]) => [name, "loadCheckpoint", call] as const),
  ...Object.entries(takePrograms).map(([name, call]) => [name, "loadProgram", call] as const),
])("%s: a promise of a model, or none", async (_name, maker, call) => {
  expect(await failure(() => call(Promise.resolve() as never))).toEqual(
    new InvalidArgumentError(`model: expected one of ${maker}() but found Promise; await it`),
  );
  expect(await failure(() => call(undefined as never))).toEqual(
    new InvalidArgumentError(`model: expected one of ${maker}() but found Undefined`),
  );
});

const takeOptions: Record<string, (options: never) => unknown> = {
  loadCheckpoint: (options) => loadCheckpoint(join(folder, "model"), options),
  pullModel: (options) => pullModel("org/model", options),
  exportProgram: (options) => exportProgram(model, path, options),
  compileModel: (options) => compileModel(model, options),
  "EagerModel.load": (options) => EagerModel.load(model, options),
  loadCompiled: (options) => loadCompiled(model, options),
  exportMethods: (options) => exportMethods([{ name: "m", inputs: [], build: () => [] }], path, options),
  loadProgram: (options) => loadProgram(path, options),
  inspectProgram: (options) => inspectProgram(path, options),
  quantize: (options) => quantize(model, [], options),
  calibrate: (options) => calibrate(model, "text", options),
  saveGguf: (options) => saveGguf(model, path, options),
  saveTorchao: (options) => saveTorchao(model, folder, options),
  benchmark: (options) => benchmark(loaded, options),
  evaluatePerplexity: (options) => evaluatePerplexity(loaded, "text", options),
  generate: (options) => loaded.generate("text", options),
  int8DynamicActivationIntxWeight: (options) => int8DynamicActivationIntxWeight(options),
};

test.each(Object.entries(takeOptions))("%s: options that are none", async (_name, call) => {
  for (const [options, problem] of [
    [null, "options: expected an object but found Null"],
    [4, "options: expected an object but found Number"],
    [{ signal: new AbortController() }, "signal: expected an AbortSignal but found AbortController"],
    [{ cpu: "neoverse-n1" }, "cpu: expected one of cpuWith() but found String"],
  ] as const)
    expect(await failure(() => call(options as never))).toEqual(new InvalidArgumentError(problem));
});

test.each<[string, () => unknown, string]>([
  [
    "a recipe",
    () => quantizeByRecipe(model, "r.json" as never),
    "recipe: expected one of makeRecipe() but found String",
  ],
  ["methods", () => exportMethods([], path), "methods: expected a list of at least one but found []"],
  ["a CPU", () => kernelTable("zen4" as never), "cpu: expected one of cpuWith() but found String"],
  ["a name", () => pullModel(5 as never), "name: expected a string but found Number"],
  [
    "a text to measure",
    () => evaluatePerplexity(loaded, 5 as never),
    "text: expected a string or a list of token ids but found Number",
  ],
  ["a text to encode", () => loaded.tokenizer.encode(null as never), "text: expected a string but found Null"],
  ["ids to decode", () => loaded.tokenizer.decode(5 as never), "ids: expected a list of token ids but found 5"],
  [
    "a prompt's ids",
    () => loaded.createDecoder().prefill("ab" as never),
    'prefill: expected a list of token ids but found "ab"',
  ],
  [
    "tokens that are suppressed",
    () =>
      loaded
        .generate("a", { suppressTokens: 3 as never })
        [Symbol.asyncIterator]()
        .next(),
    "suppressTokens: expected a list of token ids but found 3",
  ],
  [
    "a bias",
    () =>
      loaded
        .generate("a", { logitBias: 3 as never })
        [Symbol.asyncIterator]()
        .next(),
    "logitBias: expected an object but found 3",
  ],
])("what is no %s", async (_what, call, problem) => {
  expect(await failure(call)).toEqual(new InvalidArgumentError(problem));
});
