/**
 * `npm run load [-- --seconds 60 --clients 64 --program x.pte]`: a server under load. First its throughput beside that of
 * the library's own generations in one process, in turn; then clients that leave, write nonsense and read slowly among the
 * others, with the errors, the gaps between pieces of text, and the memory. Writes bench/results/serve.md; fails where a
 * client meets an error that is not its own, or the server gives less than the library by more than 5 %.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { loadavg } from "node:os";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { loadProgram } from "../dist/index.js";
import { demoProgram } from "../scripts/demo-model.js";
import { digits, median, table, writeReport } from "./report.js";

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
/** What the server gives of the throughput of the library at least. */
const QUOTIENT_MIN = 0.95;

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
  // The first, in which all prompts are new to both, is not counted.
  for (let round = 0; round <= Number(values.rounds); round++) {
    const ours = await rate((i, signal) => stream(server.url, i, signal));
    peer.send("go");
    const own = await new Promise((resolve) => peer.once("message", resolve));
    if (round > 0) rounds.push([ours, own]);
  }
  peer.kill();
  const quotient = median(rounds.map(([ours, own]) => ours / own));
  const { sections, errors } = await disorder(server);
  server.child.kill("SIGTERM");
  const [code] = await once(server.child, "exit");
  const report = {
    title: "A server under load",
    command: `node bench/serve.js --seconds ${values.seconds} --clients ${values.clients} --rounds ${values.rounds}`,
    sections: [
      `Model ${model}, ${clients} clients that stream completions of 16 to 128 tokens after prompts of one to five lines; load ${loadavg()[0].toFixed(1)}. The server beside the library's own generations in one process, in turn; the median of the quotients is ${digits(quotient)}:`,
      table(["server, tokens/s", "library, tokens/s", "server / library"], rounds.map(row)),
      ...sections,
    ],
  };
  writeReport("serve", report);
  for (const error of new Set(errors)) console.error(error);
  if (errors.length > 0 || code !== 0 || quotient < QUOTIENT_MIN) process.exitCode = 1;
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
  const tenths = Array.from({ length: 10 }, (_, i) =>
    median(memory.slice((i * memory.length) / 10, Math.max(1, ((i + 1) * memory.length) / 10))),
  );
  const sections = [
    `Then ${clients} clients for ${seconds} seconds: of each twenty requests one leaves after five pieces, one is nonsense (answered 400), and one reads a piece each 50 ms; load ${loadavg()[0].toFixed(1)}. Requests, and errors that are not the client's:`,
    table(
      ["well-behaved", "left", "nonsense", "slow", "errors"],
      [[...Object.values(counts), errors.length].map(String)],
    ),
    "Milliseconds between pieces of text, of well-behaved clients:",
    table(["median", "95 %", "99 %", "largest"], [[at(0.5), at(0.95), at(0.99), at(1)]]),
    "Resident memory in MB, the median of each tenth of the time:",
    table(
      tenths.map((_, i) => `${i + 1}`),
      [tenths.map((megabytes) => megabytes.toFixed(0))],
    ),
  ];
  return { sections, errors };
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
