/** Perplexity by windows, against each token's probability from a fresh run of the uncompiled model. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TINY_CONTEXT, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { EagerModel } from "../api/eager-model.ts";
import { loadCompiled } from "../api/load-compiled.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import type { Model } from "../checkpoint/model.ts";
import { evaluatePerplexity } from "./evaluate.ts";

const folder = mkdtempSync(join(tmpdir(), "lowbit-evaluate-"));
afterAll(() => rmSync(folder, { recursive: true }));

const text = "The quick brown fox jumps over the lazy dog, twice; naïve 漢字 follow.";
let model: Model;
beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  model = await loadCheckpoint(folder);
});
afterAll(() => model.close());

/** Nats of ids[i] after the tokens from `start` on: softmax of the logits of one fresh eager run. */
async function natsOf(ids: readonly number[], start: number, i: number): Promise<number> {
  const eager = await EagerModel.load(model);
  const logits = [...(eager.forward(ids.slice(start, i), 0).data as Float32Array)];
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);
  return -Math.log(Math.exp(logits[ids[i]!]!) / total);
}

describe("evaluatePerplexity", () => {
  test("of a model whose logits are NaN is an error", async () => {
    const path = join(folder, "nan");
    const edit = (name: string, values: Float32Array) => name.includes("up_proj") && values.fill(Number.NaN);
    await writeTinyCheckpoint(path, { edit });
    const bad = await loadCheckpoint(path);
    const llm = await loadCompiled(bad);
    await expect(evaluatePerplexity(llm, text)).rejects.toThrow("logits: expected numbers but found NaN in the window");
    await bad.close();
  });

  test.each([
    { target: "lowbit", maxSeqLen: 7 },
    { target: "executorch", logits: "all", maxSeqLen: 7 },
    { target: "executorch", logits: "last", maxSeqLen: 7 },
  ] as const)("scores each token once, in the first window that has it: %j", async (options) => {
    const llm = await loadCompiled(model, options);
    const ids = llm.tokenizer.encode(text);
    const window = 20;
    const stride = 8;
    let nats = 0;
    for (let i = 1; i < ids.length; i++) {
      const start = i < window ? 0 : Math.ceil((i + 1 - window) / stride) * stride;
      nats += await natsOf(ids, start, i);
    }
    const progress: number[] = [];
    const result = await evaluatePerplexity(llm, text, {
      window,
      stride,
      onProgress: (done, total) => progress.push(done / total),
    });
    expect(result.tokens).toBe(ids.length - 1);
    expect(result.windows).toBe(1 + Math.ceil((ids.length - window) / stride));
    expect(result.bytes).toBe(new TextEncoder().encode(text).length); // BOS, which is not scored, has no text
    expect(result.natsPerToken).toBeCloseTo(nats / result.tokens, 5);
    expect(result.perplexity).toBeCloseTo(Math.exp(result.natsPerToken), 9);
    expect(result.bitsPerByte).toBeCloseTo((result.natsPerToken * result.tokens) / Math.log(2) / result.bytes!, 9);
    expect(progress.at(-1)).toBe(1);
    expect(progress).toHaveLength(result.windows);
  });

  test("takes ids, the first of a text, and the context as the window", async () => {
    const llm = await loadCompiled(model);
    const ids = llm.tokenizer.encode(text);
    const whole = await evaluatePerplexity(llm, text, { maxTokens: 5 });
    expect(whole).toMatchObject({ tokens: 4, window: TINY_CONTEXT, stride: TINY_CONTEXT / 2, windows: 1 });
    const first = await evaluatePerplexity(llm, ids.slice(0, 5));
    expect(first.natsPerToken).toBe(whole.natsPerToken);
    expect([first.bytes, first.bitsPerByte]).toEqual([null, null]);
  });

  test("refuses sizes out of range and stops on abort", async () => {
    const llm = await loadCompiled(model);
    await expect(evaluatePerplexity(llm, text, { window: 65 })).rejects.toThrow(
      "window: expected a whole number from 2 to 64",
    );
    await expect(evaluatePerplexity(llm, text, { window: 8, stride: 8 })).rejects.toThrow("stride: expected");
    await expect(evaluatePerplexity(llm, "")).rejects.toThrow("at least 2 tokens but found 1");
    const signal = AbortSignal.abort(new Error("enough"));
    await expect(evaluatePerplexity(llm, text, { signal })).rejects.toThrow("enough");
  });
});
