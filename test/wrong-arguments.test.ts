/** Every function that users call, its options, and the methods of what it gives, with arguments of wrong types. */
import { join } from "node:path";
import { encodeAqlm } from "lowbit/aqlm";
import { afterAll, beforeAll, expect, it } from "vitest";
import { LowbitError } from "../src/errors.ts";
import * as api from "../src/index.ts";
import { promptLogProbabilities } from "../src/language/prompt-log-probabilities.ts";
import type { RenderOptions } from "../src/text/chat-template.ts";
import { fitSize, formatRecipe, restorePrefix, savePrefix } from "../src/tools/index.ts";
import { type Swept, sweep, WRONG } from "./support/argument-sweep.ts";
import { temporaryFolder } from "./support/folders.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const folder = await temporaryFolder();
const path = (name: string) => join(folder, name);
const embedder = join(import.meta.dirname, "../models/tiny-bge");

let model: api.Model;
let llm: api.LanguageModel;
let vectors: api.LanguageModel;
let own: api.LoadedProgram;
/** Models that are calibrated, of which each call needs one. */
const calibrated: api.Model[] = [];
const fresh = async () => {
  const made = api.quantize(await api.loadCheckpoint(path("tiny")), linear());
  calibrated.push(made);
  return made;
};

const cwd = process.cwd();

beforeAll(async () => {
  // Where a wrong path is a right one, a file is written.
  process.chdir(folder);
  await writeTinyCheckpoint(path("tiny"));
  model = await api.loadCheckpoint(path("tiny"));
  await api.exportProgram(model, path("tiny.pte"));
  llm = await api.loadProgram(path("tiny.pte"));
  const encoder = await api.loadCheckpoint(embedder);
  vectors = await api.loadCompiled(encoder);
  await encoder.close();
  await api.exportMethods([method], path("own.pte"));
  own = await api.loadMethods(path("own.pte"));
});
afterAll(async () => {
  process.chdir(cwd);
  for (const one of [llm, vectors, own]) await one.dispose();
  for (const one of [model, ...calibrated]) await one.close();
});

const SLOT = "model.layers.0.self_attn.q_proj.weight";
const opened = async (name: string) => api.openFile(path(name));
const SIGNAL_CPU = ["signal", "cpu"];
const LOAD = [
  "registry",
  "cpu",
  "threads",
  "profile",
  "onProgress",
  "signal",
  "contextLength",
  "kvCache",
  "sequences",
  "cacheBytes",
];
const COMPILE = ["signal", "cpu", "maxSeqLen", "maxContextLen", "logits", "target"];
const SAMPLE = [
  "temperature",
  "topK",
  "topP",
  "minP",
  "repetitionPenalty",
  "presencePenalty",
  "frequencyPenalty",
  "penaltyWindow",
  "logitBias",
  "suppressTokens",
  "seed",
];
const GENERATE = [
  ...SAMPLE,
  "stop",
  "stopTokens",
  "eosIds",
  "ignoreEos",
  "logprobs",
  "contextIds",
  "draft",
  "prediction",
  "constraint",
  "signal",
];
const CHAT = ["tools", "thinking", "templateOptions", "schema", "toolChoice"];
const QUANT = ["bits", "groupSize", "mappingType", "scaleDType", "algorithm"];
const messages = [{ role: "user" as const, content: "Hi" }];
const short = { maxTokens: 2 };
const method: api.MethodSource = {
  name: "forward",
  inputs: [{ name: "x", spec: { dtype: "f32", shape: [1, 8] }, smallest: [1, 1] }],
  build: (_, inputs) => inputs,
};
const ones = () => ({ dtype: "f32" as const, shape: [1, 3], data: new Float32Array(3) });
const linear = () => [api.int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 })];

/** Loads or makes something, and frees it. */
const disposing = <A extends unknown[]>(make: (...given: A) => Promise<{ dispose(): Promise<void> }>) => {
  return async (...given: A) => (await make(...given)).dispose();
};

