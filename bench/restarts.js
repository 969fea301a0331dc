/**
 * `node bench/restarts.js model.gguf`: time to the first token of a long prompt after a restart, if another process has left
 * the prompt's pages on disk: 7,200 tokens with a model, and 24,000 with one of the shape 1b. Writes results/restarts.md.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { loadCheckpoint, loadCompiled, loadProgram } from "../dist/index.js";
import { PrefixCache } from "../dist/tools/index.js";
import { watched } from "./calm.js";
import { programOf } from "./programs.js";
import { digits, median, table, writeReport } from "./report.js";

/** Tokens at the end of a prompt that no process has computed before. */
const NEW = 40;
const RESTARTS = 5;

/** Tokens that are the same in each process, but for those at the end. @param {number} count @param {number} ending */
function prompt(count, ending) {
  const ids = [];
  for (let i = 0, seed = 7; i < count; i++) {
    if (i === count - NEW) seed += 97 * ending;
    seed = (seed * 1103515245 + 12345) % 2147483648;
    ids.push(500 + (seed % 20_000));
  }
  return ids;
}

/** Milliseconds until the logits of a prompt, with the pages on disk, and of the new tokens alone. */
async function computeOnce(path, count, ending, folder) {
  const options = { contextLength: count + NEW, kvCache: "f16" };
  const isGguf = path.endsWith(".gguf");
  const checkpoint = isGguf ? await loadCheckpoint(path) : null;
  const model = checkpoint ? await loadCompiled(checkpoint, options) : await loadProgram(path, options);
  await checkpoint?.close();
  const cache = await PrefixCache.open({ folder, bytes: 2 ** 36 });
  await cache.keepFor(model);
  const timed = async (ids) => {
    const started = performance.now();
    const decoder = model.createDecoder();
    await decoder.prefill(ids);
    const found = { ms: performance.now() - started, cachedTokens: decoder.cachedTokens };
    await decoder.dispose();
    return found;
  };
  const { result: first, others } = await watched([process.pid], () => timed(prompt(count, ending)));
  const alone = await timed(prompt(count, ending + 1000));
  await cache.flush();
  await model.dispose();
  return { first, alone, others };
}

/** Runs `computeOnce` in a process of its own. */
function compute(path, count, ending, folder) {
  const argv = [fileURLToPath(import.meta.url), "--once", path, String(count), String(ending), folder];
  const { status, stdout } = spawnSync(process.execPath, argv, {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (status !== 0) throw new Error(`a process ended with ${status}`);
  return JSON.parse(stdout);
}

async function rowOf(name, path, count) {
  const folder = mkdtempSync(join(tmpdir(), "lowbit-restarts-"));
  try {
    const cold = compute(path, count, 0, folder);
    const runs = Array.from({ length: RESTARTS }, (_, i) => compute(path, count, i + 1, folder));
    const seconds = (pick) => digits(median(runs.map(pick)) / 1000);
    const share = Math.min(...runs.map(({ first }) => first.cachedTokens)) / count;
    const [first, alone] = [seconds((run) => run.first.ms), seconds((run) => run.alone.ms)];
    const beyond = seconds((run) => run.first.ms - run.alone.ms);
    const busy = median(runs.map(({ others }) => others)).toFixed(1);
    return [name, String(count), digits(cold.first.ms / 1000), `${digits(100 * share)} %`, first, alone, beyond, busy];
  } finally {
    rmSync(folder, { recursive: true });
  }
}

if (process.argv[2] === "--once") {
  const [path, count, ending, folder] = process.argv.slice(3);
  console.log(JSON.stringify(await computeOnce(path, Number(count), Number(ending), folder)));
} else {
  const path = process.argv[2];
  const times = ["cold, s", "found", "after a restart, s", "what is new alone, s", "beyond that, s"];
  const head = ["model", "tokens", ...times, "cores busy with others"];
  const rows = [
    await rowOf("Qwen2.5-Coder-0.5B", path, 7200),
    await rowOf("shape 1b", await programOf("1b", "4-bit g32"), 24_000),
  ];
  const about = `Until the logits of a prompt whose last ${NEW} tokens are new, in a new process with the folder of one that has ended; medians of ${RESTARTS} restarts. What is new alone is the same with the pages in memory.`;
  const sections = [`## First token after a restart\n\n${about}\n\n${table(head, rows)}`];
  writeReport("restarts", { title: "Prompts after a restart", command: "node bench/restarts.js model.gguf", sections });
}
