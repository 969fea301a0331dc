/** Programs of files here: made once for each content, made again where one is damaged, refused where nothing can be kept. */
import { copyFileSync, existsSync, readdirSync, readFileSync, truncateSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { intxWeightOnly } from "../quantize/config.ts";
import { exportProgram } from "./export-program.ts";
import { keepingRefusal, withFileProgram } from "./file-program.ts";
import { loadProgram } from "./load-program.ts";
import { contentOf, listCachedPrograms, removeCachedPrograms } from "./program-cache.ts";
import { saveGguf } from "./save-gguf.ts";

const folder = await temporaryFolder();
const file = join(folder, "tiny.gguf");
await writeTinyCheckpoint(join(folder, "tiny"), { dtype: "bf16" });
const float = await loadCheckpoint(join(folder, "tiny"));
quantize(float, [intxWeightOnly({ bits: 8, groupSize: 32, scaleDType: "f16" })]);
await saveGguf(float, file);
await float.close();

let count = 0;
let cache = "";
let made: string[] = [];
beforeEach(() => {
  cache = join(folder, `programs-${++count}`);
  made = [];
});

async function make(path: string): Promise<void> {
  made.push(path);
  const model = await loadCheckpoint(file);
  await exportProgram(model, path).finally(() => model.close());
}

/** The path of the program and its logits. */
const logitsOf = (of = file, quantization = "as in the file") =>
  withFileProgram(of, { cache, quantization, make }, async (path) => {
    const llm = await loadProgram(path);
    const logits = await llm.createDecoder().prefill([1, 2, 3]);
    await llm.dispose();
    return { path, logits: [...logits] };
  });

test("a program is made once, and found for the same content at another place and time", async () => {
  const first = await logitsOf();
  expect(await logitsOf()).toEqual(first);
  const copy = join(folder, "copy.gguf");
  copyFileSync(file, copy);
  utimesSync(copy, 1, 1);
  expect(await logitsOf(copy)).toEqual(first);
  expect(made).toEqual([first.path]);
  const [listed] = await listCachedPrograms(cache);
  expect([listed!.model, listed!.commit]).toEqual([file, await contentOf(file, cache)]);
  await removeCachedPrograms(file, cache);
  expect(existsSync(first.path)).toBe(false);
});

test("other content at the same path, of the same size and time, and another quantization are other programs", async () => {
  const changed = join(folder, "changed.gguf");
  copyFileSync(file, changed);
  utimesSync(changed, 7, 7);
  const { path } = await logitsOf(changed);
  const bytes = readFileSync(changed);
  bytes[bytes.length - 1]! ^= 1;
  writeFileSync(changed, bytes);
  utimesSync(changed, 7, 7);
  const other = await logitsOf(changed);
  expect(other.path).not.toBe(path);
  expect((await logitsOf(changed, "qmode 8da4w")).path).not.toBe(other.path);
  expect(made).toHaveLength(3);
});

test.each([
  ["was cut short", (path: string) => truncateSync(path, 1000)],
  ["is nonsense of the same size", (path: string) => writeFileSync(path, Buffer.alloc(readFileSync(path).length, 7))],
  ["has damaged notes", (path: string) => writeFileSync(`${path}.json`, "{")],
])("a program that %s is made again", async (_, damage) => {
  const first = await logitsOf();
  damage(first.path);
  expect(await logitsOf()).toEqual(first);
  expect(made).toEqual([first.path, first.path]);
  expect(readdirSync(dirname(first.path)).filter((name) => /lock|part/.test(name))).toEqual([]);
});

test("what ends the making leaves nothing that is found", async () => {
  const failed = new Error("ended");
  const ended = withFileProgram(
    file,
    {
      cache,
      quantization: "",
      make: async (path) => {
        writeFileSync(path, "half");
        throw failed;
      },
    },
    async (path) => path,
  );
  await expect(ended).rejects.toBe(failed);
  expect(await listCachedPrograms(cache)).toEqual([]);
});

test("says why nothing can be kept", async () => {
  expect(await keepingRefusal(file, cache)).toBe(null);
  const blocked = join(folder, "blocked");
  writeFileSync(blocked, "");
  expect(await keepingRefusal(file, join(blocked, "cache"))).toContain(blocked);
});
