/**
 * `npm run load [-- --seconds 600 --clients 64 --program x.pte --name "its model" --parts rate,disorder]`: a server under load,
 * on Linux. First its throughput is compared with that of the library's own generations in one process, in turns: the server
 * and the library have the first core, and the clients the last, so that clients take nothing from either. The measure is CPU
 * time per piece of text, which other work on the machine changes little. Then, on all cores, some clients disconnect, send
 * invalid requests or read slowly; measures errors, gaps between pieces of text, and memory. Writes its sections of
 * bench/results/serve.md. Fails if a client gets an error that it did not cause, or if the server's throughput is more than 5 %
 * below the library's.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { availableParallelism, loadavg } from "node:os";
import { basename } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { demoProgram } from "../scripts/demo/model.js";
import { watched } from "./calm.js";
import { digits, median, table, writeReport } from "./report.js";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    clients: { type: "string", default: "64" },
    rounds: { type: "string", default: "3" },
    parts: { type: "string", default: "rate,disorder" },
    program: { type: "string" },
    name: { type: "string" },
  },
});
const seconds = Number(values.seconds);
const callers = Number(values.clients);
const program = values.program ?? (await demoProgram());
const model = basename(program, ".pte");
const name = values.name ?? model;
/** Least throughput of the server, as a part of the library's. */
const QUOTIENT_MIN = 0.95;
const cores = availableParallelism();
/** Core of the server and the library while throughput is measured, and threads of kernels. */
const computing = "0";
const threads = 1;
const path = (/** @type {string} */ file) => fileURLToPath(new URL(file, import.meta.url));

/** A process on some cores, that answers messages. */
class Role {
  /** @param {string} on Cores. @param {string[]} argv */
  constructor(on, argv) {
    this.child = spawn("taskset", ["-c", on, process.execPath, path("serve-roles.js"), ...argv], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    this.ready = once(this.child, "message");
  }

  /** @param {string} what @param {unknown} [value] @returns {Promise<any>} */
  async ask(what, value) {
    await this.ready;
    const answer = once(this.child, "message");
    this.child.send([what, value]);
    const left = once(this.child, "exit").then(([code]) => {
      throw new Error(`${what}: the process ended with ${code}`);
    });
    return (await Promise.race([answer, left]))[0];
  }
}

/** A server on some cores, and its clients on others. @param {string} on @param {string} clientsOn */
async function startServer(on, clientsOn, argv = []) {
  const child = spawn("taskset", [
    ...["-c", on, process.execPath, path("../dist/cli/main.js"), "serve", program, "--port", "0", "--no-log", ...argv],
  ]);
  const url = await new Promise((resolve) =>
    child.stderr.on("data", (data) => {
      const found = /at (http:\S+)\/v1/.exec(data);
      if (found) resolve(found[1]);
      else process.stderr.write(data);
    }),
  );
  while ((await fetch(`${url}/ready`)).status !== 200) await sleep(50);
  const server = JSON.stringify({ url, model, pid: child.pid, callers });
  const clients = new Role(clientsOn, ["--role", "clients", "--server", server]);
  const stop = async () => {
    clients.child.kill();
    child.kill("SIGTERM");
    const [code] = await once(child, "exit");
    if (code !== 0) throw new Error(`the server ended with ${code}`);
  };
  return { clients, stop, pid: child.pid };
}

/** Throughput of the server beside the library's: the section of the report, and the median of the quotients. */
async function throughput() {
  const argv = ["--role", "library", "--program", program, "--threads", `${threads}`, "--callers", `${callers}`];
  const library = new Role(computing, argv);
  const { clients, stop, pid } = await startServer(computing, String(cores - 1), ["--threads", `${threads}`]);
  const pids = [process.pid, pid, clients.child.pid, library.child.pid];
  const rows = [];
  const quotients = [];
  // The first, in which all prompts are new to both, is not counted.
  for (let round = 0; round <= Number(values.rounds); round++) {
    const { result, others } = await watched(pids, async () => {
      const ours = await clients.ask("rate");
      return { ours, own: await library.ask("rate") };
    });
    if (round === 0) continue;
    const { ours, own } = result;
    quotients.push(own.cpuMs / ours.cpuMs);
    const figures = [ours.cpuMs, own.cpuMs, own.cpuMs / ours.cpuMs, ours.ownMs, ours.rate, own.rate, others];
    rows.push(figures.map(digits));
  }
  library.child.kill();
  await stop();
  const head = ["server, ms of CPU", "library, ms of CPU", "library / server", "clients, ms of CPU"];
  const section = [
    `## Throughput: ${name}\n\n${callers} clients that stream completions of 16 to 128 tokens after prompts of one to five lines, on the last of ${cores} cores; beside the library's own generations for as many callers in one process. Server and library take turns on the first core, with one thread of kernels. Milliseconds of CPU are those of a piece of text, of the process with its kernels and of the clients' process; others are the cores that the rest of the machine kept busy, on which pieces a second depend. The median of the quotients is ${digits(median(quotients))}.`,
    table([...head, "server, pieces/s", "library, pieces/s", "others"], rows),
  ];
  return { section: section.join("\n\n"), quotient: median(quotients) };
}

/** Clients of all kinds on all cores: the section of the report, and the errors that are not theirs. */
async function disorder() {
  const all = `0-${cores - 1}`;
  const { clients, stop } = await startServer(all, all);
  const { counts, pieces, errors, gaps, memory, seconds: took } = await clients.ask("disorder", seconds);
  await stop();
  gaps.sort((a, b) => a - b);
  const at = (part) => digits(gaps[Math.floor(part * (gaps.length - 1))]);
  const tenths = Array.from({ length: 10 }, (_, i) =>
    median(memory.slice((i * memory.length) / 10, Math.max(1, ((i + 1) * memory.length) / 10))),
  );
  const section = [
    `## Disorder: ${name}\n\n${callers} clients for ${took.toFixed(0)} seconds, on the server's cores: of each twenty requests one leaves after five pieces, one is nonsense (answered 400), one reads a piece each 50 ms, and one has a prompt of some 1,500 tokens. ${digits(pieces / took)} pieces a second; load ${loadavg()[0].toFixed(1)}. Requests, and errors that are not the client's:`,
    table(
      ["well-behaved", "left", "nonsense", "slow", "long", "errors"],
      [[...Object.values(counts), errors.length].map(String)],
    ),
    "Milliseconds between pieces of text, of well-behaved clients:",
    table(["median", "95 %", "99 %", "largest"], [[at(0.5), at(0.95), at(0.99), at(1)]]),
    "Resident memory in MB, the median of each tenth of the time; long prompts stay in memory until `--cache-bytes` are full:",
    table(
      tenths.map((_, i) => `${i + 1}`),
      [tenths.map((megabytes) => megabytes.toFixed(0))],
    ),
  ];
  return { section: section.join("\n\n"), errors };
}

const parts = values.parts.split(",");
const sections = [];
if (parts.includes("rate")) {
  const found = await throughput();
  sections.push(found.section);
  if (found.quotient < QUOTIENT_MIN) process.exitCode = 1;
}
if (parts.includes("disorder")) {
  const found = await disorder();
  sections.push(found.section);
  for (const error of new Set(found.errors)) console.error(error);
  if (found.errors.length > 0) process.exitCode = 1;
}
writeReport("serve", {
  title: "A server under load",
  command: `node bench/serve.js --seconds ${seconds} --clients ${callers} --rounds ${values.rounds} --parts ${values.parts}`,
  sections,
  isPartial: true,
});
