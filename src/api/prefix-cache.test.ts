/** Prefixes on disk: another process goes on from them, with the logits that it would have had without. */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { exactHost } from "../../test/support/exact-rows.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { hybridNames, writeHybridCheckpoint } from "../../test/support/hybrid-checkpoint.ts";
import { Random } from "../../test/support/random.ts";
import { expectSame } from "../../test/support/same.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { scalarCpu } from "../kernels/cpu.ts";
import { hasNative } from "../kernels/native/rows.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import { embedding, int8DynamicActivationIntxWeight } from "../quantize/config.ts";
import { loadCompiled } from "./load-compiled.ts";
import { PrefixCache } from "./prefix-cache.ts";

const folder = await temporaryFolder();
const cpu = hasNative() ? exactHost() : scalarCpu;
for (const name of hybridNames) await writeHybridCheckpoint(join(folder, name), name);
const config = { max_position_embeddings: 256 };
await writeTinyCheckpoint(join(folder, "dense1"), { config });
/** Another in one weight. */
await writeTinyCheckpoint(join(folder, "dense2"), {
  config,
  edit: (name, values) => {
    if (name.includes("layers.1.mlp.up_proj")) values[7]! += 0.01;
  },
});

type Options = NonNullable<Parameters<typeof loadCompiled>[1]>;

async function load(name: string, cache: string | null, options: Options = {}): Promise<LanguageModel> {
  const model = await loadCheckpoint(join(folder, name));
  const loaded = await loadCompiled(model, { cpu, ...options });
  await model.close();
  if (cache !== null) await (await PrefixCache.open({ folder: cache, bytes: 1e9 })).keepFor(loaded);
  return loaded;
}

const random = new Random(7);
const prompt = Array.from({ length: 150 }, () => random.integer(3, 30));

/** Logits after a prompt, and of greedy tokens behind it; how much of it was found. */
async function ask(model: LanguageModel, ids: readonly number[]) {
  const decoder = model.createDecoder();
  const rows = [(await decoder.prefill(ids)).slice()];
  const found = decoder.cachedTokens!;
  for (let i = 0; i < 3; i++) rows.push((await decoder.step(rows[i]!.indexOf(Math.max(...rows[i]!)))).slice());
  await decoder.dispose();
  return { found, rows };
}

async function asked(name: string, cache: string | null, ids = prompt, options: Options = {}) {
  const model = await load(name, cache, options);
  const answer = await ask(model, ids);
  await model.dispose();
  return answer;
}

describe.each(["dense1", ...hybridNames])("a model such as %s", (name) => {
  it("goes on from what another process has computed, with the same logits bit for bit", async () => {
    const cache = await temporaryFolder();
    const cold = await asked(name, null);
    const first = await asked(name, cache);
    expect([cold.found, first.found]).toEqual([0, 0]);
    const second = await asked(name, cache);
    expect(second.found).toBeGreaterThanOrEqual(96);
    for (const { rows } of [first, second]) for (const [i, row] of rows.entries()) expectSame(row, cold.rows[i]!);
    const longer = [...prompt, 5, 6, 7, ...prompt.slice(0, 40)];
    const [warm, whole] = [await asked(name, cache, longer), await asked(name, null, longer)];
    expect(warm.found).toBeGreaterThanOrEqual(96);
    for (const [i, row] of warm.rows.entries()) expectSame(row, whole.rows[i]!);
  });

  it("computes what a damaged file does not give", async () => {
    const cache = await temporaryFolder();
    const { rows } = await asked(name, cache);
    const files = await readdir(cache);
    for (const file of files) {
      const bytes = await readFile(join(cache, file));
      bytes[100]! ^= 4;
      await writeFile(join(cache, file), bytes);
    }
    const again = await asked(name, cache);
    expect(again.found).toBe(0);
    for (const [i, row] of again.rows.entries()) expectSame(row, rows[i]!);
    // They were replaced by what was computed again.
    expect((await asked(name, cache)).found).toBeGreaterThanOrEqual(96);
  });
});

describe("what one model has computed", () => {
  it("is nothing to another, another type, another CPU or another prompt", async () => {
    const cache = await temporaryFolder();
    await asked("dense1", cache);
    expect((await asked("dense1", cache)).found).toBe(128);
    expect((await asked("dense2", cache)).found).toBe(0);
    expect((await asked("dense1", cache, prompt, { kvCache: "f16" })).found).toBe(0);
    expect((await asked("dense1", cache, prompt, { cpu: scalarCpu })).found).toBe(cpu === scalarCpu ? 128 : 0);
    expect((await asked("dense1", cache, [4, ...prompt])).found).toBe(0);
  });

  it("is nothing to others of packed weights, which differ in one", async () => {
    const cache = await temporaryFolder();
    const found: number[] = [];
    for (const name of ["dense1", "dense2", "dense1"]) {
      const model = await loadCheckpoint(join(folder, name));
      quantize(model, [int8DynamicActivationIntxWeight({ bits: 8 }), embedding({ bits: 8 })]);
      const loaded = await loadCompiled(model, { cpu });
      await model.close();
      await (await PrefixCache.open({ folder: cache, bytes: 1e9 })).keepFor(loaded);
      found.push((await ask(loaded, prompt)).found);
      await loaded.dispose();
    }
    expect(found).toEqual([0, 0, expect.any(Number)]);
    expect(found[2]).toBeGreaterThanOrEqual(96);
  });

  it("is found in part, by texts that go other ways, at the same time", async () => {
    const cache = await temporaryFolder();
    await asked("dense1", cache);
    const model = await load("dense1", cache);
    const others = [40, 70, 140].map((length) => [...prompt.slice(0, length), 31, 31, 31]);
    const answers = await Promise.all(others.map((ids) => ask(model, ids)));
    expect(answers.map(({ found }) => found)).toEqual([32, 64, 128]);
    for (const [i, ids] of others.entries()) {
      const { rows } = await asked("dense1", null, ids);
      for (const [j, row] of rows.entries()) expectSame(answers[i]!.rows[j]!, row);
    }
    await model.dispose();
  });

  it("is on disk as much as whose it is may have", async () => {
    const cache = await temporaryFolder();
    const pagesOf = async (scope: PrefixScope) => {
      const before = (await readdir(cache)).length;
      const model = await load("dense1", cache);
      const decoder = model.createDecoder(scope);
      await decoder.prefill(prompt);
      await decoder.dispose();
      await model.dispose();
      return (await readdir(cache)).length - before;
    };
    expect(await pagesOf({ salt: "anna" })).toBe(4);
    expect(await pagesOf({ salt: "ben", pages: 3 })).toBe(3);
  });
});
