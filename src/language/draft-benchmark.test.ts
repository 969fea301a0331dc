/** The benchmark of drafts: its counts beside those of a generation, and what it refuses. No times are checked. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCompiled } from "../api/load-compiled.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { benchmarkDrafts } from "./draft-benchmark.ts";
import type { LanguageModel } from "./language-model.ts";

const folder = mkdtempSync(join(tmpdir(), "lowbit-draft-benchmark-"));
let llm: LanguageModel;
beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  const model = await loadCheckpoint(folder);
  llm = await loadCompiled(model);
  await model.close();
});
afterAll(() => rmSync(folder, { recursive: true }));

const PROMPT = "to be or not to be or not to ";

test("counts what a generation with drafts counts", async () => {
  const done: number[] = [];
  const measured = await benchmarkDrafts(llm, PROMPT, { decodeTokens: 20, runs: 2, onProgress: (n) => done.push(n) });
  const { promptTokens } = await llm.generate(PROMPT, { temperature: 0, maxTokens: 20, ignoreEos: true }).result;
  expect(measured).toMatchObject({ promptTokens, decodeTokens: 20 });
  expect([measured.draftedRuns, measured.plainRuns].map((runs) => runs.length)).toEqual([2, 2]);
  expect(measured.draftedTokens).toBeGreaterThanOrEqual(measured.acceptedTokens);
  expect(done).toEqual([1, 2]);
});

test("drafts nothing where drafts are off", async () => {
  const measured = await benchmarkDrafts(llm, PROMPT, { draft: "off", decodeTokens: 8, runs: 1 });
  expect(measured).toMatchObject({ draftedTokens: 0, acceptedTokens: 0 });
});

test("refuses what does not fit", async () => {
  const measured = (options: object) => benchmarkDrafts(llm, PROMPT, options);
  await expect(measured({ decodeTokens: 64 })).rejects.toThrow(/tokens do not fit the context/);
  await expect(measured({ decodeTokens: 1 })).rejects.toThrow("decodeTokens: expected a whole number from 2");
  await expect(measured({ runs: 0 })).rejects.toThrow("runs: expected a whole number from 1 but found 0");
  await expect(measured({ draft: "mtp" })).rejects.toThrow("mtp");
});
