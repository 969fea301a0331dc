/** The processes of `bench/serve.js`, controlled by messages: clients of a server, and the library without one. */
import { setMaxListeners } from "node:events";
import { Agent, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { loadProgram } from "../dist/index.js";
import { processSeconds } from "./calm.js";

/** Duration of one measurement of throughput, and of its beginning that is left out. */
const ROUND_SECONDS = 8;
const WARM_SECONDS = 3;

/** Requests of mixed lengths, the same for both sides. @param {number} i */
function requestOf(i) {
  const prompt = "ROMEO: what light through yonder window breaks? ".repeat(1 + (i % 5));
  return { prompt, max_tokens: [16, 32, 64, 128][i % 4] };
}

/**
 * Pieces of text a second of so many callers at once, and what the process `pid` that computes takes for each.
 * @param {number} callers @param {number} pid @param {(i: number, piece: () => void, signal: AbortSignal) => Promise<void>} work
 */
async function rate(callers, pid, work) {
  const stop = new AbortController();
  setMaxListeners(0, stop.signal);
  let pieces = 0;
  let next = 0;
  const piece = () => pieces++;
  const caller = async () => {
    while (!stop.signal.aborted)
      await work(next++, piece, stop.signal).catch((error) => {
        if (!stop.signal.aborted) throw error;
      });
  };
  const all = Promise.all(Array.from({ length: callers }, caller));
  await sleep(WARM_SECONDS * 1000);
  const before = { pieces, time: performance.now(), cpu: processSeconds(pid), own: processSeconds(process.pid) };
  await sleep(ROUND_SECONDS * 1000);
  const count = pieces - before.pieces;
  const found = {
    rate: (1000 * count) / (performance.now() - before.time),
    cpuMs: (1000 * (processSeconds(pid) - before.cpu)) / count,
    ownMs: (1000 * (processSeconds(process.pid) - before.own)) / count,
  };
  stop.abort();
  await all;
  return found;
}

/** @param {{ program: string, threads: number, callers: number }} options */
async function library({ program, threads, callers }) {
  const llm = await loadProgram(program, { threads });
  const generate = async (i, piece, signal) => {
    const { prompt, max_tokens: maxTokens } = requestOf(i);
    for await (const _ of llm.generate(prompt, { maxTokens, temperature: 0, ignoreEos: true, signal })) piece();
  };
  return () => rate(callers, process.pid, generate);
}

/** A server as its clients know it. @typedef {{ url: string, model: string, pid: number, callers: number }} Server */

const agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY });

/** The status and body of a request. @param {string} url @param {object} body @param {AbortSignal} signal */
function post(url, body, signal) {
  const headers = { "content-type": "application/json" };
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/v1/completions`, { method: "POST", agent, headers, signal }, (response) => {
      // An abort may come when nobody reads it yet.
      response.on("error", () => {});
      resolve(response);
    });
    sent.on("error", reject);
    sent.end(JSON.stringify(body));
  });
}

/** A prompt of some 1,500 tokens, which no other begins with. @param {number} i */
function longRequestOf(i) {
  return { prompt: `${i} ${"ROMEO: what light through yonder window breaks? ".repeat(120)}`, max_tokens: 8 };
}

/** Pieces of a streamed completion. @param {Server} server @param {object} asked @param {AbortSignal} signal */
async function* stream({ url, model }, asked, signal) {
  const body = { model, ...asked, temperature: 0, ignore_eos: true, stream: true };
  const response = await post(url, body, signal);
  if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`);
  let rest = "";
  for await (const bytes of response) {
    const events = (rest + bytes).split("\n\n");
    rest = events.pop();
    for (const event of events)
      if (event.includes('"finish_reason":null')) yield event;
      else if (event.includes('"error"')) throw new Error(event);
  }
}

/** What a client does, by its turn: most behave. @param {number} i */
function behaviourOf(i) {
  return ["leaves", "bad", "slow", "long"][i % 20] ?? "behaves";
}

/** Clients of all kinds for so many seconds. @param {Server} server @param {number} seconds */
async function disorder(server, seconds) {
  const counts = { behaves: 0, leaves: 0, bad: 0, slow: 0, long: 0 };
  const found = { counts, pieces: 0, errors: [], gaps: [], memory: [], seconds: 0 };
  const start = performance.now();
  let next = 0;
  const watch = setInterval(
    () => residentMegabytes(server.url).then((megabytes) => found.memory.push(megabytes)),
    Math.max(500, seconds * 10),
  );
  const client = async () => {
    while (performance.now() < start + seconds * 1000) {
      const i = next++;
      const behaviour = behaviourOf(i);
      await turn(server, i, behaviour, found).then(
        () => counts[behaviour]++,
        (error) => found.errors.push(`${behaviour}: ${error.message}`),
      );
    }
  };
  await Promise.all(Array.from({ length: server.callers }, client));
  clearInterval(watch);
  found.seconds = (performance.now() - start) / 1000;
  return found;
}

/** @param {Server} server @param {number} i @param {string} behaviour @param {{ pieces: number, gaps: number[] }} found */
async function turn(server, i, behaviour, found) {
  const stop = new AbortController();
  if (behaviour === "bad") {
    const wrong = { model: server.model, prompt: i % 2 ? "x" : [], n: i % 2 ? 1000 : 1 };
    const response = await post(server.url, wrong, stop.signal);
    response.resume();
    if (response.statusCode !== 400) throw new Error(`status ${response.statusCode}`);
    return;
  }
  let last = null;
  let pieces = 0;
  for await (const _ of stream(server, behaviour === "long" ? longRequestOf(i) : requestOf(i), stop.signal)) {
    const now = performance.now();
    found.pieces++;
    if (last !== null && behaviour === "behaves") found.gaps.push(now - last);
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

/** What each message of the parent asks for. */
async function rolesOf({ role, program, threads, callers, server }) {
  if (role === "library")
    return { rate: await library({ program, threads: Number(threads), callers: Number(callers) }) };
  const clients = /** @type {Server} */ (JSON.parse(server));
  const read = async (i, piece, signal) => {
    for await (const _ of stream(clients, requestOf(i), signal)) piece();
  };
  return {
    rate: () => rate(clients.callers, clients.pid, read),
    disorder: (seconds) => disorder(clients, seconds),
  };
}

const { values } = parseArgs({
  options: {
    role: { type: "string" },
    program: { type: "string" },
    threads: { type: "string" },
    callers: { type: "string" },
    server: { type: "string" },
  },
});
const roles = await rolesOf(values);
process.on("message", async ([name, value]) => process.send(await roles[name](value)));
process.send("ready");
