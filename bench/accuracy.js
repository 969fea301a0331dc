/**
 * Accuracy by file size: KL divergence of the twins of real models, quantized by us and by llama.cpp's own quantizer, from the
 * twins themselves, on text that nothing was fitted to.
 * `node bench/accuracy.js [--models smollm2,qwen,gemma] [--tokens 8000] [--texts prose,code] [--only Q4_K_M] [--keep]` →
 * results/accuracy.md and docs/figures/accuracy-<model>.svg
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { CALIBRATION_TOKENS, folder, importanceFile, llamaPlace, modelFiles, texts } from "./accuracy-files.js";
import { divergenceHead, divergenceRows, quantizeTwin } from "./accuracy-measure.js";
import { table, writeReport } from "./report.js";

/** llama.cpp's numbers of kinds of files. */
const PEERS = { Q2_K: 10, Q3_K_M: 12, IQ4_XS: 30, Q4_K_M: 15, Q5_K_M: 17 };
const root = fileURLToPath(new URL("..", import.meta.url));

const { values: options } = parseArgs({
  options: {
    models: { type: "string", default: "smollm2,qwen,gemma" },
    texts: { type: "string", default: "prose,code" },
    tokens: { type: "string", default: "8000" },
    /** Kinds of files of ours and of llama.cpp's; those whose names have one of these in them, with ; between. */
    only: { type: "string", default: "" },
    /** Takes files of an earlier run. */
    keep: { type: "boolean", default: false },
  },
});
const wanted = (/** @type {string} */ name) =>
  options.only === "" || options.only.split(";").some((part) => name.includes(part));

/** Our files: options of `lowbit quantize`; {calibration} and {bytes of a peer's kind} are filled in. */
const OURS = {
  "8da4w": ["--qmode", "8da4w", "--shared-embedding"],
  "8da4w, imatrix": ["--qmode", "8da4w", "--shared-embedding", "--calibrate", "{calibration}"],
  "8da4w, gptq": ["--qmode", "8da4w", "--shared-embedding", "--algorithm", "gptq", "--calibrate", "{calibration}"],
  "size Q4_K_M": ["--size", "{Q4_K_M}", "--calibrate", "{calibration}"],
  "size Q3_K_M": ["--size", "{Q3_K_M}", "--calibrate", "{calibration}"],
  "gptq, bytes of Q4_K_M": ["--size", "{Q4_K_M}", "--algorithm", "gptq", "--calibrate", "{calibration}"],
};

function quantizeByPeer(input, kind, importance) {
  const output = input.replace("-twin.gguf", `-${kind}.gguf`);
  if (existsSync(output)) return output;
  const place = llamaPlace();
  const library = join(
    place,
    readdirSync(place).find((name) => /^libllama\.v.*\.so$/.test(name)),
  );
  const program = join(folder, "llama-quantize");
  if (!existsSync(program))
    execFileSync("c++", ["-O1", "-std=c++17", join(root, "bench/llama-quantize.cc"), "-o", program, "-ldl"], {
      stdio: "inherit",
    });
  const env = { ...process.env, LD_LIBRARY_PATH: place };
  execFileSync(program, [library, input, output, `${PEERS[kind]}`, importance], {
    env,
    stdio: ["ignore", "ignore", "inherit"],
  });
  return output;
}

function quantizeOurs(input, name, fills) {
  const args = OURS[name].map((arg) => arg.replace(/^\{(.*)\}$/, (_, key) => fills[key]));
  return quantizeTwin(input, name, args, options).output;
}

const chosenOurs = Object.keys(OURS).filter(wanted);
const sections = [];
mkdirSync(join(root, "docs/figures"), { recursive: true });
const all = texts();
const chosen = options.texts.split(",").map((name) => all[name].test);
for (const name of options.models.split(",")) {
  const { twin } = await modelFiles(name);
  const importance = await importanceFile(twin);
  const peers = Object.keys(PEERS)
    .filter((kind) => wanted(`${kind}.gguf`) || chosenOurs.some((name) => OURS[name].includes(`{${kind}}`)))
    .map((kind) => quantizeByPeer(twin, kind, importance));
  const bytes = Object.fromEntries(peers.map((file) => [/([^-]*)\.gguf$/.exec(file)[1], `${statSync(file).size}`]));
  const ours = chosenOurs.map((name) => quantizeOurs(twin, name, { ...bytes, calibration: all.prose.calibration }));
  const files = [...peers, ...ours];
  const svg = join(root, `docs/figures/accuracy-${name}.svg`);
  const rows = divergenceRows(files, twin, chosen, options.tokens, ["--activations", "float", "--svg", svg]);
  sections.push(`## ${name}\n\n${table(divergenceHead, rows)}`);
  writeReport("accuracy", {
    title: "Answers by bytes, beside llama.cpp's quantizer",
    command: "node bench/accuracy.js",
    sections: [
      `Twins of real models (the same function, weights off every grid). llama.cpp's files have an importance matrix of the same ${CALIBRATION_TOKENS} tokens of prose and are read with float activations; ours run with 8-bit activations in blocks, as they do by default. ${options.tokens} tokens of other prose, and of code.`,
      ...sections,
    ],
    isPartial: true,
  });
}
