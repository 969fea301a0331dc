/**
 * `npm run fuzz`: files as strangers could make them, loaded and run in child processes under a watchdog. A signal, a hang,
 * memory without bound, a constant that changed and an error that is not lowbit's own are failures: the seed is named, and
 * the exit code is 1.
 *
 *   npm run fuzz -- --seconds 600                          every kind on every backend, the time shared among them
 *   npm run fuzz -- --kinds programs --backends native --count 20000
 *   npm run fuzz -- --kinds layers --count 5000            programs of experts, recurrent layers, sinks and vectors alone
 *   npm run fuzz -- --kinds programs --backends wasm --seed 1234 --count 1 --keep     one input again, written to build/fuzz
 *
 * Kernels are not made by strangers: theirs are calls of the families' cases at random sizes, beside the reference.
 *
 * `--reasons` prints why inputs were refused. Seeds that once failed are in test/fuzz/kept-seeds.json and run first.
 */
import { fork } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { root } from "../native/sources.js";

/** CPU time after which an input counts as hanging: limits of templates and tokenizers allow seconds. */
const HANG_SECONDS = 30;
/** Elapsed time after which an input counts as hanging; longer, since the machine may be loaded. */
const STUCK_SECONDS = 180;
/** Bytes of resident memory that no input needs. */
const RESIDENT_MAX = 3 * 2 ** 30;
const POLL_MS = 250;

const { values: options } = parseArgs({
  options: {
    kinds: { type: "string", default: "programs,kernels,tokenizers,templates,configs,quantized" },
    backends: { type: "string", default: "native,wasm" },
    seconds: { type: "string" },
    count: { type: "string" },
    seed: { type: "string" },
    keep: { type: "boolean", default: false },
    reasons: { type: "boolean", default: false },
  },
});

/** What of an input depends on where it runs. */
const dependsOnBackend = (/** @type {string} */ kind) => kind === "programs" || kind === "layers";

const campaigns = options.kinds
  .split(",")
  .flatMap((kind) =>
    (dependsOnBackend(kind) ? options.backends.split(",") : ["native"]).map((backend) => ({ kind, backend })),
  );
const secondsEach = options.seconds === undefined ? null : Number(options.seconds) / campaigns.length;
const countEach = options.count === undefined ? null : Number(options.count);
if (secondsEach === null && countEach === null) {
  console.error("fuzz: expected --seconds or --count");
  process.exit(2);
}

/** The child as one module: this folder's TypeScript, with lowbit's own modules taken from dist/. */
async function buildChild() {
  const folder = join(root, "build", "fuzz");
  mkdirSync(folder, { recursive: true });
  const outfile = join(folder, "child.js");
  await build({
    entryPoints: [join(root, "test", "fuzz", "child.ts")],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    packages: "external",
    logLevel: "warning",
    plugins: [
      {
        name: "dist",
        setup(plugins) {
          plugins.onResolve({ filter: /\/src\/.*\.ts$/ }, ({ path }) => ({
            path: join(root, "dist", path.replace(/^.*\/src\//, "").replace(/\.ts$/, ".js")),
            external: true,
          }));
        },
      },
    ],
  });
  return { module: outfile, folder };
}

/** Resident bytes of a process; 0 where the system does not tell. @param {number} pid */
function residentBytes(pid) {
  try {
    return 4096 * Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]);
  } catch {
    return 0;
  }
}

/** Seconds that a process has had of CPUs; 0 where the system does not tell. @param {number} pid */
function cpuSeconds(pid) {
  try {
    // The name before these fields may hold anything, but for a bracket at its end.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
    return (Number(fields[11]) + Number(fields[12])) / 100;
  } catch {
    return 0;
  }
}

/**
 * Runs seeds in a child until they are through, or it dies.
 * @param {{ kind: string, backend: string, seeds: readonly number[] | null, first: number, until: number, count: number }} job
 */