const fromFiles: Swept[] = [
  {
    name: "loadProgram",
    call: disposing(api.loadProgram),
    given: () => [path("tiny.pte"), {}],
    names: ["path", "options"],
    options: [...LOAD, "data"],
  },
  {
    name: "loadMethods",
    call: disposing(api.loadMethods),
    given: () => [path("tiny.pte"), {}],
    names: ["path", "options"],
    options: [...LOAD, "data"],
  },
  {
    name: "loadCompiled",
    call: disposing(api.loadCompiled),
    given: () => [model, {}],
    names: ["model", "options"],
    options: [...new Set([...COMPILE, ...LOAD])],
  },
  {
    name: "loadCheckpoint",
    call: async (...given: Parameters<typeof api.loadCheckpoint>) => (await api.loadCheckpoint(...given)).close(),
    given: () => [path("tiny"), {}],
    names: ["path", "options"],
    options: ["signal", "onProgress", "settings"],
  },
  {
    name: "exportProgram",
    call: api.exportProgram,
    given: () => [model, path("out.pte"), {}],
    names: ["model", "path", "options"],
    options: [...COMPILE, "resume", "onProgress"],
  },
  {
    name: "exportMethods",
    call: api.exportMethods,
    given: () => [[method], path("methods.pte"), {}],
    names: ["methods", "path", "options"],
    options: ["cpu"],
  },
  {
    name: "saveGguf",
    call: api.saveGguf,
    given: () => [model, path("out.gguf"), {}],
    names: ["model", "path", "options"],
    options: ["signal", "blockType", "onProgress"],
  },
  {
    name: "saveTorchao",
    call: api.saveTorchao,
    given: () => [model, path("out"), {}],
    names: ["model", "folder", "options"],
    options: ["signal"],
  },
  {
    name: "inspectProgram",
    call: api.inspectProgram,
    given: () => [path("tiny.pte"), {}],
    names: ["path", "options"],
    options: SIGNAL_CPU,
  },
  {
    name: "bundleProgram",
    call: api.bundleProgram,
    given: () => [path("tiny.pte"), path("bundle")],
    names: ["path", "folder"],
  },
  {
    name: "openFile",
    call: async (...given: Parameters<typeof api.openFile>) => (await api.openFile(...given)).close(),
    given: () => [path("tiny.pte")],
    names: ["path"],
  },
  {
    name: "pullModel",
    call: api.pullModel,
    given: () => [
      "hf:none/none",
      { settings: { endpoint: "http://127.0.0.1:9", cache: path("cache"), token: null, offline: true } },
    ],
    names: ["name", "options"],
    options: ["settings", "wanted", "onPlan", "onProgress", "signal"],
  },
  {
    name: "readProgram",
    call: api.readProgram,
    given: async () => [await opened("tiny.pte"), {}],
    names: ["source", "options"],
    options: ["data"],
  },
  {
    name: "saveProgram",
    call: api.saveProgram,
    given: async () => [await api.readProgram(await opened("tiny.pte")), path("copy.pte"), {}],
    names: ["program", "path", "options"],
    options: ["resumeKey", "onProgress", "signal"],
  },
  {
    name: "savePrefix",
    call: savePrefix,
    given: () => [llm, "Hello", path("prefix")],
    names: ["model", "prompt", "path|prompt"],
  },
  { name: "restorePrefix", call: restorePrefix, given: () => [llm, path("prefix")], names: ["model", "path"] },
];

