/**
 * Cost of activations in blocks, compared with one scale a token: CPU time with the same weights, alternated in one process for
 * each class of CPU. `node bench/blocks.js [--model smollm2] [--rounds 7] [--prompt 256] [--tokens 24]` → results/blocks.md
 */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import {
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadCompiled,
  quantize,
  sharedEmbedding,
} from "../dist/index.js";
import { modelFiles } from "./accuracy-files.js";
import { median, table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    model: { type: "string", default: "smollm2" },
    rounds: { type: "string", default: "7" },
    prompt: { type: "string", default: "256" },
    tokens: { type: "string", default: "24" },
    /** Argument of the process that measures one class: the model's file. */
    file: { type: "string" },
  },
});

/** Environment by class of CPU. */
const CLASSES = {
  AMX: {},
  "AVX-512 VNNI": { LOWBIT_CPU: "avx2,avx512,avx512_vnni" },
  "AVX-VNNI": { LOWBIT_CPU: "avx2,avx_vnni" },
  AVX2: { LOWBIT_CPU: "avx2" },
  WebAssembly: { LOWBIT_BACKEND: "wasm" },
};

async function open(file, activationGranularity) {
  const weights = { bits: 4, groupSize: 32, scaleDType: "f16", mappingType: "symmetric", algorithm: "affine" };
  const model = await loadCheckpoint(file);
  quantize(model, [int8DynamicActivationIntxWeight({ ...weights, activationGranularity }), sharedEmbedding(weights)]);
  const llm = await loadCompiled(model, { threads: 1, contextLength: 512 });
  return llm.createDecoder();
}

/** Milliseconds of processor time. */
async function spent(work) {
  const start = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000;
}

/** Ratios of blocks to one scale a token, of each round: for a prompt, and for tokens after it. */
async function measure(file) {
  const decoders = [await open(file, "per_block"), await open(file, "per_token")];
  const ids = Array.from({ length: Number(options.prompt) }, (_, i) => 100 + ((i * 37) % 2000));
  const rounds = [];
  for (let round = 0; round <= Number(options.rounds); round++) {
    const times = [];
    for (const decoder of round % 2 ? [...decoders].reverse() : decoders) {
      decoder.rewind(0);
      const prompt = await spent(() => decoder.prefill(ids));
      const decode = await spent(async () => {
        for (let i = 0; i < Number(options.tokens); i++) await decoder.step(100 + i);
      });
      times.push({ prompt, decode });
    }
    const [blocks, token] = round % 2 ? times.reverse() : times;
    rounds.push({ prompt: blocks.prompt / token.prompt, decode: blocks.decode / token.decode });
  }
  return rounds.slice(1);
}

if (options.file) {
  console.log(JSON.stringify(await measure(options.file)));
  process.exit(0);
}
const { twin } = await modelFiles(options.model);
const percent = (ratios) =>
  `${(100 * (median(ratios) - 1)).toFixed(1)} % (${ratios.map((ratio) => (100 * (ratio - 1)).toFixed(0)).join(", ")})`;
const rows = Object.entries(CLASSES).map(([name, environment]) => {
  const args = [fileURLToPath(import.meta.url), "--file", twin, ...process.argv.slice(2)];
  const output = execFileSync(process.execPath, args, { env: { ...process.env, ...environment }, encoding: "utf8" });
  const rounds = JSON.parse(output);
  return [name, ...["prompt", "decode"].map((step) => percent(rounds.map((round) => round[step])))];
});
writeReport("blocks", {
  title: "Activations in blocks beside one scale a token",
  command: "node bench/blocks.js",
  sections: [
    `${options.model} in 4 bits, groups of 32; one thread; how much more processor time blocks take than one scale a token, median (all rounds), for a prompt of ${options.prompt} tokens and for each token after it.`,
    table(["", "prompt", "decode"], rows),
  ],
});
