/**
 * What is there can be reached: programs call each operator of ours, and options have more than one value. Which kernel
 * rows are chosen, src/kernels/known-cpus.test.ts says; which exports are used, knip.config.js.
 */
import { readdirSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { writeSafetensors } from "../src/formats/safetensors-writer.ts";
import {
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  type QuantizationConfig,
  quantize,
  sharedEmbedding,
} from "../src/index.ts";
import { buildDecoder } from "../src/model/architectures.ts";
import { operators } from "../src/registry/operators.ts";
import { modelGraphs, type targets } from "../src/tools/index.ts";
import { lowbit } from "./support/command-line.ts";
import { temporaryFolder } from "./support/folders.ts";
import { assistantConfig, hybridConfigs, mixtureConfigs } from "./support/hybrid-checkpoint.ts";
import { tinyConfig } from "./support/tiny-checkpoint.ts";

type Config = Readonly<Record<string, unknown>>;

const goldens: { models: Record<string, { config: Config }> } = JSON.parse(
  readFileSync(join(import.meta.dirname, "architectures.json.golden"), "utf8"),
);
/** Weights with a minimum for each group. */
const mlx: Config = { ...tinyConfig, quantization: { bits: 4, group_size: 32 } };
/** Of an assistant's tokens. */
const clusters: Config = { use_ordered_embeddings: true, num_centroids: 6, centroid_intermediate_top_k: 2 };
const configs: readonly Config[] = [
  ...Object.values(goldens.models).map(({ config }) => config),
  ...Object.values(hybridConfigs),
  ...Object.values(mixtureConfigs),
  { ...hybridConfigs.gemma4, assistant_config: { ...assistantConfig, ...clusters } },
  mlx,
];
const schemes = [
  [],
  [intxWeightOnly({ bits: 4, groupSize: 16 })],
  [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 })],
  [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32, activationGranularity: "per_token" })],
];

/** For a table that is the head, too. */
const ranges = [sharedEmbedding({ bits: 4, ranges: [{ rows: 32, bits: 6 }] })];

function zeros(name: string, dtype: "f32" | "u32", shape: readonly number[]) {
  const length = shape.reduce((product, size) => product * size, 1);
  return {
    name,
    dtype,
    shape,
    data: async () => (dtype === "f32" ? new Float32Array(length) : new Uint32Array(length)),
  };
}

/** A checkpoint of zeros. */
async function writeModel(folder: string, config: Config): Promise<string> {
  await mkdir(folder);
  await writeFile(join(folder, "config.json"), JSON.stringify(config));
  const slots = buildDecoder("config.json", config).slots.filter(({ tiedTo }) => tiedTo === null);
  const entries = slots.flatMap(({ name, shape }) => {
    const [n, k] = shape as [number, number?];
    if (config !== mlx || k === undefined) return [zeros(name, "f32", shape)];
    const parts = ["scales", "biases"].map((part) => zeros(name.replace(/weight$/, part), "f32", [n, k / 32]));
    return [zeros(name, "u32", [n, k / 8]), ...parts];
  });
  await writeSafetensors(join(folder, "model.safetensors"), entries);
  return folder;
}

/** Names of the operators that a model's programs call, before the passes or after them. */
async function operatorsOf(folder: string, scheme: readonly QuantizationConfig[], target: (typeof targets)[number]) {
  const model = await loadCheckpoint(folder);
  try {
    if (scheme.length > 0) quantize(model, scheme);
    const graphs = modelGraphs(model, { target }).flatMap(({ before, after }) => [before ?? "", after]);
    return [...graphs.join("\n").matchAll(/= ([\w:.]+)\(/g)].map(([, name]) => name!);
  } finally {
    await model.close();
  }
}

/** What calls are joined into when a program is loaded. */
const joined = readFileSync(join(import.meta.dirname, "../src/runtime/fusion.ts"), "utf8").matchAll(/into: "(.+)"/g);

it("programs call every operator of ours", async () => {
  const root = await temporaryFolder();
  const folders = [join(import.meta.dirname, "../models/tiny-bge")];
  for (const [i, config] of configs.entries()) folders.push(await writeModel(join(root, String(i)), config));
  const called = new Set([...joined].map(([, name]) => name));
  for (const folder of folders)
    for (const scheme of schemes) for (const name of await operatorsOf(folder, scheme, "lowbit")) called.add(name);
  const tied = await writeModel(join(root, "tied"), tinyConfig);
  for (const name of await operatorsOf(tied, ranges, "lowbit")) called.add(name);
  for (const name of await operatorsOf(join(root, "0"), [], "executorch")) called.add(name);
  const own = [...operators].map(({ name }) => name).filter((name) => name.startsWith("lowbit::"));
  expect(own.length).toBeGreaterThan(30);
  expect(own.filter((name) => !called.has(name))).toEqual([]);
});

it("every choice of a flag is one of several", async () => {
  const { stdout } = await lowbit(["--help"]);
  const commands = [...stdout.matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name!);
  expect(commands).toContain("quantize");
  let choices = 0;
  for (const command of commands) {
    const help = (await lowbit([command, "--help"])).stdout.replace(/\s+/g, " ");
    for (const [text, list] of help.matchAll(/\(choices: ((?:"[^"]*"(?:, )?)+)/g)) {
      expect(list!.split(", ").filter(Boolean).length, `${command} ${text}`).toBeGreaterThan(1);
      choices++;
    }
  }
  expect(choices).toBeGreaterThan(5);
});

it("every option has more than one value", () => {
  const sources = readdirSync(join(import.meta.dirname, "../src"), { recursive: true, encoding: "utf8" });
  const text = sources
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"))
    .map((path) => readFileSync(join(import.meta.dirname, "../src", path), "utf8"))
    .join("\n");
  const interfaces = [...text.matchAll(/^export interface (\w*Options)\b[^{]*\{(.*?)^\}/gms)];
  expect(interfaces.length).toBeGreaterThan(20);
  const one = /^ {2}readonly (\w+)\?: (?:"[^"]*"|true|false|null|-?\d+|undefined)(?: \| undefined)?;$/gm;
  const found = interfaces.flatMap(([, name, body]) => [...body!.matchAll(one)].map(([, field]) => `${name}.${field}`));
  expect(found).toEqual([]);
  const lists = [...text.matchAll(/^(?:export )?const (\w+)(?:: [^=]+)? = \[\s*("[^"]*",?\s*)\] as const/gm)];
  expect(lists.map(([, name]) => name)).toEqual([]);
});
