/**
 * Startup: processes of the command line from their start to the first token that they write, or to the first response of
 * `lowbit serve`, in turns. `node bench/startup.js [--rounds 9] [--smollm2 model.gguf] [--beside another-checkout]`. Linux.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { loadavg } from "node:os";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { exportProgram, loadCheckpoint } from "../dist/index.js";
import { checkpointOf, folder } from "./make-model.js";
import { writeProgram } from "./programs.js";
import { median, table, writeReport } from "./report.js";
import { repositoryTokenizerFiles } from "./repository-tokenizer.js";
import { startParts } from "./startup-parts.js";

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "9" }, smollm2: { type: "string" }, beside: { type: "string" } },
});
const place = join(folder, "startup");
mkdirSync(place, { recursive: true });
const PARTS = "Where the time of the JavaScript thread goes, by V8's profiler, which itself slows it by a fifth:";
const PROMPT = "The capital of France is";

/** The shape of 1B with a tokenizer of 128,256 tokens. */
async function largeProgram() {
  const [program, checkpoint] = [join(place, "1b-with-tokenizer.pte"), join(place, "1b")];
  if (existsSync(program)) return program;
  rmSync(checkpoint, { recursive: true, force: true });
  mkdirSync(checkpoint);
  const without = resolve(await checkpointOf("1b"));
  for (const name of readdirSync(without)) symlinkSync(join(without, name), join(checkpoint, name));
  const { file, config } = repositoryTokenizerFiles();
  writeFileSync(join(checkpoint, "tokenizer.json"), JSON.stringify(file));
  writeFileSync(join(checkpoint, "tokenizer_config.json"), JSON.stringify(config));
  await writeProgram(checkpoint, "1b", "4-bit g32", program);
  return program;
}

/**
 * Runs a process until `isFirst` of its output; seconds until then, those of the processor among them. A server is ended then.
 * @param {string[]} argv @param {(output: string) => boolean | Promise<boolean>} isFirst
 */
async function timed(argv, isFirst) {
  const start = performance.now();
  const child = spawn(process.execPath, argv, { env: { ...process.env, LOWBIT_CACHE: join(place, "cache") } });
  let output = "";
  let found;
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", async (text) => {
      output += text;
      if (found || !(await isFirst(output))) return;
      const ticks = readFileSync(`/proc/${child.pid}/stat`, "utf8").split(" ").slice(13, 15);
      found = { seconds: (performance.now() - start) / 1000, cpu: ticks.reduce((sum, n) => sum + Number(n), 0) / 100 };
      if (argv.includes("serve")) child.kill("SIGTERM");
    });
  await once(child, "close");
  if (!found) throw new Error(`${argv.join(" ")}: ${output}`);
  return found;
}

/** Whether a server has answered a request, which it gets as soon as it listens. */
function isAnswered() {
  let isAsked = false;
  return async (/** @type {string} */ output) => {
    const address = /at (http:\/\/[^/]+)\/v1/.exec(output)?.[1];
    if (!address || isAsked) return false;
    isAsked = true;
    const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }], max_tokens: 1 });
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${address}/v1/chat/completions`, { method: "POST", headers, body });
    const text = await response.text();
    if (!response.ok) throw new Error(text);
    return true;
  };
}

const mainOf = (/** @type {string} */ checkout) => join(checkout, "dist", "cli", "main.js");
const here = fileURLToPath(new URL("..", import.meta.url));
const checkouts = { here, ...(values.beside && { beside: resolve(values.beside) }) };
const [gguf, small] = [values.smollm2 && resolve(values.smollm2), join(place, "smollm2-tables.pte")];
if (gguf && !existsSync(small)) await exportProgram(await loadCheckpoint(gguf), small);
const large = await largeProgram();
const run = (/** @type {string} */ program) => (/** @type {string} */ main) => [
  main,
  "run",
  program,
  PROMPT,
  "--max-tokens",
  "1",
  "--temperature",
  "0",
];
const anything = () => (/** @type {string} */ output) => output !== "";
/** @type {[name: string, argv: (main: string) => string[], isFirst: () => (output: string) => boolean | Promise<boolean>][]} */
const cases = [
  ["`node -p 0`", () => ["-p", "0"], anything],
  ["`lowbit --version`", (main) => [main, "--version"], anything],
  ["`lowbit run`, 1B shape", run(large), anything],
];
if (gguf) {
  const serve = (/** @type {string} */ main) => [main, "serve", `m=${gguf}`, "--port", "0", "--no-log"];
  cases.push(
    ["`lowbit run`, SmolLM2", run(small), anything],
    ["`lowbit serve` of its GGUF, second start", serve, isAnswered],
  );
}
const rows = [];
// What is compiled at the first start is in the cache at the second.
for (const [, argv, isFirst] of cases)
  for (const checkout of Object.values(checkouts)) await timed(argv(mainOf(checkout)), isFirst());
for (const [name, argv, isFirst] of cases) {
  const times = Object.fromEntries(Object.keys(checkouts).map((key) => [key, []]));
  for (let round = 0; round < Number(values.rounds); round++)
    for (const [key, checkout] of Object.entries(checkouts))
      times[key].push(await timed(argv(mainOf(checkout)), isFirst()));
  for (const [key, list] of Object.entries(times))
    rows.push([name, key, ...["seconds", "cpu"].map((of) => median(list.map((time) => time[of])).toFixed(2))]);
}
const env = { ...process.env, LOWBIT_CACHE: join(place, "cache") };
const parts = gguf ? startParts(run(small)(mainOf(here)), env, Number(values.rounds)) : [];
const report = table(["what", "checkout", "first output or answer, s", "of it processor, s"], rows);
writeReport("startup", {
  title: "Startup",
  command: `node bench/startup.js --rounds ${values.rounds}${values.smollm2 ? ` --smollm2 ${basename(values.smollm2)}` : ""}${values.beside ? " --beside ../before" : ""}`,
  sections: [
    `Medians of ${values.rounds} processes in turns, files in the page cache. The prompt has five tokens of SmolLM2; the 1B shape, 4 bits in groups of 32, has a tokenizer of 128,256 tokens without merges.`,
    report,
    "Seconds of the processor are of all threads. A start before these, which is not timed, has left what the cache keeps.",
    ...(gguf ? [PARTS, table(["part of `lowbit run`, SmolLM2", "ms"], parts)] : []),
    `Load of the machine at the end: ${loadavg()[0].toFixed(1)}.`,
  ],
});
