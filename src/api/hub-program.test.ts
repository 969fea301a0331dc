/** Models of the hub as programs: made once, found again, told apart by quantization, and removed. */
import { existsSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { afterAll, beforeEach, expect, test } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { HUB_COMMIT, serveHub } from "../../test/support/hub-server.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { deferred } from "../deferred.ts";
import { InvalidArgumentError } from "../errors.ts";
import { int8DynamicActivationIntxWeight, intxWeightOnly } from "../quantize/config.ts";
import { type DownloadPlan, hubProgram, quantizeByDefault } from "./hub-program.ts";
import { inspectProgram } from "./inspect.ts";
import { loadProgram } from "./load-program.ts";
import { cachedPath, listCachedPrograms, programCache, removeCachedPrograms } from "./program-cache.ts";
import { saveGguf } from "./save-gguf.ts";

const folder = await temporaryFolder();
const checkpoint = join(folder, "tiny");
await writeTinyCheckpoint(checkpoint, { dtype: "bf16" });
const hub = await serveHub(checkpoint);
afterAll(() => hub.close());

let count = 0;
let cache = "";
beforeEach(() => {
  cache = join(folder, `programs-${++count}`);
  hub.requests.length = 0;
});

const settings = { endpoint: hub.endpoint, cache: join(folder, "hub"), token: null, offline: false };
const made = (options: Parameters<typeof hubProgram>[1] = {}) =>
  hubProgram("hf:org/name", { cache, settings, ...options });

test("a model is downloaded, quantized to 4 bits and kept; then nothing is asked of the hub", async () => {
  rmSync(settings.cache, { recursive: true, force: true });
  const plans: DownloadPlan[] = [];
  const progress: string[] = [];
  const path = await made({
    onPlan: (plan) => plans.push(plan),
    onProgress: (what, done, total) => done === total && progress.push(what),
  });
  const { weights } = await inspectProgram(path);
  const matrices = weights.filter(({ shape, groupSize }) => shape.length === 2 && groupSize !== null);
  expect(matrices.length).toBeGreaterThan(0);
  for (const { bits, scaleType } of matrices) expect([bits, scaleType]).toEqual([4, "i8"]);
  const [plan] = plans;
  expect(plans).toHaveLength(1);
  expect(plan!.model).toBe("hf:org/name");
  expect(plan!.downloadBytes).toBeGreaterThan(plan!.programBytes);
  expect(plan!.memoryBytes).toBeGreaterThan(plan!.programBytes);
  expect(plan!.freeDiskBytes).toBeGreaterThan(0);
  expect(progress).toContain("downloading");
  expect(progress).toContain("quantizing");

  hub.requests.length = 0;
  expect(await made({ onPlan: (plan) => plans.push(plan) })).toBe(path);
  expect(await hubProgram("org/name", { cache, settings })).toBe(path);
  expect(hub.requests).toEqual([]);
  expect(plans).toHaveLength(1);
  const llm = await loadProgram(path);
  const decoder = llm.createDecoder();
  expect((await decoder.prefill([1, 2, 3])).every(Number.isFinite)).toBe(true);
  await llm.dispose();
});

test("of two that want the same program, one makes it and the other waits, which it tells", async () => {
  let opened = 0;
  const told: string[] = [];
  const begun = deferred();
  const held = deferred();
  const first = made({
    onOpen: () => opened++,
    quantization: {
      name: "slow",
      apply: async (model) => {
        begun.resolve();
        quantizeByDefault(model);
        await held.promise;
      },
    },
  });
  await begun.promise;
  const second = made({
    onOpen: () => opened++,
    onWait: (reason) => {
      told.push(reason);
      held.resolve();
    },
    quantization: { name: "slow", apply: quantizeByDefault },
  });
  const [path, other] = await Promise.all([first, second]);
  expect([other, opened]).toEqual([path, 1]);
  expect(told).toEqual([expect.stringContaining(`${path}: waits for process ${process.pid} on `)]);
  expect(readdirSync(dirname(path)).sort()).toEqual([basename(path), `${basename(path)}.json`]);
});

test("programs are told apart by their quantization, and listed with it", async () => {
  const eight = {
    name: "qmode 8da8w",
    apply: (model: Parameters<typeof quantizeByDefault>[0]) =>
      quantize(model, [int8DynamicActivationIntxWeight({ bits: 8 })]),
  };
  const first = await made();
  const second = await made({ quantization: eight });
  expect(second).not.toBe(first);
  expect(await made({ quantization: eight })).toBe(second);
  const listed = await listCachedPrograms(cache);
  expect(listed.map(({ model, commit }) => [model, commit])).toEqual([
    ["hf:org/name", HUB_COMMIT],
    ["hf:org/name", HUB_COMMIT],
  ]);
  expect(new Set(listed.map(({ quantization }) => quantization))).toEqual(
    new Set(["4 bits of a codebook, groups of 16 with scales of 8 bits", "qmode 8da8w"]),
  );
  const removed = await removeCachedPrograms("org/name", cache);
  expect(removed.map(({ path }) => path).sort()).toEqual([first, second].sort());
  expect(existsSync(first) || existsSync(second)).toBe(false);
  expect(await listCachedPrograms(cache)).toEqual([]);
  await expect(removeCachedPrograms("org/name", cache)).rejects.toThrow(InvalidArgumentError);
});

test("a program that was not finished, or whose notes are damaged, is made again", async () => {
  const path = await made();
  writeFileSync(`${path}.json`, "{");
  expect(await listCachedPrograms(cache)).toEqual([]);
  expect(await made()).toBe(path);
  expect(await listCachedPrograms(cache)).toHaveLength(1);
});

test("weights that are low-bit already stay as they are", async () => {
  const float = await loadCheckpoint(checkpoint);
  quantize(float, [intxWeightOnly({ bits: 8, groupSize: 32, scaleDType: "f16" })]);
  const path = join(folder, "tiny-Q8_0.gguf");
  await saveGguf(float, path);
  await float.close();
  const model = await loadCheckpoint(path);
  quantizeByDefault(model);
  expect(model.configs.size).toBe(0);
  await model.close();
});

test("what the hub does not have, a plan that is refused and bad names are errors, and keep nothing", async () => {
  rmSync(settings.cache, { recursive: true, force: true });
  const refused = new Error("too large");
  await expect(
    made({
      onPlan: () => {
        throw refused;
      },
    }),
  ).rejects.toBe(refused);
  expect(hub.requests.filter((line) => line.startsWith("GET /org"))).toEqual([]);
  await expect(hubProgram("../x", { cache, settings })).rejects.toThrow("expected org/name");
  await expect(hubProgram("hf:org/other", { cache, settings: { ...settings, offline: true } })).rejects.toThrow(
    "cache",
  );
  expect(await listCachedPrograms(cache)).toEqual([]);
});

test("the cache is where the environment says", () => {
  expect(programCache({ LOWBIT_CACHE: "/a" })).toBe("/a");
  expect(programCache({ XDG_CACHE_HOME: "/b" })).toBe(join("/b", "lowbit"));
  const key = { model: "hf:org/name@v1", quantization: "x" };
  expect(cachedPath(key, "/c")).toMatch(/^\/c\/org--name@v1\/[0-9a-f]{10}\.pte$/);
});
