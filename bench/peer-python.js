/**
 * OpenVINO GenAI and ONNX Runtime GenAI as engines of compare.js: a Python of their own (peer-python.py), which is installed
 * when it is missing, with the model in 4 bits made once. Forked by EngineProcess.
 */
import { spawn } from "node:child_process";
import { copyFileSync, existsSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { pythonOver, run } from "../scripts/executorch/environment.js";
import { distinctIds, randomIds } from "./engine-process.js";
import { checkpointOf, folder } from "./make-model.js";
import { shapeNamed } from "./shapes.js";

const script = fileURLToPath(new URL("./peer-python.py", import.meta.url));
const tokenizer = fileURLToPath(new URL("../models/shakespeare/", import.meta.url));

/** Packages of each engine, the one that is named first. Models are converted with torch, too. */
export const packages = {
  openvino: ["openvino-genai==2026.4.1.0", "optimum-intel==2.2.0", "nncf==3.4.0", "transformers==5.5.4"],
  onnxruntime: ["onnxruntime-genai==0.18.0", "onnx-ir==1.1.0", "transformers==5.5.4"],
};

/** The folder of a shape's model in an engine's form, made where it is missing. */
export async function peerModelOf(engine, shape) {
  const target = join(folder, `${shape}-${engine}`);
  if (existsSync(target)) return target;
  const checkpoint = await checkpointOf(shape);
  // Converters ask for a tokenizer, whichever; requests are ids.
  for (const name of ["tokenizer.json", "tokenizer_config.json"])
    if (!existsSync(join(checkpoint, name))) copyFileSync(join(tokenizer, name), join(checkpoint, name));
  const { python, variables } = pythonOver(packages[engine]);
  rmSync(`${target}.new`, { recursive: true, force: true });
  run(python, [script, "make", engine, checkpoint, `${target}.new`], variables);
  renameSync(`${target}.new`, target);
  return target;
}

/** Answers requests of compare.js by the Python process, one at a time. */
async function serve({ engine, path, threads, shape }) {
  const { python, variables } = pythonOver(packages[engine]);
  const child = spawn(python, [script, "serve", engine, path, String(threads)], {
    env: { ...process.env, ...variables },
    stdio: ["pipe", "pipe", "inherit"],
  });
  child.once("exit", (code) => process.exit(code ?? 1));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answer = async () => JSON.parse((await lines.next()).value);
  await answer();
  const { vocabulary } = shapeNamed(shape);
  let prompts = 0;
  process.on("message", async (/** @type {any} */ { what, tokens, context = 0 }) => {
    const ids = what === "prefill" ? distinctIds(prompts++, tokens, vocabulary) : randomIds(context + 1, vocabulary);
    child.stdin.write(`${JSON.stringify({ what, tokens, ids })}\n`);
    process.send({ value: (await answer()).seconds });
  });
  process.once("disconnect", () => child.kill());
  process.send({ value: { python: child.pid } });
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await serve(JSON.parse(process.argv[2]));
