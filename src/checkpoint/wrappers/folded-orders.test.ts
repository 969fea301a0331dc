/** GPTQ's act-order in a whole model: the logits of its float values, with as few gathers and calls as there can be. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { distance } from "../../../test/support/distance.ts";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { Random } from "../../../test/support/random.ts";
import { tinyConfig, tinyShapes } from "../../../test/support/tiny-checkpoint.ts";
import { compileModel } from "../../api/compile-model.ts";
import { EagerModel } from "../../api/eager-model.ts";
import { loadProgramObject } from "../../api/load-program-object.ts";
import { openCheckpoint } from "../../formats/checkpoint.ts";
import { type TensorEntry, writeSafetensors } from "../../formats/safetensors-writer.ts";
import type { Program } from "../../program/program.ts";
import { intxWeightOnly } from "../../quantize/config.ts";
import { toFloat32 } from "../../tensor.ts";
import { loadCheckpoint } from "../load.ts";
import type { Model } from "../model.ts";
import { quantize } from "../quantize.ts";

const GROUP = 32;
const config = { ...tinyConfig, hidden_size: 64, intermediate_size: 96, head_dim: 16 };
const ids = Array.from({ length: 24 }, (_, i) => (i * 37) % 250);
const folder = await temporaryFolder();
let folders = 0;

/** Groups of `k` inputs, each with as many. */
function shuffledGroups(random: Random, k: number): Int32Array {
  const groups = Int32Array.from({ length: k }, (_, column) => Math.floor(column / GROUP));
  for (let i = k - 1; i > 0; i--) {
    const j = random.integer(0, i);
    [groups[i], groups[j]] = [groups[j]!, groups[i]!];
  }
  return groups;
}

async function write(name: string, settings: object, entries: readonly TensorEntry[]): Promise<string> {
  const path = join(folder, `${name}${++folders}`);
  await mkdir(path);
  await writeSafetensors(join(path, "model.safetensors"), entries);
  await writeFile(join(path, "config.json"), JSON.stringify({ ...config, ...settings }));
  return path;
}

/** A checkpoint whose linear layers are GPTQ's; those of one `input` have one order. */
async function writeGptq(inputOf: (module: string) => string, biases: boolean): Promise<string> {
  const random = new Random(11);
  const entries: TensorEntry[] = [];
  const add = (name: string, dtype: "f32" | "i32", shape: readonly number[], data: Float32Array | Int32Array) =>
    entries.push({ name, dtype, shape, data: async () => data });
  const orders = new Map<string, Int32Array>();
  const words = (count: number) =>
    Int32Array.from({ length: count }, () => random.integer(0, 2 ** 31 - 1) * 2 + random.integer(0, 1));
  for (const [name, shape] of tinyShapes({ ...config, mlp_bias: biases })) {
    const module = name.replace(/\.weight$/, "");
    const count = shape.reduce((product, size) => product * size, 1);
    if (!module.endsWith("_proj")) {
      add(name, "f32", shape, random.floats(count, 0.5));
      continue;
    }
    const [n, k] = shape as [number, number];
    const input = inputOf(module);
    const groups = orders.get(input) ?? shuffledGroups(random, k);
    orders.set(input, groups);
    add(`${module}.qweight`, "i32", [k / 8, n], words((k * n) / 8));
    add(`${module}.qzeros`, "i32", [k / GROUP, n / 8], words((k / GROUP) * (n / 8)));
    add(`${module}.scales`, "f32", [k / GROUP, n], random.floats((k / GROUP) * n, 0.05));
    add(`${module}.g_idx`, "i32", [k], groups);
  }
  const settings = { quant_method: "gptq", bits: 4, group_size: GROUP, desc_act: true, sym: false };
  return write("gptq", { mlp_bias: biases, quantization_config: settings }, entries);
}

/** The same model, of the float values that the file has. */
async function writeFloats(path: string, biases: boolean): Promise<string> {
  const { tensors, close } = await openCheckpoint(path);
  const entries = tensors.names.map((name): TensorEntry => {
    const { shape } = tensors.info(name);
    return { name, dtype: "f32", shape, data: async () => toFloat32(await tensors.read(name)) };
  });
  const floats = await write("floats", { mlp_bias: biases }, entries);
  await close();
  return floats;
}

const prefill = async (program: Program) =>
  (await loadProgramObject(program, "of a test")).createDecoder().prefill(ids);
const eager = async (model: Model) =>
  toFloat32((await EagerModel.load(model)).forward(ids, 0)).slice(-config.vocab_size);

/** Calls of a layer. */
function countCalls({ methods }: Program, pattern: RegExp): number {
  const { instructions, operators } = methods.find(({ name }) => name === "forward")!;
  const calls = instructions.filter((call) => call.kind === "kernel" && pattern.test(operators[call.operator]!.name));
  return calls.length / config.num_hidden_layers;
}

it.each([
  // Queries, keys and values, what attention gives, and gate and up; nothing in front of down.
  ["what reads one input has one order", (module: string) => module.replace(/[qkv]_proj|(gate|up)_proj/, "one"), 3, 4],
  ["each module has an order of its own", (module: string) => module, 6, 7],
] as const)("%s", async (_, inputOf, gathers, linears) => {
  for (const biases of [false, true]) {
    const path = await writeGptq(inputOf, biases);
    const floats = await loadCheckpoint(await writeFloats(path, biases));
    const expected = await eager(floats);
    await floats.close();
    const model = await loadCheckpoint(path);
    model.activations = "float";
    const program = compileModel(model);
    expect(countCalls(program, /index_select/)).toBe(gathers);
    expect(countCalls(program, /linear_weight_only/)).toBe(linears);
    for (const logits of [await prefill(program), await eager(model)])
      expect(distance(logits, expected).relative).toBeLessThan(1e-5);
    model.activations = "int8";
    const rounded = distance(await prefill(compileModel(model)), expected);
    expect(rounded.relative).toBeLessThan(0.05);
    expect(rounded.relative).toBeGreaterThan(1e-5);
    // Quantized again, from floats in the order of the file.
    quantize(model, [intxWeightOnly({ bits: 8, groupSize: 32 })]);
    expect(distance(await prefill(compileModel(model)), expected).relative).toBeLessThan(0.05);
    await model.close();
  }
});
