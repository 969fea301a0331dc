/**
 * Memory and speed of a mixture of experts of OLMoE-1B-7B's shape with as many layers as are asked for: what quantizing takes,
 * and which bytes of the program's file are resident before and after tokens. Random weights, so that all experts are met
 * sooner or later. `node bench/experts.js [layers]` needs `npm run build`; it writes to build/bench/ and to the console.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { writeSafetensors } from "../dist/formats/safetensors-writer.js";
import { f32ToBf16 } from "../dist/half.js";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadProgram,
  quantize,
} from "../dist/index.js";
import { buildDecoder } from "../dist/model/architectures.js";
import { createRandom } from "../dist/text/random.js";

const [layers = "2", part] = process.argv.slice(2);
const folder = fileURLToPath(new URL(`../build/bench/olmoe-${layers}/`, import.meta.url));
const file = join(folder, "model.pte");
const config = {
  ...{ architectures: ["OlmoeForCausalLM"], hidden_size: 2048, intermediate_size: 1024, vocab_size: 50304 },
  ...{ num_attention_heads: 16, num_key_value_heads: 16, num_experts: 64, num_experts_per_tok: 8 },
  ...{ num_hidden_layers: Number(layers), max_position_embeddings: 4096, tie_word_embeddings: false },
};

const mebibytes = (/** @type {number} */ bytes) => `${Math.round(bytes / 2 ** 20)} MiB`;

/** Resident memory of this process, of its own and of mapped files. */
function resident() {
  const status = readFileSync("/proc/self/status", "utf8");
  const of = (/** @type {string} */ name) => 1024 * Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]);
  return { own: of("RssAnon"), files: of("RssFile"), most: of("VmHWM") };
}

async function writeCheckpoint() {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  const random = createRandom(1);
  const block = Uint16Array.from({ length: 4_194_301 }, () => f32ToBf16(0.06 * random.uniform() - 0.03));
  let start = 0;
  const entries = buildDecoder("config.json", config).slots.map(({ name, shape }) => ({
    ...{ name, shape, dtype: /** @type {const} */ ("bf16") },
    async data() {
      const values = new Uint16Array(shape.reduce((product, size) => product * size, 1));
      if (shape.length === 1) return values.fill(f32ToBf16(1));
      for (let i = 0; i < values.length; i++) values[i] = block[(start + i) % block.length];
      start += values.length + 1;
      return values;
    },
  }));
  await writeSafetensors(join(folder, "model.safetensors"), entries);
}

async function quantizePart() {
  const model = await loadCheckpoint(folder);
  quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 })]);
  const begin = performance.now();
  await exportProgram(model, file);
  const seconds = ((performance.now() - begin) / 1000).toFixed(1);
  const { size } = statSync(join(folder, "model.safetensors"));
  console.log(`quantized ${mebibytes(size)} in ${seconds} s, at most ${mebibytes(resident().most)} resident`);
}

async function runPart() {
  const model = await loadProgram(file, { contextLength: 1024 });
  const decoder = model.createDecoder();
  const line = (/** @type {string} */ when) => {
    const { own, files } = resident();
    console.log(`${when}: ${mebibytes(own)} of its own, ${mebibytes(files)} of files resident`);
  };
  console.log(`program of ${mebibytes(statSync(file).size)}`);
  line("loaded");
  await decoder.prefill([1]);
  line("after 1 token");
  for (let i = 0; i < 7; i++) await decoder.step(100 + 17 * i);
  line("after 8 tokens");
  const begin = performance.now();
  for (let i = 0; i < 64; i++) await decoder.step(1000 + 97 * i);
  console.log(`decoding: ${(64000 / (performance.now() - begin)).toFixed(1)} tokens/s`);
  line("after 72 tokens");
  const prompt = Array.from({ length: 512 }, (_, i) => (i * 977) % 50000);
  const reader = model.createDecoder();
  await reader.prefill(prompt.slice(0, 64));
  const start = performance.now();
  await model.createDecoder().prefill(prompt);
  console.log(`prompt of 512: ${(512000 / (performance.now() - start)).toFixed(1)} tokens/s`);
  line("after the prompt");
  await model.dispose();
}

if (part === "quantize") await quantizePart();
else if (part === "run") await runPart();
else {
  if (!existsSync(join(folder, "model.safetensors"))) await writeCheckpoint();
  for (const name of existsSync(file) ? ["run"] : ["quantize", "run"])
    spawnSync(process.execPath, [fileURLToPath(import.meta.url), layers, name], { stdio: "inherit" });
}
