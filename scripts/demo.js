/**
 * `npm start -- "ROMEO:"`: quantizes the demo model to 4 bits, exports it to build/shakespeare-4bit.pte (once) and
 * streams text that continues the prompt.
 */
import { mkdirSync, readdirSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadProgram,
  quantize,
  sharedEmbedding,
} from "../dist/index.js";

const MAX_TOKENS = 160;
const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const folder = path("models/shakespeare");
const program = path("build/shakespeare-4bit.pte");

const modified = (/** @type {string} */ file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
const inputs = [...readdirSync(folder).map((name) => `${folder}/${name}`), path("dist/index.js")];
if (modified(program) <= Math.max(...inputs.map(modified))) {
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
}

const prompt = process.argv.slice(2).join(" ") || "ROMEO:";
const llm = await loadProgram(program);
process.stdout.write(prompt);
const generation = llm.generate(prompt, { maxTokens: MAX_TOKENS });
for await (const piece of generation) process.stdout.write(piece);
process.stdout.write("\n");

const { generatedTokens, decodeSeconds } = generation.result ?? { generatedTokens: 0, decodeSeconds: 0 };
console.error(`\n${generatedTokens} tokens, ${((generatedTokens - 1) / decodeSeconds).toFixed(1)} a second`);
