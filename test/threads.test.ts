/** Native threads as a process sees them: models that come and go, worker threads, two models at once. */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { beforeAll, describe, expect, it } from "vitest";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  type LanguageModel,
  loadCheckpoint,
  loadProgram,
  quantize,
} from "../src/index.ts";
import { nativeAddon } from "../src/kernels/native/addon.ts";
import { temporaryFolder } from "./support/folders.ts";
import { collectGarbage } from "./support/garbage.ts";
import { writeTinyCheckpoint } from "./support/tiny-checkpoint.ts";

const folder = await temporaryFolder();
const paths = ["a", "b"].map((name) => `${folder}/${name}.pte`);
const prompt = [72, 101, 108, 108, 111];
const options = { temperature: 0, maxTokens: 40, ignoreEos: true };

beforeAll(async () => {
  await writeTinyCheckpoint(folder, {
    config: { hidden_size: 64, intermediate_size: 256, max_position_embeddings: 128 },
  });
  for (const [i, path] of paths.entries()) {
    const model = await loadCheckpoint(folder);
    quantize(model, [int8DynamicActivationIntxWeight({ bits: 4 - i, groupSize: 32 })]);
    await exportProgram(model, path);
    await model.close();
  }
});

async function textOf(model: LanguageModel): Promise<string> {
  let text = "";
  for await (const piece of model.generate(prompt, options)) text += piece;
  return text;
}

describe("two models at once", () => {
  it.each([1, 3])("write what each writes alone, on %i threads", async (threads) => {
    const load = () => Promise.all(paths.map((path) => loadProgram(path, { threads })));
    const alone: string[] = [];
    for (const model of await load()) alone.push(await textOf(model));
    const together = await load();
    expect(await Promise.all([...together, ...together].map(textOf))).toEqual([...alone, ...alone]);
  });
});

/** Threads of this process; null where the system does not list them. */
function threadCount(): number | null {
  try {
    return readdirSync("/proc/self/task").length;
  } catch {
    return null;
  }
}

/** Bytes outside of the heap that are left when garbage is collected. */
async function externalBytes(): Promise<number> {
  await collectGarbage();
  return process.memoryUsage().external;
}

describe("models that come and go", () => {
  it.each([true, false])("leave no threads and no memory behind, disposed of: %s", async (isDisposed) => {
    const use = async () => {
      const model = await loadProgram(paths[0]!, { threads: 3 });
      await textOf(model);
      const { state, scratch, constants } = model.program.memoryUse;
      if (isDisposed) await model.dispose();
      return state + scratch + constants;
    };
    for (let i = 0; i < 3; i++) await use();
    const threads = threadCount();
    const before = await externalBytes();
    const each = await use();
    for (let i = 0; i < 30; i++) await use();
    expect((await externalBytes()) - before).toBeLessThan(5 * each);
    // Threads of the pool end some time after the last model that wanted them.
    if (threads !== null) expect(threadCount()).toBeLessThanOrEqual(threads);
  });
});

const built = fileURLToPath(new URL("../dist/index.js", import.meta.url));
const unbuilt = existsSync(built) ? "" : " (skipped: dist/ is not built)";

/** Loads a program and sends back what it writes. */
const script = `
  const { parentPort, workerData: { built, path, prompt, options } } = require("node:worker_threads");
  (async () => {
    const { loadProgram } = await import(built);
    const model = await loadProgram(path);
    let text = "";
    for await (const piece of model.generate(prompt, options)) text += piece;
    parentPort.postMessage(text);
  })();
`;

/** A worker that runs long plans. */
const runsPlans = `
  const { parentPort, workerData: { built, path } } = require("node:worker_threads");
  (async () => {
    const { loadProgram } = await import(built);
    const addon = (await import(new URL("kernels/native/addon.js", built).href)).nativeAddon();
    // The environment frees this memory, too, which takes a while, before it ends plans.
    globalThis.buffers = Array.from({ length: addon ? 4000 : 0 }, () => addon.allocate(65536));
    const decoder = (await loadProgram(path)).createDecoder();
    const ids = Array.from({ length: 500 }, (_, i) => i % 200);
    for (;;) {
      parentPort.postMessage("begins");
      await decoder.prefill(ids);
      decoder.rewind(0);
    }
  })();
`;

/** A worker that does nothing but make plans. */
const makesPlans = `
  const { parentPort, workerData: { built } } = require("node:worker_threads");
  const load = (name) => import(new URL(name, built).href);
  (async () => {
    const { hostCpu } = await import(built);
    const { openPacked, packWeights } = await load("kernels/layout/packed.js");
    const { selectKernel, selectLayout } = await load("kernels/select.js");
    const { linearA8 } = await load("kernels/families/index.js");
    const addon = (await load("kernels/native/addon.js")).nativeAddon();
    const spec = { n: 16, k: 32, bits: 4, groupSize: 32, hasZeros: false, hasLevels: false, scaleDType: "f32" };
    const weights = { ...spec, qvals: new Int8Array(512), scales: new Float32Array(16), zeros: null, levels: null };
    const layout = selectLayout(spec, hostCpu());
    const packed = openPacked(packWeights(weights, null, layout), spec);
    const args = { m: 1, x: new Float32Array(32), weights: packed, y: new Float32Array(16) };
    const kernel = selectKernel(linearA8, { layout: layout.name, bits: 4, m: 1 }, hostCpu());
    const call = kernel.encode(args, new Uint8Array(65536));
    parentPort.postMessage("begins");
    for (;;) addon.createPlan([call], addon.scratchBytes(call, 1) > 0 ? 1 : 2);
  })();
`;

