/**
 * `npm run soak`: thousands of generations of the demo model at the same time, of random prompts and lengths, some of which are
 * aborted, abandoned, forked, truncated, or saved and restored, in a store that is too small for all. Fails if a sequence, page
 * or reference is left afterwards, memory has grown, or greedy texts differ from those of runs alone.
 *
 *   npm run soak                                           5,000 generations, natively and in WebAssembly
 *   npm run soak -- --backends wasm --generations 500 --seed 7
 */
import { fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import {
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  loadCompiled,
  quantize,
  sharedEmbedding,
} from "../../dist/index.js";
import { hostCpu } from "../../dist/kernels/cpu.js";
import { storeOf } from "../../dist/runtime/program.js";
import { createRandom } from "../../dist/text/random.js";
import { restorePrefix, savePrefix } from "../../dist/tools/index.js";

/** At a time: more than a step takes, so that some wait for their turn. */
const AT_A_TIME = 24;
const SEQUENCES = 16;
const THREADS = 2;
/** Prompts to choose from; many begin alike. */
const PROMPTS = 40;
const TOKENS_MAX = 60;
/** Memory is compared with that after this part of the generations. */
const WARM_PART = 0.2;
const HEAP_GROWTH_MAX = 4 * 2 ** 20;
const RESIDENT_GROWTH_MAX = 48 * 2 ** 20;
const QUIET_SECONDS = 10;

const { values: options } = parseArgs({
  options: {
    backends: { type: "string", default: "native,wasm" },
    generations: { type: "string", default: "5000" },
    seed: { type: "string", default: "1" },
  },
});
const generations = Number(options.generations);
const seed = Number(options.seed);

/** A line that is rewritten in place on a terminal, else written every ten seconds. */
class ProgressLine {
  #last = performance.now();

  /** @param {() => string} text */
  show(text, isEnd = false) {
    const { isTTY } = process.stderr;
    const due = isTTY || isEnd || performance.now() - this.#last > 1000 * QUIET_SECONDS;
    if (!due) return;
    this.#last = performance.now();
    process.stderr.write(isTTY ? `\r${text()}\x1b[K${isEnd ? "\n" : ""}` : `${text()}\n`);
  }
}

/** Bytes in use after garbage is collected. */
async function memory() {
  for (let i = 0; i < 3; i++) {
    /** @type {any} */ (globalThis).gc();
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  const { heapUsed, arrayBuffers, rss } = process.memoryUsage();
  return { heap: heapUsed + arrayBuffers, resident: rss };
}

/** This CPU without AMX and Arm's bf16, which compute many rows in another way than few: docs/sequences.md. */
function exactCpu() {
  const { name, features } = hostCpu();
  return { name, features: new Set([...features].filter((each) => !each.startsWith("amx") && each !== "bf16")) };
}

async function loadDemo() {
  const checkpoint = await loadCheckpoint(fileURLToPath(new URL("../../models/shakespeare", import.meta.url)));
  quantize(checkpoint, [int8DynamicActivationIntxWeight({ bits: 4 }), sharedEmbedding({ bits: 4 })]);
  const loading = { cpu: exactCpu(), threads: THREADS, sequences: SEQUENCES, maxSeqLen: 64, prefillTokens: 32 };
  const load = (/** @type {number | undefined} */ cacheBytes) => loadCompiled(checkpoint, { ...loading, cacheBytes });
  // Room for some five whole contexts, so that pages run out.
  const whole = await load(undefined);
  const { limitBytes } = whole.program.sequenceStatistics;
  await whole.dispose();
  const model = await load(Math.floor((5 * limitBytes) / SEQUENCES));
  await checkpoint.close();
  return model;
}

class Soak {
  /** @type {Record<string, number>} */
  counts = { ended: 0, aborted: 0, left: 0, forked: 0, "cut back": 0, restored: 0, "other texts": 0 };
  tokens = 0;
  started = 0;
  #model;
  #random = createRandom(seed);
  #file;
  /** @type {{ ids: number[], text: string }[]} */
  #prompts = [];

  constructor(model, folder) {
    this.#model = model;
    this.#file = join(folder, "prefix.lbsq");
  }

  /** @param {number} low @param {number} high both included */
  integer(low, high) {
    return low + Math.floor(this.#random.uniform() * (high - low + 1));
  }

  /** Prompts, and the texts that follow when nothing else runs. */
  async prepare() {
    const decoder = this.#model.createDecoder();
    const { contextLength, vocabularySize } = decoder;
    await decoder.dispose();
    const ids = (/** @type {number} */ count) =>
      Array.from({ length: count }, () => this.integer(0, vocabularySize - 1));
    const shared = ids(contextLength >> 1);
    for (let i = 0; i < PROMPTS; i++) {
      const own = ids(this.integer(1, contextLength - (contextLength >> 1) - TOKENS_MAX));
      const prompt = i % 3 === 0 ? own : [...shared.slice(0, this.integer(1, shared.length)), ...own];
      let text = "";
      for await (const piece of this.#model.generate(prompt, this.#settings(TOKENS_MAX))) text += piece;
      this.#prompts.push({ ids: prompt, text });
    }
  }

  #settings(maxTokens) {
    return { temperature: 0, repetitionPenalty: 1, maxTokens, ignoreEos: true };
  }

  /** One generation, of one kind or another. */
  async one() {
    this.started++;
    const { ids, text: expected } = this.#prompts[this.integer(0, PROMPTS - 1)];
    const maxTokens = this.integer(1, TOKENS_MAX);
    const kind = this.#random.uniform();
    if (kind < 0.15) await this.#aborted(ids, maxTokens);
    else if (kind < 0.3) await this.#forked(ids, maxTokens, expected);
    else if (kind < 0.4) await this.#cutBack(ids, maxTokens);
    else if (kind < 0.41) await this.#restored(ids);
    else await this.#generated(ids, maxTokens, expected, kind < 0.5);
  }

  async #generated(ids, maxTokens, expected, isLeft) {
    let text = "";
    let pieces = 0;
    const leaveAt = this.integer(0, maxTokens);
    for await (const piece of this.#model.generate(ids, this.#settings(maxTokens))) {
      text += piece;
      if (isLeft && pieces++ >= leaveAt) break;
    }
    this.tokens += maxTokens;
    this.counts[isLeft ? "left" : "ended"]++;
    this.#compare(text, expected);
  }

  /** A text that was cut off within a character ends in U+FFFD, which is ignored. */
  #compare(text, expected) {
    if (!expected.startsWith(text.replace(/\uFFFD+$/, ""))) this.counts["other texts"]++;
  }

  async #aborted(ids, maxTokens) {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(new Error("enough")), this.integer(0, 60));
    try {
      for await (const _ of this.#model.generate(ids, { ...this.#settings(maxTokens), signal: stop.signal }));
      this.counts.ended++;
    } catch (error) {
      if (error !== stop.signal.reason) throw error;
      this.counts.aborted++;
    } finally {
      clearTimeout(timer);
    }
  }

  async #forked(ids, maxTokens, expected) {
    const n = this.integer(2, 4);
    const texts = new Array(n).fill("");
    // Some are left while the others are in a step.
    let left = this.integer(0, 4) === 0 ? this.integer(0, maxTokens) : Number.POSITIVE_INFINITY;
    for await (const { choice, text } of this.#model.generateChoices(ids, { ...this.#settings(maxTokens), n })) {
      texts[choice] += text;
      if (left-- === 0) break;
    }
    for (const text of texts) this.#compare(text, expected);
    this.tokens += n * maxTokens;
    this.counts.forked++;
  }

  async #cutBack(ids, maxTokens) {
    const decoder = this.#model.createDecoder();
    await decoder.prefill(ids);
    const other = decoder.fork();
    for (let i = 0; i < maxTokens; i++) {
      if (this.#random.uniform() < 0.2) decoder.rewind(this.integer(1, decoder.position));
      await decoder.step(ids[i % ids.length]);
    }
    await other.prefill(ids.slice(0, 3));
    await other.dispose();
    await decoder.dispose();
    this.counts["cut back"]++;
  }

  async #restored(ids) {
    const store = storeOf(this.#model.program);
    const sequence = store.open(ids, { branch: "forward" });
    const isKept = sequence.position > 0;
    sequence.dispose();
    // Of little memory, a restored prefix may have no room: that is an error, after which nothing is held.
    const file = `${this.#file}${this.started}`;
    try {
      if (isKept) await savePrefix(this.#model, ids, file);
      if (isKept) await restorePrefix(this.#model, file);
      this.counts.restored++;
    } catch (error) {
      if (!/expected (room for|one of which)/.test(error.message)) throw error;
    } finally {
      rmSync(file, { force: true });
    }
  }
}

/** In a process of its own, whose backend the environment says. */
async function soak() {
  const folder = mkdtempSync(join(tmpdir(), "lowbit-soak-"));
  const model = await loadDemo();
  const soak = new Soak(model, folder);
  await soak.prepare();
  const line = new ProgressLine();
  const backend = process.env.LOWBIT_BACKEND;
  const start = performance.now();
  const progress = () => {
    const { pages, idlePages, evictedPages } = model.program.sequenceStatistics;
    return `${backend}: ${soak.started}/${generations} generations, ${Math.round(process.memoryUsage().rss / 2 ** 20)} MB, ${pages} pages in use, ${idlePages} kept, ${evictedPages} evicted`;
  };
  const runUntil = (/** @type {number} */ count) =>
    Promise.all(
      Array.from({ length: AT_A_TIME }, async () => {
        while (soak.started < count) {
          await soak.one();
          line.show(progress);
        }
      }),
    );
  await runUntil(Math.ceil(WARM_PART * generations));
  const before = await memory();
  await runUntil(generations);
  line.show(progress, true);
  const after = await memory();
  const problems = problemsOf(model, { soak, before, after });
  await model.dispose();
  rmSync(folder, { recursive: true });
  const seconds = ((performance.now() - start) / 1000).toFixed(0);
  const counts = Object.entries(soak.counts).map(([name, count]) => `${count} ${name}`);
  const growth = (/** @type {"heap" | "resident"} */ what) => ((after[what] - before[what]) / 2 ** 20).toFixed(1);
  console.log(
    `${backend}, seed ${seed}: ${soak.started} generations (${counts.join(", ")}), ${soak.tokens} tokens, ${seconds} s; ` +
      `memory grew by ${growth("heap")} MB, resident by ${growth("resident")} MB${problems.map((problem) => `\n  FAILED: ${problem}`).join("")}`,
  );
  process.exitCode = problems.length > 0 ? 1 : 0;
}

function problemsOf(model, { soak, before, after }) {
  const problems = [];
  const store = storeOf(model.program);
  const { limitBytes, bytes } = store.statistics;
  if (bytes > limitBytes) problems.push(`${bytes} bytes of ${limitBytes} are taken`);
  if (store.statistics.evictedPages === 0) problems.push("no page was ever evicted: there was room for all");
  const { sequences, pages } = store.statistics;
  if (sequences > 0 || pages > 0) problems.push(`${sequences} sequences with ${pages} pages are left`);
  store.clear();
  const { idlePages, usedBytes } = store.statistics;
  if (idlePages > 0 || usedBytes > 0) problems.push(`${idlePages} pages and ${usedBytes} bytes are left`);
  if (soak.counts["other texts"] > 0) problems.push(`${soak.counts["other texts"]} texts are not those of lone runs`);
  const heap = after.heap - before.heap;
  const resident = after.resident - before.resident;
  if (heap > HEAP_GROWTH_MAX) problems.push(`memory of JavaScript grew by ${heap} bytes`);
  if (resident > RESIDENT_GROWTH_MAX) problems.push(`resident memory grew by ${resident} bytes`);
  return problems;
}

async function main() {
  if (!(Number.isInteger(generations) && generations > 0 && Number.isInteger(seed))) {
    console.error("soak: expected whole numbers as --generations and --seed");
    process.exit(2);
  }
  for (const backend of options.backends.split(",")) {
    const env = { ...process.env, LOWBIT_BACKEND: backend, LOWBIT_SOAK: "1" };
    const child = fork(fileURLToPath(import.meta.url), process.argv.slice(2), { env, execArgv: ["--expose-gc"] });
    const code = await new Promise((resolve) => child.once("exit", resolve));
    if (code !== 0) process.exitCode = 1;
  }
}

await (process.env.LOWBIT_SOAK ? soak() : main());
