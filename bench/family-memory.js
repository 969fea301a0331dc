/**
 * Memory of models of 2026 with random weights, each in a process of its own: peak while quantizing, and resident memory while
 * decoding. Pages of a mapped program are counted apart: the file backs them, and only those that tokens needed are resident
 * (experts, rows of embeddings). `node bench/family-memory.js [name …]` → results/family-memory.md
 */
import { spawnSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { loadProgram } from "../dist/index.js";
import { distinctIds } from "./engine-process.js";
import { familyProgram, quantizingOf } from "./family-files.js";
import { commit, table, writeReport } from "./report.js";

/** Positions of each model's context, and tokens of its prompt. */
const cases = {
  "Gemma-4-E2B": { contextLength: 4096, prompt: 512 },
  "OLMoE-1B-7B": { contextLength: 4096, prompt: 512 },
  "Qwen3.5-0.8B": { contextLength: 32768 + 512, prompt: 32768 },
};
const DECODE = 64;

const mebibytes = (/** @type {number} */ bytes) => `${Math.round(bytes / 2 ** 20)} MiB`;

/** Resident memory of this process: its own, and pages of files. */
function resident() {
  const status = readFileSync("/proc/self/status", "utf8");
  const of = (/** @type {string} */ name) => 1024 * Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]);
  return { own: of("RssAnon"), files: of("RssFile") };
}

/** Prints what is resident at some moments. @param {string} name @param {string} path */
async function run(name, path) {
  const { contextLength, prompt } = cases[name];
  const before = resident().files;
  const moments = [];
  const model = await loadProgram(path, { contextLength });
  const note = (/** @type {string} */ when) => {
    const { own, files } = resident();
    moments.push([name, when, mebibytes(own), mebibytes(Math.max(0, files - before))]);
  };
  note("loaded");
  const decoder = model.createDecoder();
  const [first, ...rest] = distinctIds(1, DECODE, decoder.vocabularySize);
  await decoder.prefill([first]);
  note("1 token");
  for (const id of rest) await decoder.step(id);
  note(`${DECODE} tokens, one by one`);
  decoder.rewind(0);
  await decoder.prefill(distinctIds(2, prompt, decoder.vocabularySize));
  note(`a prompt of ${prompt} tokens`);
  await model.dispose();
  console.log(JSON.stringify(moments));
}

const [part, ...given] = process.argv.slice(2);
if (part === "run") await run(given[0], given[1]);
else {
  const names = part === undefined ? Object.keys(cases) : [part, ...given];
  for (const name of names) {
    const path = await familyProgram(name);
    const script = fileURLToPath(import.meta.url);
    const child = spawnSync(process.execPath, [script, "run", name, path], { stdio: ["ignore", "pipe", "inherit"] });
    if (child.status !== 0) throw new Error(`${name}: ended with code ${child.status}`);
    const moments = JSON.parse(child.stdout.toString());
    const quantizing = quantizingOf(name);
    const took = quantizing
      ? ` Quantizing ${mebibytes(quantizing.checkpoint)} took ${quantizing.seconds.toFixed(0)} s and at most ${mebibytes(quantizing.peak)} of memory.`
      : "";
    writeReport("family-memory", {
      title: "Memory of hybrids, mixtures of experts and embeddings of layers",
      command: "node bench/family-memory.js",
      isPartial: true,
      sections: [
        "Resident memory of a process that runs a 4-bit program of random weights: its own (keys, values, states, scratch and JavaScript), and pages of the mapped program that were read.",
        `## ${name}\n\nThe program is a file of ${mebibytes(statSync(path).size)}; the context has ${cases[name].contextLength} positions.${took}\n\n${table(["model", "after", "its own", "of the file"], moments)}\n\nMeasured on commit ${commit()}, ${new Date().toISOString().slice(0, 10)}.`,
      ],
    });
  }
}
