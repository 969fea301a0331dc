/** Orders of calls on a model of a checkpoint: those that work, and those that fail at once with what to do. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { encodeAqlm } from "lowbit/aqlm";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { LowbitError } from "../errors.ts";
import {
  calibrate,
  EagerModel,
  embedding,
  exportProgram,
  intxWeightOnly,
  loadCheckpoint,
  loadCompiled,
  type Model,
  parseRecipe,
  quantize,
  quantizeByRecipe,
  saveGguf,
  saveTorchao,
  type Tensor,
} from "../index.ts";
import { saveProgram } from "../program/save.ts";
import { compileModel } from "../tools/index.ts";

const folder = await temporaryFolder();
const checkpoint = join(folder, "tiny");
await writeTinyCheckpoint(checkpoint);
const text = "The quick brown fox jumps over the lazy dog. ".repeat(3);
const output = join(folder, "output");
const four = { bits: 4, groupSize: 32, scaleDType: "f16" } as const;
const recipe = parseRecipe(
  '{"re:.*mlp.*": {"kind": "intxWeightOnly", "bits": 4, "groupSize": 32, "scaleDType": "f16"}}',
  "recipe",
);

/** Every call on a model. */
const calls = {
  quantize: (model) => quantize(model, [intxWeightOnly(four)]),
  "quantize by gptq": (model) => quantize(model, [intxWeightOnly({ ...four, algorithm: "gptq" })]),
  "quantize the embedding": (model) => quantize(model, [embedding(four)]),
  "quantize by a recipe": (model) => quantizeByRecipe(model, recipe),
  calibrate: (model) => calibrate(model, text),
  "calibrate smoothly": (model) => calibrate(model, text, { smoothQuant: 0.5 }),
  encode: (model) => encodeAqlm(model, { codebooks: 1, bits: 2, calibrationText: text }),
  export: (model) => exportProgram(model, output),
  "load compiled": async (model) => (await loadCompiled(model)).dispose(),
  "load eagerly": (model) => EagerModel.load(model),
  "save for TorchAO": (model) => saveTorchao(model, `${output}-torchao`),
  "save as GGUF": (model) => saveGguf(model, output),
  close: (model) => model.close(),
} satisfies Record<string, (model: Model) => unknown>;
type Call = keyof typeof calls;

const uses: readonly Call[] = ["export", "load compiled", "load eagerly", "save for TorchAO", "save as GGUF"];
const settings: readonly Call[] = ["quantize", "quantize by gptq", "quantize the embedding", "quantize by a recipe"];
const all = Object.keys(calls) as Call[];

/** What a call says after others, which work; null: nothing. */
type Order = readonly [before: readonly Call[], last: Call, problem: string | null];

const works = (before: readonly Call[], last: readonly Call[]) => last.map((call): Order => [before, call, null]);
const fails = (before: readonly Call[], last: readonly Call[], problem: string) =>
  last.map((call): Order => [before, call, problem]);

const nothing = 'calibrate: expected linear layers of algorithm "imatrix"';
const isCalibrated = "is calibrated already";
const again = "is not quantized again; give configurations for other layers only";
const linear: readonly Call[] = ["quantize", "quantize by gptq", "quantize by a recipe"];
const ready = uses.filter((use) => use !== "save for TorchAO" && use !== "save as GGUF");
const encodable = ["save for TorchAO", "save as GGUF"] as const;

const orders: readonly Order[] = [
  ...works([], [...settings, "encode", ...uses, "close"]),
  ...fails([], ["calibrate"], nothing),
  ...settings.flatMap((first) => works([first], [...settings, "encode"])),
  ...["quantize", "quantize by a recipe"].flatMap((first) => works([first as Call], ["calibrate smoothly", ...uses])),
  ...fails(["quantize"], ["calibrate"], nothing),
  ...fails(["quantize by a recipe"], ["calibrate"], nothing),
  ...fails(["quantize by gptq"], uses, "looks at activations; calibrate the model with a text first"),
  ...["calibrate", "calibrate smoothly"].flatMap((how) => {
    const before = ["quantize by gptq", how] as readonly Call[];
    return [
      ...works([before[0]!], [before[1]!]),
      ...works(before, [...uses, "close"]),
      ...fails(
        before,
        settings,
        `tiny: ${isCalibrated}, for the configurations that it had; load the checkpoint again`,
      ),
      ...fails(
        before,
        ["calibrate", "calibrate smoothly"],
        `${isCalibrated}; load the checkpoint again to calibrate it`,
      ),
      ...fails(
        before,
        ["encode"],
        `encodeAqlm: tiny ${isCalibrated}; load the checkpoint again, encode, then calibrate`,
      ),
    ];
  }),
  ...works(["encode"], ["quantize the embedding", ...ready, "close"]),
  ...fails(["encode"], linear, `was given weights of format aqlm and ${again}`),
  ...fails(["encode"], ["encode"], "expected weights that are floats or integers with scales to encode"),
  ...fails(["encode"], ["calibrate"], nothing),
  ...fails(["encode"], encodable, "format aqlm"),
  // Encoding leaves the head, which still waits.
  ...fails(["quantize by gptq", "encode"], ready, 'lm_head.weight: algorithm "gptq" looks at activations'),
  ...works(["quantize by gptq", "encode", "calibrate"], ready),
  ...fails(
    ["close"],
    all.filter((call) => call !== "close"),
    "tiny: the model is closed; load the checkpoint again",
  ),
  ...fails(["quantize by gptq", "close"], ["calibrate"], "tiny: the model is closed; load the checkpoint again"),
];