const ofModels: Swept[] = [
  {
    name: "quantize",
    call: api.quantize,
    given: () => [model, linear(), {}],
    names: ["model", "configs", "options"],
    options: ["quantizeHead", "head"],
  },
  {
    name: "quantizeByRecipe",
    call: api.quantizeByRecipe,
    given: () => [model, api.makeRecipe([])],
    names: ["model", "recipe"],
  },
  { name: "makeRecipe", call: api.makeRecipe, given: () => [[["lm_head", null]]], names: ["entries"] },
  {
    name: "makeRecipe of an entry",
    call: (name: string, config: null) => api.makeRecipe([[name, config]]),
    given: () => ["lm_head", null],
    names: ["name", "config"],
  },
  { name: "parseRecipe", call: api.parseRecipe, given: () => ["{}", "recipe.json"], names: ["json", "file"] },
  {
    name: "parseQmode",
    call: api.parseQmode,
    given: () => ["8da4w", {}],
    names: ["qmode", "options|unknown field"],
    options: QUANT,
  },
  {
    name: "int8DynamicActivationIntxWeight",
    call: api.int8DynamicActivationIntxWeight,
    given: () => [{}],
    names: ["options|unknown field"],
    options: QUANT,
  },
  {
    name: "intxWeightOnly",
    call: api.intxWeightOnly,
    given: () => [{}],
    names: ["options|unknown field"],
    options: QUANT,
  },
  { name: "embedding", call: api.embedding, given: () => [{}], names: ["options|unknown field"], options: QUANT },
  {
    name: "sharedEmbedding",
    call: api.sharedEmbedding,
    given: () => [{}],
    names: ["options|unknown field"],
    options: QUANT,
  },
  {
    name: "calibrate",
    call: api.calibrate,
    given: async () => [await fresh(), "First Citizen", { smoothQuant: 0.5 }],
    names: ["model", "text", "options|calibrate"],
    options: ["smoothQuant", "folder", "onProgress", "signal", "maxTokens|tokens of", "window"],
  },
  {
    name: "fitSize",
    call: fitSize,
    given: async () => [await fresh(), "First Citizen", { bytes: 1e9 }],
    names: ["model", "text", "options|bytes"],
    options: ["bytes", "groupSizes", "onProgress", "signal", "maxTokens|tokens of", "window", "target", "maxSeqLen"],
  },
  {
    name: "Model.configure",
    call: (configs: Map<string, null>) => model.configure(configs),
    given: () => [new Map()],
    names: ["configs"],
  },
  {
    name: "Model.replaceWeight",
    call: async (name: string, weight: ReturnType<api.Model["weight"]>) => (await fresh()).replaceWeight(name, weight),
    given: () => [SLOT, model.weight(SLOT)],
    names: ["name|weight", "weight"],
  },
  {
    name: "Model.weight",
    call: (name: string, use: object) => model.weight(name, use),
    given: () => [SLOT, {}],
    names: ["name|weight", "options"],
  },
  {
    name: "Model.setImportance",
    call: async (name: string, importance: Float32Array) => (await fresh()).setImportance(name, importance),
    given: () => [SLOT, new Float32Array(3)],
    names: ["name|weight", "importance"],
  },
  { name: "formatRecipe", call: formatRecipe, given: () => [model], names: ["model"] },
  {
    name: "encodeAqlm",
    call: encodeAqlm,
    given: () => [model, { codebooks: 1, bits: 2, skip: () => true }],
    names: ["model", "options"],
    options: [
      "codebooks",
      "bits",
      "calibrationText",
      "calibrationTokens",
      "skip",
      "folder",
      "onProgress",
      "onDamagedPart",
      "signal",
    ],
  },
  { name: "cpuWith", call: api.cpuWith, given: () => [""], names: ["list|CPU"] },
  {
    name: "Profile",
    call: (options: object) => new api.Profile(options),
    given: () => [{}],
    names: ["options"],
    options: ["trace"],
  },
  {
    name: "EagerModel.load",
    call: (...given: Parameters<typeof api.EagerModel.load>) => api.EagerModel.load(...given),
    given: () => [model, {}],
    names: ["model", "options"],
    options: ["cpu", "contextLength", "logits", "kvCache", "signal"],
  },
  {
    name: "EagerModel.forward",
    call: async (ids: number[], position: number) => (await api.EagerModel.load(model)).forward(ids, position),
    given: () => [[1, 2], 0],
    names: ["ids", "position"],
  },
];

