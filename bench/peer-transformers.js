/**
 * transformers.js as an engine of compare.js, on its CPU path in Node, with the model in ONNX that the ONNX Runtime part
 * makes. The package is installed when it is missing, beside the models. Forked by EngineProcess.
 */
import { execFileSync } from "node:child_process";
import { existsSync, linkSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { serveEngine } from "./engine-process.js";
import { folder } from "./make-model.js";
import { peerModelOf } from "./peer-python.js";
import { shapeNamed } from "./shapes.js";

const PACKAGE = "@huggingface/transformers";
const VERSION = "4.3.2";

/** The folder that transformers.js is installed in, beside the models. */
function installed() {
  const target = join(folder, `transformers.js-${VERSION}`);
  if (existsSync(target)) return target;
  console.error(`installing ${PACKAGE} ${VERSION} in ${target}: some 450 MB`);
  const partial = `${target}.new`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  writeFileSync(join(partial, "package.json"), '{ "private": true }');
  // The scripts of its dependencies fetch libraries for GPUs.
  const options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"];
  execFileSync("npm", ["install", ...options, `${PACKAGE}@${VERSION}`], { cwd: partial, stdio: "inherit" });
  renameSync(partial, target);
  return target;
}

/** The ONNX model of a shape in the folders that transformers.js looks in: `config.json` and `onnx/`. */
export async function transformersModelOf(shape) {
  installed();
  const source = await peerModelOf("onnxruntime", shape);
  const target = join(folder, `${shape}-transformers.js`);
  if (existsSync(target)) return target;
  const partial = `${target}.new`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(join(partial, "onnx"), { recursive: true });
  for (const name of readdirSync(source).filter((name) => name.startsWith("model.onnx")))
    linkSync(join(source, name), join(partial, "onnx", name));
  linkSync(join(folder, shape, "config.json"), join(partial, "config.json"));
  renameSync(partial, target);
  return target;
}

async function load({ path, threads, shape }) {
  const { AutoModelForCausalLM, DynamicCache, env, Tensor } = await import(
    pathToFileURL(createRequire(join(installed(), "package.json")).resolve(PACKAGE)).href
  );
  env.allowRemoteModels = false;
  const options = { dtype: "fp32", device: "cpu", session_options: { intraOpNumThreads: threads } };
  const model = await AutoModelForCausalLM.from_pretrained(path, options);
  const int64 = (/** @type {number[]} */ values) =>
    new Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
  const { layers, kvHeads, headDim, vocabulary } = shapeNamed(shape);
  const nothing = () => new Tensor("float32", new Float32Array(0), [1, kvHeads, 0, headDim]);
  const names = Array.from({ length: layers }, (_, i) =>
    ["key", "value"].map((what) => `past_key_values.${i}.${what}`),
  );
  const noPast = () => new DynamicCache(Object.fromEntries(names.flat().map((name) => [name, nothing()])));
  let length = 0;
  let past = noPast();
  let next = 0;

  /** Runs ids behind those before and takes the likeliest token after the last. @param {number[]} ids */
  const step = async (ids) => {
    length += ids.length;
    const attention_mask = int64(new Array(length).fill(1));
    const position_ids = int64(ids.map((_, i) => length - ids.length + i));
    const inputs = { input_ids: int64(ids), attention_mask, position_ids, past_key_values: past };
    const outputs = await model(inputs);
    const cached = Object.entries(outputs).filter(([name]) => name.startsWith("present"));
    past = new DynamicCache(
      Object.fromEntries(cached.map(([name, values]) => [name.replace("present", "past_key_values"), values])),
    );
    const { data, dims } = outputs.logits;
    const last = data.subarray(data.length - dims.at(-1));
    next = 0;
    for (let id = 1; id < last.length; id++) if (last[id] > last[next]) next = id;
  };
  return {
    vocabulary,
    async prefill(ids) {
      length = 0;
      past = noPast();
      await step(ids);
    },
    async decode(count) {
      for (let i = 0; i < count; i++) await step([next]);
    },
  };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await serveEngine(load);
