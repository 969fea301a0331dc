/**
 * Processes that write one path over and over, each one of several contents, and are killed at any moment, some of them in
 * process namespaces of their own, where their numbers are equal. What stands at the path must always be whole, a claim
 * must have one holder at a time, and what was killed must leave nothing for long.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** Words of the file; a word is its index, and which content it is of. */
const WORDS = 65536;
const VARIANTS = 3;

/** Runs in each process: `argv` is the path, a file to log holders to, and a seed. */
const WRITER = `
import { appendFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { claimPath } from "./path-claim.ts";
import { writeFileResumable } from "./resumable-file.ts";
const [path, log, id] = process.argv.slice(2);
const random = (below) => Math.floor(Math.random() * below);
const note = (what) => appendFileSync(log, id + " " + what + " " + process.hrtime.bigint() + "\\n");
const write = async (variant) => {
  const controller = new AbortController();
  const stop = random(4) === 0 ? random(${WORDS}) : Infinity;
  await writeFileResumable(path, { key: String(variant), noteMs: random(20), signal: controller.signal }, async (sink) => {
    while (sink.position < 4 * ${WORDS}) {
      const start = sink.position / 4;
      if (start > stop) controller.abort(new Error("stopped"));
      controller.signal.throwIfAborted();
      const words = new Uint32Array(1024);
      for (let i = 0; i < words.length; i++) words[i] = variant * ${WORDS} + start + i;
      await sink.write(new Uint8Array(words.buffer));
      await sink.mark?.();
      if (random(8) === 0) await delay(random(5));
    }
  }).catch((error) => {
    if (error.message !== "stopped") throw error;
  });
};
for (;;) {
  await write(random(${VARIANTS}));
  if (random(2) > 0) continue;
  const claim = await claimPath(path + ".turn");
  note("enters");
  await delay(random(20));
  if (!(await claim.isHeld())) throw new Error("the claim was lost");
  note("leaves");
  await claim.release();
}
`;

/** Which content a file is of; an error when it is of several, or cut. @param {string} path @returns {number} */
export function contentOf(path) {
  const bytes = readFileSync(path);
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const variant = Math.floor(words[0] / WORDS);
  if (words.length !== WORDS) throw new Error(`a file of ${words.length} words has the name of ${WORDS}`);
  const wrong = words.findIndex((word, i) => word !== variant * WORDS + i);
  if (wrong >= 0) throw new Error(`a mixed file: content ${variant} until word ${wrong}, which is ${words[wrong]}`);
  return variant;
}

/**
 * Times from which to which each had the claim, by their log: those that were killed had it at least until that began.
 * @param {string} log @param {readonly Writer[]} writers
 */
function turnsOf(log, writers) {
  /** @type {{ start: bigint, end: bigint }[]} */
  const turns = [];
  /** @type {Map<string, bigint>} */
  const open = new Map();
  for (const line of log.split("\n")) {
    const [id = "", what, time = ""] = line.split(" ");
    if (what === "enters") open.set(id, BigInt(time));
    const start = open.get(id);
    if (what !== "leaves" || start === undefined) continue;
    turns.push({ start, end: BigInt(time) });
    open.delete(id);
  }
  for (const [id, start] of open) turns.push({ start, end: writers[Number(id)]?.killed ?? start });
  return turns.sort((a, b) => (a.start < b.start ? -1 : 1));
}

/** Writes the script of the processes, with the modules that it needs. @param {string} file */
async function writeWriter(file) {
  const resolveDir = fileURLToPath(new URL("../../src", import.meta.url));
  const stdin = { contents: WRITER, resolveDir, loader: /** @type {const} */ ("js") };
  await build({ stdin, bundle: true, platform: "node", format: "esm", outfile: file, logLevel: "error" });
}

/** A process that must be killed to end: `failure` is what it said where it ended otherwise. */
class Writer {
  /** @type {string | null} */
  failure = null;
  /** When it was killed, on the clock that all processes share. @type {bigint | null} */
  killed = null;
  #child;
  #ended;

  /** @param {string[]} args @param {boolean} isNamespaced */
  constructor(args, isNamespaced) {
    const unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"];
    const [command, ...first] = [...(isNamespaced ? unshare : []), process.execPath, ...args];
    this.#child = spawn(/** @type {string} */ (command), first, { stdio: ["ignore", "ignore", "pipe"] });
    let errors = "";
    this.#child.stderr.on("data", (data) => {
      errors += data;
    });
    this.#ended = new Promise((resolve) => this.#child.on("close", resolve)).then(() => {
      if (this.killed === null) this.failure = errors || "a process ended by itself";
    });
  }

  async kill() {
    this.killed = process.hrtime.bigint();
    this.#child.kill("SIGKILL");
    await this.#ended;
  }
}

/**
 * Starts processes, kills them, and looks at what stands at the path all the while. Gives the path, and how often it did;
 * an error tells what was wrong.
 * @param {{ folder: string, seconds: number, processes: number, isNamespaced?: boolean }} options
 */
export async function stressClaims({ folder, seconds, processes, isNamespaced = false }) {
  const [code, path, log] = ["writer.mjs", "target/file.bin", "log"].map((name) => join(folder, name));
  mkdirSync(join(folder, "target"));
  writeFileSync(log, "");
  await writeWriter(code);
  /** @type {Writer[]} */
  const writers = [];
  const start = () => {
    const writer = new Writer([code, path, log, String(writers.length)], isNamespaced);
    writers.push(writer);
    return writer;
  };
  const failure = () => writers.find((writer) => writer.failure !== null)?.failure;
  const running = Array.from({ length: processes }, start);
  let looks = 0;
  try {
    for (const end = performance.now() + 1000 * seconds; performance.now() < end && !failure(); ) {
      for (let i = 0; i < 40; i++) {
        await delay(20 * Math.random());
        if (!existsSync(path)) continue;
        contentOf(path);
        looks++;
      }
      const [one] = running.splice(Math.floor(Math.random() * running.length), 1, start());
      await one?.kill();
    }
  } finally {
    await Promise.all(running.map((writer) => writer.kill()));
  }
  const turns = turnsOf(readFileSync(log, "utf8"), writers);
  const together = turns.filter((turn, i) => turns.slice(0, i).some(({ end }) => end > turn.start)).length;
  const problem = failure() ?? (together > 0 ? `${together} turns of a claim began while another had it` : null);
  if (problem) throw new Error(`${problem}; ${readdirSync(join(folder, "target")).join(" ")}`);
  return { path, kills: writers.length, looks, turns: turns.length };
}