describe("after loading a checkpoint", () => {
  it.each(orders.map(([before, last, problem]) => [[...before, last].join(", then "), before, last, problem] as const))(
    "%s",
    async (_, before, last, problem) => {
      const model = await loadCheckpoint(checkpoint);
      for (const call of before) await calls[call](model);
      const run = async () => calls[last](model);
      if (problem === null) await run();
      else await expectRefused(model, run, problem);
      await model.close();
    },
  );
});

/** Refused before a weight is read, and with the weights of the model as they were. */
async function expectRefused(model: Model, run: () => Promise<unknown>, problem: string): Promise<void> {
  const states = () => model.decoder.slots.map(({ name }) => model.slotWeight(name));
  const before = states();
  const { tensors } = model.checkpoint;
  const reads: string[] = [];
  for (const method of ["read", "readRows"] as const) {
    const original = tensors[method].bind(tensors) as (...args: unknown[]) => never;
    Object.defineProperty(tensors, method, {
      configurable: true,
      value: (...args: unknown[]) => {
        reads.push(String(args[0]));
        return original(...args);
      },
    });
  }
  const error = await run().then(
    () => null,
    (cause: unknown) => cause,
  );
  expect(error).toBeInstanceOf(LowbitError);
  expect((error as LowbitError).message).toContain(problem);
  expect(reads).toEqual([]);
  expect(states()).toEqual(before);
}

it("a program that was not written before its model is closed says so", async () => {
  const model = await loadCheckpoint(checkpoint);
  const program = compileModel(model);
  await model.close();
  const path = join(folder, "late.pte");
  await expect(saveProgram(program, path)).rejects.toThrow("is closed: whatever needs it must be done before");
  expect(existsSync(path)).toBe(false);
});

it("an eager model keeps the weights that it read, whatever becomes of the checkpoint's", async () => {
  const model = await loadCheckpoint(checkpoint);
  const eager = await EagerModel.load(model);
  const before = (eager.forward([1, 2, 3], 0).data as Float32Array).slice();
  quantize(model, [intxWeightOnly({ bits: 2, groupSize: 32 })]);
  await model.close();
  expect(eager.forward([1, 2, 3], 0).data).toEqual(before);
});

it("quantizing leaves nothing of what was set before, and sets nothing when it is refused", async () => {
  const model = await loadCheckpoint(checkpoint);
  quantize(model, [intxWeightOnly(four), embedding(four)]);
  quantize(model, [intxWeightOnly({ ...four, bits: 8 })], { quantizeHead: false });
  expect([...new Set([...model.configs.values()].map(({ bits }) => bits))]).toEqual([8]);
  expect(["lm_head.weight", "model.embed_tokens.weight"].map((name) => model.configOf(name))).toEqual([
    undefined,
    undefined,
  ]);
  const down = "model.layers.1.mlp.down_proj.weight";
  model.replaceWeight(down, model.weight(down));
  const before = model.configs;
  expect(() => quantize(model, [intxWeightOnly(four)])).toThrow(`${down}: was given weights of format affine`);
  expect(model.configs).toEqual(before);
  await model.close();
});

it("a weight given to a slot is that of the slots tied to it", async () => {
  const model = await loadCheckpoint(checkpoint);
  quantize(model, [intxWeightOnly(four)]);
  const name = "model.embed_tokens.weight";
  const tensor: Tensor = { dtype: "f32", shape: [282, 32], data: new Float32Array(282 * 32).fill(0.5) };
  const format = { kind: "float", dtype: "f32" } as const;
  model.replaceWeight(name, { name, shape: tensor.shape, format, load: async () => tensor });
  expect(await model.weight("lm_head.weight").load()).toBe(tensor);
  await model.close();
});