function runChild({ kind, backend, seeds, first, until, count }, { module, folder }) {
  return new Promise((resolve) => {
    const child = fork(module, [], {
      env: { ...process.env, LOWBIT_BACKEND: dependsOnBackend(kind) ? backend : "", LOWBIT_LOG: "" },
      stdio: ["ignore", "ignore", "pipe", "ipc"],
      serialization: "advanced",
    });
    const done = { ran: 0, refused: 0 };
    let current = first;
    let since = { time: Date.now(), cpu: 0 };
    let errors = "";
    /** @type {string | null} */
    let verdict = null;
    const failures = [];
    child.stderr.on("data", (data) => {
      errors = (errors + data).slice(-2000);
    });
    const watchdog = setInterval(() => {
      const [cpu, seconds] = [cpuSeconds(child.pid) - since.cpu, (Date.now() - since.time) / 1000];
      if (cpu > HANG_SECONDS) verdict ??= `hangs for more than ${HANG_SECONDS} s of a CPU`;
      if (seconds > STUCK_SECONDS) verdict ??= `hangs for more than ${STUCK_SECONDS} s`;
      const resident = residentBytes(child.pid);
      if (resident > RESIDENT_MAX) verdict ??= `takes ${(resident / 2 ** 30).toFixed(1)} GiB`;
      if (verdict) child.kill("SIGKILL");
    }, POLL_MS);
    child.on("message", (message) => {
      since = { time: Date.now(), cpu: cpuSeconds(child.pid) };
      if (message.start !== undefined) current = message.start;
      if (message.outcome === "ran") done.ran++;
      if (message.outcome === "refused") done.refused++;
      if (options.reasons && message.reason) console.log(`${kind} on ${backend}, seed ${current}: ${message.reason}`);
      if (message.problem !== undefined) failures.push({ seed: current, problem: message.problem });
    });
    child.on("exit", (code, signal) => {
      clearInterval(watchdog);
      const died =
        verdict ?? (signal ? `dies of ${signal}` : code === 0 ? null : `exits with ${code}: ${errors.trim()}`);
      if (died) failures.push({ seed: current, problem: died });
      resolve({ ...done, failures, next: died ? current + 1 : null, current });
    });
    child.send({ kind, backend, seeds, first, until, count, keep: options.keep ? folder : null });
  });
}

/** @param {{ kind: string, backend: string }} campaign */
async function runCampaign({ kind, backend }, child, kept) {
  const total = { ran: 0, refused: 0, failures: [] };
  const start = Date.now();
  const until = secondsEach === null ? Number.POSITIVE_INFINITY : start + 1000 * secondsEach;
  const base = options.seed === undefined ? Math.floor(start / 1000) % 1e6 : Number(options.seed);
  const add = (part) => {
    total.ran += part.ran;
    total.refused += part.refused;
    for (const { seed, problem } of part.failures) {
      total.failures.push(seed);
      console.log(`fuzz: ${kind} on ${backend}, seed ${seed}: ${problem}`);
    }
  };
  if (options.seed === undefined)
    for (let seeds = kept[kind] ?? []; seeds.length > 0; ) {
      const part = await runChild(
        { kind, backend, seeds, first: seeds[0], until: Number.MAX_VALUE, count: seeds.length },
        child,
      );
      add(part);
      seeds = part.next === null ? [] : seeds.slice(seeds.indexOf(part.current) + 1);
    }
  const last = countEach === null ? Number.POSITIVE_INFINITY : base + countEach;
  let first = base;
  while (first < last && Date.now() < until) {
    const part = await runChild(
      { kind, backend, seeds: null, first, until, count: Math.min(last - first, 4000) },
      child,
    );
    add(part);
    first = part.next ?? part.current + 1;
  }
  const { ran, refused, failures } = total;
  const seconds = ((Date.now() - start) / 1000).toFixed(0);
  console.log(
    `fuzz: ${kind} on ${backend}: ${ran + refused + failures.length} inputs from seed ${base} on in ${seconds} s: ` +
      `${ran} ran, ${refused} were refused, ${failures.length} failed`,
  );
  return failures.length;
}

const child = await buildChild();
const kept = JSON.parse(readFileSync(join(root, "test", "fuzz", "kept-seeds.json"), "utf8"));
let failed = 0;
for (const campaign of campaigns) failed += await runCampaign(campaign, child, kept);
process.exit(failed > 0 ? 1 : 0);
