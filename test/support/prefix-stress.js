/**
 * Processes that compute prompts with one folder of prefixes and are killed at any moment. What they compute must be what a
 * process without a folder computes, bit for bit, and the folder must keep its limit.
 */
import { spawn } from "node:child_process";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const PROMPTS = 24;

/**
 * Runs in each process: `argv` is the folder, "" for none, its limit, and what the model is made of, as JSON.
 * Writes a line for each prompt: its number, what was found of it, and the hash of its logits.
 */
const WORKER = `
import { createHash } from "node:crypto";
import { PrefixCache } from "./api/prefix-cache.ts";
import { scalarCpu } from "./kernels/cpu.ts";
import { LanguageModel } from "./language/language-model.ts";
import { LoadedProgram } from "./runtime/program.ts";
import { Random } from "../test/support/random.ts";
import { recurrentProgram, VOCABULARY } from "../test/support/recurrent-model.ts";
const [folder, bytes, layers] = process.argv.slice(2);
const parts = new Random(3);
const idsOf = (length) => Array.from({ length }, () => parts.integer(0, VOCABULARY - 1));
const begins = [idsOf(70), idsOf(100), idsOf(130)];
const prompts = Array.from({ length: ${PROMPTS} }, (_, i) => [...begins[i % 3], ...idsOf(5 + 4 * i)]);
const options = { rows: 48, contextLength: 256, ...JSON.parse(layers) };
const program = await LoadedProgram.load(recurrentProgram(scalarCpu, options), { cpu: scalarCpu });
const model = new LanguageModel("stress", program, {}, {});
if (folder !== "") await (await PrefixCache.open({ folder, bytes: Number(bytes) })).keepFor(model);
for (let turn = 0; folder !== "" || turn < prompts.length; turn++) {
  const number = folder === "" ? turn : Math.floor(Math.random() * prompts.length);
  const decoder = model.createDecoder();
  const logits = await decoder.prefill(prompts[number]);
  const hash = createHash("sha256").update(logits).digest("hex");
  process.stdout.write(number + " " + decoder.cachedTokens + " " + hash + "\\n");
  await decoder.dispose();
}
`;

/** Writes the script of the processes, with the modules that it needs. @param {string} file */
async function writeWorker(file) {
  const resolveDir = fileURLToPath(new URL("../../src", import.meta.url));
  const stdin = { contents: WORKER, resolveDir, loader: /** @type {const} */ ("js") };
  await build({ stdin, bundle: true, platform: "node", format: "esm", outfile: file, logLevel: "error" });
}

/** Starts a process; `onLine` is told of each line. Gives the process and what it comes to. @param {string[]} args @param {(line: string) => void} onLine */
function start(args, onLine) {
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  let [text, errors] = ["", ""];
  child.stdout.on("data", (data) => {
    const lines = (text + data).split("\n");
    text = /** @type {string} */ (lines.pop());
    for (const line of lines) onLine(line);
  });
  child.stderr.on("data", (data) => {
    errors += data;
  });
  /** @type {Promise<string>} */
  const ended = new Promise((resolve) => child.on("close", () => resolve(errors)));
  return { child, ended };
}

/** @param {string} folder */
function bytesIn(folder) {
  let sum = 0;
  for (const name of readdirSync(folder)) sum += statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0;
  return sum;
}

/**
 * Kills so many processes. Gives how many prompts they computed, for how many something was found, and the most bytes that
 * the folder had; an error tells what was wrong.
 * @param {import("./prefix-stress.d.ts").StressOptions} options
 */
export async function stressPrefixes({ folder, kills, processes, bytes, layers }) {
  const code = join(folder, "..", "worker.mjs");
  await writeWorker(code);
  /** @type {string[]} */
  const hashes = [];
  const cold = start([code, "", "0", JSON.stringify(layers)], (line) => hashes.push(line.split(" ")[2] ?? ""));
  const problem = await cold.ended;
  if (hashes.length !== PROMPTS) throw new Error(problem || "a process without a folder ended early");
  const sums = { answers: 0, found: 0, mostBytes: 0 };
  const wrong = new Set();
  let left = kills;
  const killer = async () => {
    while (left-- > 0) {
      let answers = 0;
      const lines = Math.floor(Math.random() * 12);
      /** @type {(value?: unknown) => void} */
      let isDue = () => {};
      const due = new Promise((resolve) => {
        isDue = resolve;
      });
      const { child, ended } = start([code, folder, String(bytes), JSON.stringify(layers)], (line) => {
        const [number, found, hash] = line.split(" ");
        if (hash !== hashes[Number(number)]) wrong.add(`prompt ${number}, of which ${found} tokens were found`);
        sums.answers++;
        if (Number(found) > 0) sums.found++;
        if (++answers > lines) isDue();
      });
      const early = await Promise.race([due, ended]);
      if (typeof early === "string") throw new Error(early || "a process ended by itself");
      await delay(Math.random() * 20);
      child.kill("SIGKILL");
      await ended;
      sums.mostBytes = Math.max(sums.mostBytes, bytesIn(folder));
    }
  };
  await Promise.all(Array.from({ length: processes }, killer));
  if (wrong.size > 0) throw new Error(`other logits than without a folder: ${[...wrong].join("; ")}`);
  if (sums.mostBytes > bytes)
    throw new Error(`expected at most ${bytes} bytes in the folder but found ${sums.mostBytes}`);
  return sums;
}
