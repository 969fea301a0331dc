/**
 * Differences between backends, and from float activations: KL divergence of the next token, for files of real models, on
 * prose.
 * `node bench/backends.js [--models smollm2,qwen,gemma] [--tokens 256] [--reference-tokens 48]` → results/backends.md
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { loadCheckpoint, loadCompiled } from "../dist/index.js";
import { modelFiles, texts } from "./accuracy-files.js";
import { digits, table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    models: { type: "string", default: "smollm2,qwen,gemma" },
    tokens: { type: "string", default: "256" },
    /** Plain TypeScript is slow. */
    "reference-tokens": { type: "string", default: "48" },
    /** Arguments of the process that writes logits: model, tokens, activations, output. */
    logits: { type: "string", multiple: true },
  },
});

/** Environment and activations of what is compared, by name. */
const RUNS = {
  "float activations": [{}, "float"],
  "native, AMX": [{}, null],
  "native, AVX-512 VNNI": [{ LOWBIT_CPU: "avx2,avx512,avx512_vnni" }, null],
  "native, AVX2": [{ LOWBIT_CPU: "avx2" }, null],
  WebAssembly: [{ LOWBIT_BACKEND: "wasm" }, null],
  TypeScript: [{ LOWBIT_BACKEND: "reference" }, null],
};

async function writeLogits([file, tokens, activations, output]) {
  const checkpoint = await loadCheckpoint(file);
  checkpoint.activations = activations === "null" ? null : activations;
  const model = await loadCompiled(checkpoint, { contextLength: 512 });
  const ids = model.tokenizer
    .encode(readFileSync(texts().prose.test, "utf8").slice(0, 40_000))
    .slice(0, Number(tokens));
  const decoder = model.createDecoder();
  const rows = [];
  for (let start = 0; start < ids.length; start += decoder.logitRows)
    rows.push((await decoder.allLogits(ids.slice(start, start + decoder.logitRows))).slice());
  writeFileSync(
    output,
    Buffer.concat(rows.map(({ buffer, byteOffset, byteLength }) => Buffer.from(buffer, byteOffset, byteLength))),
  );
  await decoder.dispose();
  await model.dispose();
  await checkpoint.close();
}

function logProbabilities(logits) {
  const peak = logits.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
  const sum = logits.reduce((sum, value) => sum + Math.exp(value - peak), 0);
  return logits.map((value) => value - peak - Math.log(sum));
}

/**
 * Mean divergence of a run's predictions from another's, of the tokens that both have, and how often the likeliest token is the
 * same.
 */
function compared(run, other, rows) {
  const { vocabulary } = other;
  let [sum, same] = [0, 0];
  for (let row = 0; row < rows; row++) {
    const [p, q] = [other, run].map(({ logits }) =>
      logProbabilities(Float64Array.from(logits.subarray(row * vocabulary, (row + 1) * vocabulary))),
    );
    sum += p.reduce((sum, value, i) => sum + Math.exp(value) * (value - q[i]), 0);
    same += Number(topOf(p) === topOf(q));
  }
  return `${digits(sum / rows)} (${((100 * same) / rows).toFixed(1)} %)`;
}

const topOf = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);

function run(file, [environment, activations], tokens, folder) {
  const output = join(folder, "logits");
  const args = [file, tokens, `${activations}`, output].flatMap((arg) => ["--logits", arg]);
  const env = { ...process.env, ...environment };
  execFileSync(process.execPath, [fileURLToPath(import.meta.url), ...args], { env, stdio: "inherit" });
  const { buffer, byteOffset, byteLength } = readFileSync(output);
  const logits = new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength));
  return { logits, rows: Number(tokens), vocabulary: logits.length / Number(tokens) };
}

async function measure() {
  const folder = mkdtempSync(join(tmpdir(), "backends-"));
  const sections = [];
  for (const name of options.models.split(",")) {
    const { original } = await modelFiles(name);
    const runs = Object.entries(RUNS).map(([name, how]) => {
      const tokens = name === "TypeScript" ? options["reference-tokens"] : options.tokens;
      return { name, ...run(original, how, tokens, folder) };
    });
    const others = runs.filter(({ name }) => ["float activations", "WebAssembly", "TypeScript"].includes(name));
    const rows = runs
      .slice(1)
      .map((run) => [
        run.name,
        ...others.map((other) => (other === run ? "" : compared(run, other, Math.min(run.rows, other.rows)))),
      ]);
    sections.push(`## ${name}\n\n${table(["", ...others.map(({ name }) => `from ${name}`)], rows)}`);
    writeReport("backends", {
      title: "How far backends are from each other",
      command: "node bench/backends.js",
      sections: [
        `Real models' own files, nothing quantized anew; KL divergence of the next token in nats, and how often the likeliest one is the same; ${options.tokens} tokens of prose, ${options["reference-tokens"]} where plain TypeScript is one of the two.`,
        ...sections,
      ],
      isPartial: true,
    });
  }
  rmSync(folder, { recursive: true });
}

await (options.logits ? writeLogits(options.logits) : measure());
