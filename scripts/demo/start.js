/**
 * `npm start -- "ROMEO:"`: quantizes the demo model to 4 bits, exports it to build/shakespeare-4bit.pte (once) and
 * streams text that continues the prompt.
 */
import { loadProgram } from "../../dist/index.js";
import { demoProgram } from "./model.js";

const MAX_TOKENS = 160;
const prompt = process.argv.slice(2).join(" ") || "ROMEO:";
const llm = await loadProgram(await demoProgram());
process.stdout.write(prompt);
const generation = llm.generate(prompt, { maxTokens: MAX_TOKENS });
for await (const piece of generation) process.stdout.write(piece);
process.stdout.write("\n");

const { generatedTokens, decodeSeconds } = await generation.result;
console.error(`\n${generatedTokens} tokens, ${((generatedTokens - 1) / decodeSeconds).toFixed(1)} a second`);