const ofLanguageModels: Swept[] = [
  {
    name: "generate",
    call: (...given: Parameters<typeof llm.generate>) => llm.generate(...given),
    given: () => ["Hello", short],
    names: ["prompt|token id", "options|n:"],
    options: GENERATE,
  },
  {
    name: "generateChoices",
    call: async (...given: Parameters<typeof llm.generateChoices>) => llm.generateChoices(...given),
    given: () => ["Hello", { ...short, n: 2 }],
    names: ["prompt|token id", "options|n:"],
    options: ["n", "maxTokens"],
  },
  {
    name: "chat",
    call: (...given: Parameters<typeof llm.chat>) => llm.chat(...given),
    given: () => [messages, short],
    names: ["messages", "options|n:"],
    options: [...GENERATE, ...CHAT],
  },
  {
    name: "chatChoices",
    call: async (...given: Parameters<typeof llm.chatChoices>) => llm.chatChoices(...given),
    given: () => [messages, { ...short, n: 2 }],
    names: ["messages", "options|n:"],
    options: ["n", "onEnd"],
  },
  {
    name: "encodeChat",
    call: (...given: Parameters<typeof llm.encodeChat>) => llm.encodeChat(...given),
    given: () => [messages, {}],
    names: ["messages", "options|n:"],
    options: ["tools", "thinking", "templateOptions"],
  },
  {
    name: "createConversation",
    call: (...given: Parameters<typeof llm.createConversation>) => llm.createConversation(...given).send("Hi", short),
    given: () => [{}],
    names: ["options"],
    options: [...SAMPLE, ...CHAT, "onToolCall", "whenFull", "onLeaveOut"],
  },
  {
    name: "Conversation.send",
    call: (...given: Parameters<api.Conversation["send"]>) => llm.createConversation().send(...given),
    given: () => ["Hi", short],
    names: ["content", "options"],
    options: [...SAMPLE, ...CHAT, "maxToolRounds"],
  },
  {
    name: "Conversation.reset",
    call: (start: string) => llm.createConversation().reset(start),
    given: () => [""],
    names: ["start|messages"],
  },
  {
    name: "warmUp",
    call: (options: object) => llm.warmUp(options),
    given: () => [{ warmUpMs: 1 }],
    names: ["options"],
    options: ["signal", "warmUpMs"],
  },
  {
    name: "decoder.prefill",
    call: (ids: number[], options: object) => llm.createDecoder().prefill(ids, options),
    given: () => [[1, 2], {}],
    names: ["prefill|token id", "options"],
    options: ["signal"],
  },
  {
    name: "decoder.step",
    call: (id: number, options: object) => llm.createDecoder().step(id, options),
    given: () => [1, {}],
    names: ["step|token id", "options"],
    options: ["signal"],
  },
  {
    name: "decoder.allLogits",
    call: (ids: number[], options: object) => llm.createDecoder().allLogits(ids, options),
    given: () => [[1, 2], {}],
    names: ["allLogits|token id", "options"],
    options: ["signal"],
  },
  {
    name: "decoder.rewind",
    call: (position: number) => llm.createDecoder().rewind(position),
    given: () => [0],
    names: ["rewind"],
  },
  {
    name: "tokenizer.encode",
    call: (text: string, options: object) => llm.tokenizer.encode(text, options),
    given: () => ["Hello", {}],
    names: ["text", "options"],
    options: ["addSpecialTokens", "allowControlTokens", "contextLength", "pair", "maxTokens", "truncation", "padding"],
  },
  {
    name: "tokenizer.decode",
    call: (ids: number[], options: object) => llm.tokenizer.decode(ids, options),
    given: () => [[1, 2], {}],
    names: ["ids", "options"],
    options: ["skipSpecialTokens", "stream"],
  },
  {
    name: "template.render",
    call: (list: typeof messages, options: RenderOptions) => llm.template!.render(list, options),
    given: () => [messages, {}],
    names: ["messages", "options|n:|nests"],
    options: ["tools", "documents", "bosToken|bos_token", "documents"],
  },
  {
    name: "embed",
    call: (...given: Parameters<typeof vectors.embed>) => vectors.embed(...given),
    given: () => [["a"], {}],
    names: ["texts?", "options"],
    options: ["prompt", "truncate", "dimensions", "signal"],
  },
  {
    name: "embedding.encode",
    call: (text: string, options: object) => vectors.embedding!.encode(text, options),
    given: () => ["a", {}],
    names: ["text", "options"],
    options: ["prompt", "truncate"],
  },
  {
    name: "rank",
    call: (...given: Parameters<typeof llm.rank>) => llm.rank(...given),
    given: () => ["a", ["b"], {}],
    names: ["query", "documents", "options"],
    options: ["prompt", "truncate", "signal"],
  },
  {
    name: "evaluatePerplexity",
    call: api.evaluatePerplexity,
    given: () => [llm, [1, 2, 3], {}],
    names: ["model", "text|token id", "options"],
    options: ["window", "stride", "maxTokens", "onProgress", "signal"],
  },
  {
    name: "promptLogProbabilities",
    call: promptLogProbabilities,
    given: () => [llm, [1, 2], {}],
    names: ["model", "ids|token id", "options"],
    options: ["top", "signal"],
  },
  {
    name: "benchmark",
    call: api.benchmark,
    given: () => [llm, { promptTokens: 2, decodeTokens: 2, runs: 1 }],
    names: ["model", "options"],
    options: ["promptTokens", "decodeTokens", "runs", "seed", "onProgress", "signal"],
  },
  {
    name: "session.run",
    call: (...given: Parameters<api.Session["run"]>) => own.createSession().run(...given),
    given: () => ["forward", [ones()], undefined],
    names: ["name|method", "inputs", "signal"],
  },
  {
    name: "session.use",
    call: (...given: Parameters<api.Session["use"]>) => own.createSession().use(...given),
    given: () => ["forward", [ones()], () => 1, undefined],
    names: ["name|method", "inputs", "read", "signal"],
  },
  {
    name: "session.run of an input",
    call: (input: ReturnType<typeof ones>) => own.createSession().run("forward", [input]),
    given: () => [ones()],
    names: ["input"],
    options: ["dtype|input", "shape|input", "data|input"],
  },
  {
    name: "program.method",
    call: (name: string) => llm.program.method(name),
    given: () => ["forward"],
    names: ["name|method"],
  },
  {
    name: "program.count",
    call: (name: string) => llm.program.count(name),
    given: () => ["get_vocab_size"],
    names: ["name|method"],
  },
  {
    name: "source.read",
    call: async (offset: number, length: number) => (await opened("tiny.pte")).read(offset, length),
    given: () => [0, 4],
    names: ["offset|read", "length|read"],
  },
];

