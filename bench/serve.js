/**
 * `npm run load [-- --seconds 60 --clients 64 --program x.pte]`: a server under load. First its throughput beside that of
 * the library's own generations in one process, in turn; then clients that leave, write nonsense and read slowly among the
 * others, with the errors, the gaps between pieces of text, and the memory. Prints a report.
 */
import { spawn } from "node:child_process";
import { loadavg } from "node:os";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { loadProgram } from "../dist/index.js";
import { demoProgram } from "../scripts/demo-model.js";
import { digits, median, table } from "./report.js";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    clients: { type: "string", default: "64" },
    rounds: { type: "string", default: "3" },
    program: { type: "string" },
    role: { type: "string" },
  },
});
const seconds = Number(values.seconds);
const clients = Number(values.clients);
const program = values.program ?? (await demoProgram());
const model = basename(program, ".pte");
/** What one measurement of throughput takes, and what is left out at its start. */
const ROUND_SECONDS = 8;
const WARM_SECONDS = 2;

/** Requests of mixed lengths, the same for both sides. @param {number} i */
function requestOf(i) {
  const prompt = "ROMEO: what light through yonder window breaks? ".repeat(1 + (i % 5));
  return { prompt, tokens: [16, 32, 64, 128][i % 4] };
}

if (values.role === "library") await library();
else await main();

/** Tokens a second of the library with so many callers, for each line that it is sent. */
async function library() {
  const llm = await loadProgram(program);
  process.send("ready");
  process.on("message", async () => process.send(await rate((i, signal) => generate(llm, i, signal))));
}

/** @param {import("../dist/index.js").LanguageModel} llm @param {number} i @param {AbortSignal} signal */
async function* generate(llm, i, signal) {
  const { prompt, tokens } = requestOf(i);
  yield* llm.generate(prompt, { maxTokens: tokens, temperature: 0, ignoreEos: true, signal });
}

/** Pieces a second of many callers at once. @param {(i: number, signal: AbortSignal) => AsyncIterable<unknown>} work */
async function rate(work) {
  const stop = new AbortController();
  let pieces = 0;
  let next = 0;
  const caller = async () => {
    while (!stop.signal.aborted) for await (const _ of work(next++, stop.signal)) pieces++;
  };
  const all = Array.from({ length: clients }, () => caller().catch(() => {}));
  await sleep(WARM_SECONDS * 1000);
  const [before, start] = [pieces, performance.now()];
  await sleep(ROUND_SECONDS * 1000);
  const found = (1000 * (pieces - before)) / (performance.now() - start);
  stop.abort();
  await Promise.all(all);
  return found;
}

/** @param {number} ms */
function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

async function main() {
  const peer = spawn(process.execPath, [fileURLToPath(import.meta.url), "--role", "library", "--program", program], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  await new Promise((resolve) => peer.once("message", resolve));
  const server = await startServer();
  const rounds = [];
  for (let round = 0; round < Number(values.rounds); round++) {
    const ours = await rate((i, signal) => stream(server.url, i, signal));
    peer.send("go");
    const own = await new Promise((resolve) => peer.once("message", resolve));
    rounds.push([ours, own]);
  }
  peer.kill();
  console.log(table(["server, tokens/s", "library, tokens/s", "server / library"], rounds.map(row)));
  console.log(`median of the quotients: ${digits(median(rounds.map(([ours, own]) => ours / own)))}\n`);
  await disorder(server);
  server.child.kill("SIGTERM");
}

/** @param {number[]} round */
function row([ours, own]) {
  return [ours, own, ours / own].map(digits);
}

async function startServer() {
  const cli = fileURLToPath(new URL("../dist/cli/main.js", import.meta.url));
  const child = spawn(process.execPath, [cli, "serve", program, "--port", "0", "--no-log"]);
  const url = await new Promise((resolve) =>
    child.stderr.on("data", (data) => {
      const found = /at (http:\S+)\/v1/.exec(data);
      if (found) resolve(found[1]);
      else process.stderr.write(data);
    }),
  );
  while ((await fetch(`${url}/ready`)).status !== 200) await sleep(50);
  return { child, url };
}

/** @param {string} url @param {object} body @param {AbortSignal} signal */
function post(url, body, signal) {
  const headers = { "content-type": "application/json" };
  return fetch(`${url}/v1/completions`, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** Pieces of text of a streamed completion. @param {string} url @param {number} i @param {AbortSignal} signal */
async function* stream(url, i, signal) {
  const { prompt, tokens } = requestOf(i);
  const body = { model, prompt, max_tokens: tokens, temperature: 0, ignore_eos: true, stream: true };
  const response = await post(url, body, signal);
  if (response.status !== 200) throw new Error(`status ${response.status}`);
  let rest = "";
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n\n");
    rest = lines.pop();
    for (const line of lines) if (line.includes('"finish_reason":null')) yield line;
  }
}

/** What a client does, by its turn: most behave. @param {number} i */
function behaviourOf(i) {
  return ["leaves", "bad", "slow"][i % 20] ?? "behaves";
}

/** @param {{ child: import("node:child_process").ChildProcess, url: string }} server */
async function disorder({ url }) {
  const counts = { behaves: 0, leaves: 0, bad: 0, slow: 0 };
  const errors = [];
  const gaps = [];
  const memory = [];
  const end = performance.now() + seconds * 1000;
  let next = 0;
  const watch = setInterval(async () => memory.push(await residentMegabytes(url)), Math.max(500, seconds * 10));
  const client = async () => {
    while (performance.now() < end) {
      const i = next++;
      const behaviour = behaviourOf(i);
      await turn(url, i, behaviour, gaps).then(
        () => counts[behaviour]++,
        (error) => errors.push(`${behaviour}: ${error.message}`),
      );
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  clearInterval(watch);
  gaps.sort((a, b) => a - b);
  const at = (part) => digits(gaps[Math.floor(part * (gaps.length - 1))]);
  const quarter = Math.max(1, Math.floor(memory.length / 4));
  console.log(`${clients} clients, ${seconds} seconds, load ${loadavg()[0].toFixed(1)}, ${model}`);
  console.log(
    table(
      ["well-behaved", "left", "nonsense", "slow", "errors"],
      [[...Object.values(counts), errors.length].map(String)],
    ),
  );
  console.log(
    table(["gap between pieces, ms: median", "95 %", "99 %", "largest"], [[at(0.5), at(0.95), at(0.99), at(1)]]),
  );
  const shown = [median(memory.slice(0, quarter)), median(memory.slice(-quarter)), Math.max(...memory)];
  console.log(table(["resident memory, MB: first quarter", "last quarter", "most"], [shown.map(digits)]));
  for (const error of new Set(errors)) console.log(error);
}

/** @param {string} url @param {number} i @param {string} behaviour @param {number[]} gaps */
async function turn(url, i, behaviour, gaps) {
  const stop = new AbortController();
  if (behaviour === "bad") {
    const { status } = await post(url, { model, prompt: i % 2 ? "x" : [], n: i % 2 ? 1000 : 1 }, stop.signal);
    if (status !== 400) throw new Error(`status ${status}`);
    return;
  }
  let last = null;
  let pieces = 0;
  for await (const _ of stream(url, i, stop.signal)) {
    const now = performance.now();
    if (last !== null && behaviour === "behaves") gaps.push(now - last);
    last = now;
    if (behaviour === "slow") await sleep(50);
    if (behaviour === "leaves" && ++pieces === 5) break;
  }
}

/** @param {string} url */
async function residentMegabytes(url) {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^lowbit_memory_bytes (\S+)$/m.exec(text)[1]) / 1e6;
}
