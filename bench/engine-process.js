/**
 * Runs an engine in a process of its own: both sides of the messages. Every engine answers the same requests, so that
 * comparisons can alternate between engines that are all loaded.
 */
import { fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createRandom } from "../dist/text/random.js";

/**
 * @typedef {object} Engine What a process offers once its model is loaded.
 * @property {number} vocabulary
 * @property {(ids: number[]) => Promise<void>} prefill Ids into an empty context, up to the logits of the last one.
 * @property {(count: number) => Promise<void>} decode So many tokens greedily, one by one, after the last.
 * @property {Record<string, (request: any) => unknown>} [others] Answers to requests that only this engine knows.
 */

/** Random ids, the same for the same count. @param {number} count @param {number} vocabulary */
export function randomIds(count, vocabulary) {
  const random = createRandom(count);
  return Array.from({ length: count }, () => Math.floor(random.uniform() * vocabulary));
}

/** Random ids of one of several prompts. @param {number} prompt @param {number} count @param {number} vocabulary */
export function distinctIds(prompt, count, vocabulary) {
  const random = createRandom(1000 + prompt);
  return Array.from({ length: count }, () => Math.floor(random.uniform() * vocabulary));
}

/** Highest resident set of this process so far, bytes; what it maps of files counts too. */
function peakBytes() {
  const match = /VmHWM:\s+(\d+) kB/.exec(readFileSync("/proc/self/status", "utf8"));
  return match ? 1024 * Number(match[1]) : process.resourceUsage().maxRSS * 1024;
}

/** How many were read here. */
let prompts = 0;

/** Requests that all engines answer, each with seconds or bytes. @type {Record<string, (engine: Engine, request: any) => any>} */
const answers = {
  /** Each prompt is another, as prompts that were read before are in our store. */
  async prefill(engine, { tokens }) {
    const ids = distinctIds(prompts++, tokens, engine.vocabulary);
    return seconds(() => engine.prefill(ids));
  },
  /** Times of `runs` stretches of tokens, one after the other. */
  async decode(engine, { tokens, context = 0, runs = 1 }) {
    await engine.prefill(randomIds(Math.max(1, context), engine.vocabulary));
    const times = [];
    for (let run = 0; run < runs; run++) times.push(await seconds(() => engine.decode(tokens)));
    return times;
  },
  peak: () => peakBytes(),
};

/** Seconds that work takes, of the clock and of all processors. @param {() => Promise<unknown>} work */
export async function timed(work) {
  const before = process.cpuUsage();
  const elapsed = await seconds(work);
  const { user, system } = process.cpuUsage(before);
  return { seconds: elapsed, processor: (user + system) / 1e6 };
}

async function seconds(work) {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}

/** Runs in the child: loads the engine and answers. The first message tells the seconds from load to first token. */
export async function serveEngine(/** @type {(options: any) => Promise<Engine>} */ load) {
  const start = performance.now();
  const engine = await load(JSON.parse(process.argv[2]));
  const loaded = performance.now();
  await engine.prefill(randomIds(8, engine.vocabulary));
  const first = performance.now();
  process.on("message", async (/** @type {any} */ request) => {
    try {
      const answer = answers[request.what];
      process.send({ value: await (answer ? answer(engine, request) : engine.others[request.what](request)) });
    } catch (error) {
      process.send({ error: String(error.stack) });
    }
  });
  process.send({ value: { load: (loaded - start) / 1000, firstToken: (first - start) / 1000 } });
}

/** The parent's side. */
export class EngineProcess {
  /** Seconds: from load to loaded, from load to the first token, and from process start to that. */
  times;
  #child;

  /** @param {import("node:child_process").ChildProcess} child */
  constructor(child, times) {
    this.#child = child;
    this.times = times;
  }

  /** @param {"ours" | "peer-llama" | "peer-ik" | "peer-python" | "peer-transformers"} name @param {object} options */
  static async start(name, options) {
    const start = performance.now();
    const script = fileURLToPath(new URL(`./${name}.js`, import.meta.url));
    const child = fork(script, [JSON.stringify(options)], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    const times = await nextMessage(child);
    return new EngineProcess(child, { ...times, fromProcessStart: (performance.now() - start) / 1000 });
  }

  /** Ids of the engine's processes. */
  get pids() {
    return [this.#child.pid, ...(this.times.python ? [this.times.python] : [])];
  }

  /** @param {object} request */
  ask(request) {
    this.#child.send(request);
    return nextMessage(this.#child);
  }

  stop() {
    return new Promise((resolve) => {
      this.#child.once("exit", resolve);
      this.#child.disconnect();
      this.#child.kill();
    });
  }
}

function nextMessage(child) {
  return new Promise((resolve, reject) => {
    const onExit = (code) => reject(new Error(`${child.spawnargs.join(" ")} ended with code ${code}`));
    child.once("exit", onExit);
    child.once("message", ({ value, error }) => {
      child.off("exit", onExit);
      if (error) reject(new Error(error));
      else resolve(value);
    });
  });
}