it("methods of Ops: each wrong argument is refused, or taken", async () => {
  const names = Object.getOwnPropertyNames(api.Ops.prototype).filter((name) => name !== "constructor");
  const problems: string[] = [];
  const build: api.MethodSource["build"] = (builder, inputs) => {
    const ops = new api.Ops(builder);
    const [x] = inputs;
    for (const name of names)
      for (const before of [[], [x], [x, x], [x, x, x]])
        for (const [kind, value] of WRONG)
          try {
            (ops[name as keyof typeof ops] as (...given: unknown[]) => unknown).call(ops, ...before, value);
          } catch (error) {
            if (!(error instanceof LowbitError))
              problems.push(`${name}, argument ${before.length} ${kind}: ${(error as Error).stack}`);
          }
    return inputs;
  };
  await api.exportMethods([{ ...method, build }], path("ops.pte"));
  expect(problems).toEqual([]);
});

it.each([
  ["functions of files", fromFiles],
  ["functions of models", ofModels],
  ["functions of language models", ofLanguageModels],
])(
  "%s: each wrong argument is refused by its name, or taken",
  async (_, functions) => {
    const { calls, problems } = await sweep(functions);
    expect(problems).toEqual([]);
    expect(calls).toBeGreaterThan(functions.length * 10);
  },
  600_000,
);
