/** The benchmark's bookkeeping: what runs how often, and how medians are taken. No times are checked. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCompiled } from "../api/load-compiled.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { benchmark } from "./benchmark.ts";
import type { LanguageModel } from "./language-model.ts";

const folder = mkdtempSync(join(tmpdir(), "lowbit-benchmark-"));
let llm: LanguageModel;
beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  const model = await loadCheckpoint(folder);
  llm = await loadCompiled(model);
  await model.close();
});
afterAll(() => rmSync(folder, { recursive: true }));

describe("benchmark", () => {
  test.each([3, 4])("gives the median of %i runs", async (runs) => {
    const done: number[] = [];
    const result = await benchmark(llm, { promptTokens: 9, decodeTokens: 2, runs, onProgress: (n) => done.push(n) });
    expect(result.prefillRuns).toHaveLength(runs);
    const sorted = [...result.decodeRuns].sort((a, b) => a - b);
    const expected = runs === 3 ? sorted[1]! : (sorted[1]! + sorted[2]!) / 2;
    expect(result.decodeTokensPerSecond).toBe(expected);
    expect(done).toEqual(Array.from({ length: runs }, (_, i) => i + 1));
  });

  test("reads each prompt anew, though the model's store keeps those of the runs before", async () => {
    const prompts: string[] = [];
    const create = llm.createDecoder.bind(llm);
    const spy = vi.spyOn(llm, "createDecoder").mockImplementation((...options) => {
      const decoder = create(...options);
      const prefill = decoder.prefill.bind(decoder);
      return Object.assign(decoder, {
        prefill: (ids: readonly number[], ...rest: []) => {
          prompts.push(ids.slice(0, 8).join());
          return prefill(ids, ...rest);
        },
      });
    });
    await benchmark(llm, { promptTokens: 40, decodeTokens: 2, runs: 4 });
    spy.mockRestore();
    expect(new Set(prompts).size).toBe(4);
  });

  test("refuses what does not fit", async () => {
    await expect(benchmark(llm, { promptTokens: 60, decodeTokens: 5 })).rejects.toThrow("60 + 5 tokens do not fit");
    await expect(benchmark(llm, { runs: 0 })).rejects.toThrow("runs: expected a whole number from 1 but found 0");
  });
});