/** Ends workers at several moments, in a process of its own, which nothing of it may bring down. */
const endedEarly = `
  const { Worker } = require("node:worker_threads");
  const [script, built, path] = process.argv.slice(1);
  (async () => {
    for (let i = 0; i < 8; i++) {
      const worker = new Worker(script, { eval: true, workerData: { built, path } });
      await new Promise((resolve) => worker.once("message", resolve));
      await new Promise((resolve) => setTimeout(resolve, 2 + 3 * i));
      await worker.terminate();
    }
    console.log("still here");
  })();
`;

function expectToSurvive(worker: string, path: string): void {
  const args = ["-e", endedEarly, worker, pathToFileURL(built).href, path];
  const { stdout, stderr, status, signal } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect({ stdout, stderr, status, signal }).toEqual({ stdout: "still here\n", stderr: "", status: 0, signal: null });
}

/** Writes a text in a process that may start no more threads once it has loaded a program. */
const withoutThreads = `
  const { execFileSync } = require("node:child_process");
  const [built, path, prompt, options] = process.argv.slice(1);
  (async () => {
    const { loadProgram } = await import(built);
    const model = await loadProgram(path, { threads: 3 });
    execFileSync("prlimit", ["--pid", String(process.pid), "--nproc=1"]);
    // The limit is of users, and root has none.
    if (process.getuid() === 0) process.setuid(65534);
    for await (const piece of model.generate(JSON.parse(prompt), JSON.parse(options))) process.stdout.write(piece);
  })();
`;
const hasLimits = spawnSync("prlimit", ["--version"]).status === 0;
const unlimited = hasLimits ? unbuilt : " (skipped: there is no prlimit)";

it.skipIf(unlimited !== "")(`a process that gets no threads writes the same${unlimited}`, async () => {
  const expected = await textOf(await loadProgram(paths[0]!));
  const facts = [prompt, options].map((value) => JSON.stringify(value));
  const args = ["-e", withoutThreads, pathToFileURL(built).href, paths[0]!, ...facts];
  const { stdout, stderr, status, signal } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect({ stdout, stderr, status, signal }).toEqual({ stdout: expected, stderr: "", status: 0, signal: null });
});

describe.skipIf(unbuilt !== "")(`a worker thread${unbuilt}`, () => {
  it("writes the same, also beside the main thread and when it is ended early", async () => {
    const expected = await textOf(await loadProgram(paths[0]!));
    const workerData = { built: pathToFileURL(built).href, path: paths[0]!, prompt, options };
    const start = () => new Worker(script, { eval: true, workerData });
    const answer = (worker: Worker) =>
      new Promise((resolve, reject) => {
        worker.once("message", resolve);
        worker.once("error", reject);
      });
    const workers = [start(), start()];
    const texts = workers.map(answer);
    expect(await textOf(await loadProgram(paths[0]!))).toBe(expected);
    expect(await Promise.all(texts)).toEqual([expected, expected]);
    const ended = start();
    await new Promise((resolve) => ended.once("online", resolve));
    await ended.terminate();
    expect(await textOf(await loadProgram(paths[0]!))).toBe(expected);
  });

  it("may be ended in the middle of a plan", async () => {
    const path = `${folder}/long.pte`;
    const deep = `${folder}/deep`;
    await writeTinyCheckpoint(deep, {
      config: { hidden_size: 256, intermediate_size: 1024, max_position_embeddings: 512 },
    });
    const model = await loadCheckpoint(deep);
    quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 })]);
    await exportProgram(model, path);
    await model.close();
    expectToSurvive(runsPlans, path);
  });

  it.skipIf(!nativeAddon())("may be ended while it makes plans", () => {
    expectToSurvive(makesPlans, "");
  });
});

it(`ran with${nativeAddon() ? "" : "out"} the native addon`, () => {});

/** Loads and disposes of programs, and has nothing else to do when they end. */
const disposes = `
  const { loadProgram } = await import(process.argv[1]);
  for (const threads of [2, 5, 3]) await (await loadProgram(process.argv[2], { threads })).dispose();
  console.log("all ended");
`;

it.skipIf(!existsSync(built))(`a process waits for the threads of programs that it disposes of${unbuilt}`, () => {
  for (const backend of ["wasm", undefined]) {
    const { status, stdout } = spawnSync(
      process.execPath,
      ["--input-type=module", "-e", disposes, pathToFileURL(built).href, paths[0]!],
      { encoding: "utf8", env: { ...process.env, ...(backend && { LOWBIT_BACKEND: backend }) } },
    );
    expect([status, stdout]).toEqual([0, "all ended\n"]);
  }
});
