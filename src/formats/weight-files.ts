/** Finds the weight files of a folder, and the config where there is no config.json. Knows file names and formats. */
import { join } from "node:path";
import { InvalidFileError } from "../errors.ts";
import { openFile } from "../node-file.ts";
import { withFloat32Doubles } from "./doubles.ts";
import { isObject, type JsonFile, type JsonObject } from "./json.ts";
import { openLlama2c } from "./llama2c.ts";
import { metaConfig, metaTensors } from "./meta.ts";
import { withMlx } from "./mlx.ts";
import { withQuantized } from "./quantized/formats.ts";
import { openShards, openTensorFile } from "./shards.ts";
import type { OpenTensors } from "./tensor-source.ts";
import { openTorchFile } from "./torch/torch-file.ts";
import { withTorchao } from "./torchao.ts";

const SAFETENSORS = "model.safetensors";
const TORCH = "pytorch_model.bin";
const PARAMS = "params.json";
const CONFIG = "config.json";
/** Files with quantization settings beside config.json, and their methods. */
const settingsFiles = [
  ["quantize_config.json", "gptq"],
  ["quant_config.json", "awq"],
  ["hf_quant_config.json", "modelopt"],
] as const;
/** Endings of weight files of all formats. */
export const weightEndings: readonly string[] = [".gguf", ".safetensors", ".bin", ".pth", ".pt"];

/** A folder, the names of its files, the requested weight file, if any, and a reader of its JSON files. */
export interface WeightFolder {
  readonly folder: string;
  readonly names: ReadonlySet<string>;
  readonly weights: string | null;
  readJson(name: string): Promise<JsonFile | null>;
}

export interface OpenedWeights {
  /** Name of the file with the config. */
  readonly configFile: string;
  readonly config: JsonObject;
  readonly tensors: OpenTensors;
}

/**
 * Opens the requested weight file, or else model.safetensors, its shards, pytorch_model.bin or its shards, as in transformers;
 * without config.json, Meta's consolidated.*.pth and params.json, or a .bin of llama2.c. InvalidFileError says which weight
 * files the folder has instead.
 */
export async function openWeights(listing: WeightFolder): Promise<OpenedWeights> {
  const { folder } = listing;
  const config = await listing.readJson(CONFIG);
  if (config) {
    const value = await withSettings(config.value, listing);
    const weights = await openByConfig(listing);
    const configFile = join(folder, CONFIG);
    const tensors = await orClose([weights], () =>
      withQuantized(
        { folder, configFile, config: value },
        withMlx(folder, withTorchao(folder, weights, weights.metadata), value),
      ),
    );
    return { configFile, config: value, tensors };
  }
  const params = await listing.readJson(PARAMS);
  if (params) return openMeta(listing, params.value);
  const bin = listing.weights ?? onlyBin(listing);
  if (bin?.endsWith(".bin"))
    return { configFile: join(folder, bin), ...(await openSource(join(folder, bin), openLlama2c)) };
  throw new InvalidFileError(folder, `expected config.json but found ${found(listing)}`);
}

/** Adds `quantization_config` from the separate file that ModelOpt and older versions of AutoGPTQ and AutoAWQ write. */
async function withSettings(config: JsonObject, { readJson }: WeightFolder): Promise<JsonObject> {
  if (isObject(config.quantization_config)) return config;
  for (const [name, method] of settingsFiles) {
    const found = (await readJson(name))?.value;
    const settings = isObject(found?.quantization) ? found.quantization : found;
    if (settings) return { ...config, quantization_config: { quant_method: method, ...settings } };
  }
  return config;
}

async function openByConfig(listing: WeightFolder): Promise<OpenTensors> {
  const { folder, names, weights } = listing;
  if (weights !== null) return openFileOf(join(folder, weights));
  for (const single of [SAFETENSORS, TORCH]) {
    if (names.has(single)) return openFileOf(join(folder, single));
    const index = await listing.readJson(`${single}.index.json`);
    if (index) return openShards(join(folder, `${single}.index.json`), folder, index, openFileOf);
  }
  const expected = `${SAFETENSORS} or ${SAFETENSORS}.index.json`;
  throw new InvalidFileError(folder, `expected weights in ${expected} but found ${found(listing)}`);
}

/** Opens a tensor file by its ending. */
async function openFileOf(path: string): Promise<OpenTensors> {
  return withFloat32Doubles(
    await (path.endsWith(".safetensors") ? openTensorFile(path) : openSource(path, openTorchFile)),
  );
}

/** Opens a file and passes it to `open`; closes it when that throws. */
async function openSource<R>(
  path: string,
  open: (source: Awaited<ReturnType<typeof openFile>>) => Promise<R>,
): Promise<R> {
  const source = await openFile(path);
  return orClose([source], () => open(source));
}

async function orClose<R>(files: readonly { close(): Promise<void> }[], work: () => R | Promise<R>): Promise<R> {
  try {
    return await work();
  } catch (error) {
    for (const file of files) await file.close();
    throw error;
  }
}

async function openMeta(listing: WeightFolder, params: JsonObject): Promise<OpenedWeights> {
  const { folder, names } = listing;
  const files = [...names].filter((name) => /^consolidated\.\d+\.pth$/.test(name)).sort();
  if (files.length === 0)
    throw new InvalidFileError(folder, `expected consolidated.00.pth but found ${found(listing)}`);
  const configFile = join(folder, PARAMS);
  const parts: OpenTensors[] = [];
  return orClose(parts, async () => {
    for (const name of files) parts.push(await openFileOf(join(folder, name)));
    const tensors = metaTensors(configFile, parts, params);
    return { configFile, config: metaConfig(params, tensors), tensors };
  });
}

function onlyBin({ names }: WeightFolder): string | null {
  const bins = [...names].filter((name) => name.endsWith(".bin"));
  return bins.length === 1 ? bins[0]! : null;
}

/** Describes a folder's weight files, for messages. */
function found({ names }: WeightFolder): string {
  const weights = [...names].filter((name) => weightEndings.some((ending) => name.endsWith(ending)));
  const shown = weights.sort().slice(0, 5).join(", ");
  if (weights.length === 0) return `no weights among its ${names.size} files`;
  return weights.length > 5 ? `${shown} and ${weights.length - 5} more` : shown;
}
