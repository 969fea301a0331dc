// Shrinks a checkpoint to 4 bits and writes it as a program: node quantize.js ./checkpoint model.pte
import {
  exportProgram,
  inspectProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadProgram,
  quantize,
} from "lowbit";

const [checkpoint = "hf:HuggingFaceTB/SmolLM2-135M-Instruct", program = "model.pte"] = process.argv.slice(2);

const model = await loadCheckpoint(checkpoint);
quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32, scaleDType: "f16" })]);
await exportProgram(model, program, {
  onProgress: (done, total) => console.error(`${Math.round((100 * done) / total)} %`),
});
await model.close();

const { parts, bitsPerWeight } = await inspectProgram(program);
console.log(`${program}: ${(parts.total / 1e6).toFixed(1)} MB, ${bitsPerWeight.toFixed(2)} bits a weight`);

const llm = await loadProgram(program);
const prompt = "Once upon a time";
process.stdout.write(prompt);
for await (const text of llm.generate(prompt, { maxTokens: 32, seed: 1 })) process.stdout.write(text);
process.stdout.write("\n");
await llm.dispose();
