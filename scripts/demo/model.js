/** The demo model quantized to 4 bits, exported once to build/shakespeare-4bit.pte. */
import { mkdirSync, readdirSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  quantize,
  sharedEmbedding,
} from "../../dist/index.js";

const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../../${name}`, import.meta.url));
const modified = (/** @type {string} */ file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;

/** The program's path, after it has been made where it is missing or older than what it is made of. */
export async function demoProgram() {
  const folder = path("models/shakespeare");
  const program = path("build/shakespeare-4bit.pte");
  const inputs = [...readdirSync(folder).map((name) => `${folder}/${name}`), path("dist/index.js")];
  if (modified(program) > Math.max(...inputs.map(modified))) return program;
  mkdirSync(path("build"), { recursive: true });
  const model = await loadCheckpoint(folder);
  quantize(model, [
    int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32, scaleDType: "f16" }),
    sharedEmbedding({ bits: 4, scaleDType: "f16" }),
  ]);
  await exportProgram(model, program);
  await model.close();
  const megabytes = (statSync(program).size / 1e6).toFixed(1);
  console.error(`quantized models/shakespeare to 4 bits: build/shakespeare-4bit.pte, ${megabytes} MB\n`);
  return program;
}
