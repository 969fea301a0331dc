/** Divergence and agreement of two models, against softmax and logarithms of logits taken token by token. */
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { exactHost } from "../../test/support/exact-rows.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCompiled } from "../api/load-compiled.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { int8DynamicActivationIntxWeight } from "../quantize/config.ts";
import { compareEach, compareModels } from "./compare.ts";
import { evaluatePerplexity } from "./evaluate.ts";
import type { LanguageModel } from "./language-model.ts";

const folder = await temporaryFolder();
const text = "The quick brown fox jumps over the lazy dog, twice; naïve 漢字 follow.";
let reference: LanguageModel;
let quantized: LanguageModel;

async function load(bits: number | null, path = folder): Promise<LanguageModel> {
  const model = await loadCheckpoint(path);
  if (bits !== null) quantize(model, [int8DynamicActivationIntxWeight({ bits })]);
  // Its logits of all rows at once are those token by token.
  const llm = await loadCompiled(model, { cpu: exactHost() });
  await model.close();
  return llm;
}

beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  reference = await load(null);
  quantized = await load(2);
});
afterAll(async () => {
  await reference.dispose();
  await quantized.dispose();
});

/** Probabilities after the first `count` of ids, in double precision. */
async function probabilities(model: LanguageModel, ids: readonly number[], count: number): Promise<number[]> {
  const decoder = model.createDecoder();
  const logits = [...(await decoder.prefill(ids.slice(0, count)))];
  await decoder.dispose();
  const exps = logits.map((logit) => Math.exp(logit));
  const total = exps.reduce((sum, exp) => sum + exp, 0);
  return exps.map((exp) => exp / total);
}

/** Of a sample, by the sum of the squares less the square of the sum. */
function deviation(values: readonly number[]): number {
  const count = values.length;
  const sum = values.reduce((total, value) => total + value, 0);
  const squares = values.reduce((total, value) => total + value * value, 0);
  return Math.sqrt((squares - sum ** 2 / count) / (count - 1));
}

test("is the definition, token by token", async () => {
  const ids = quantized.tokenizer.encode(text).slice(0, 40);
  const divergences: number[] = [];
  const more: number[] = [];
  let agreed = 0;
  for (let count = 1; count < ids.length; count++) {
    const p = await probabilities(quantized, ids, count);
    const q = await probabilities(reference, ids, count);
    divergences.push(q.reduce((sum, share, i) => sum + share * Math.log(share / p[i]!), 0));
    more.push(Math.log(q[ids[count]!]! / p[ids[count]!]!));
    if (p.indexOf(Math.max(...p)) === q.indexOf(Math.max(...q))) agreed++;
  }
  divergences.sort((a, b) => a - b);
  const progress: number[] = [];
  const found = await compareModels(quantized, reference, ids, { onProgress: (done) => progress.push(done) });
  const tokens = ids.length - 1;
  expect(found.tokens).toBe(tokens);
  expect(found.divergence.mean).toBeCloseTo(divergences.reduce((sum, each) => sum + each, 0) / tokens, 6);
  expect(found.divergence.mean).toBeGreaterThan(0.01);
  expect(found.divergence.median).toBeCloseTo(divergences[Math.floor(tokens / 2)]!, 5);
  expect(found.divergence.percentile99).toBeCloseTo(divergences[Math.floor(0.99 * tokens)]!, 5);
  expect(found.divergence.largest).toBeCloseTo(divergences.at(-1)!, 5);
  expect(found.topAgreement).toBe(agreed / tokens);
  const share = agreed / tokens;
  expect(found.topAgreementError).toBeCloseTo(Math.sqrt((share * (1 - share)) / tokens), 9);
  expect(found.divergence.standardError).toBeCloseTo(deviation(divergences) / Math.sqrt(tokens), 6);
  const ratio = Math.exp(more.reduce((sum, each) => sum + each, 0) / tokens);
  expect(found.perplexityRatio).toBeCloseTo(ratio, 5);
  expect(found.perplexityRatioError).toBeCloseTo((ratio * deviation(more)) / Math.sqrt(tokens), 5);
  expect(progress.at(-1)).toBe(tokens);
});

test("has the perplexities of both, in the same windows", async () => {
  const windows = { window: 20, stride: 8 };
  const found = await compareModels(quantized, reference, text, windows);
  expect(found).toMatchObject(windows);
  expect(found.perplexity).toBeCloseTo((await evaluatePerplexity(quantized, text, windows)).perplexity, 6);
  expect(found.referencePerplexity).toBeCloseTo((await evaluatePerplexity(reference, text, windows)).perplexity, 6);
});

test("of several models are those of each alone", async () => {
  const other = await load(3);
  const windows = { window: 20, stride: 8 };
  const alone = [
    await compareModels(quantized, reference, text, windows),
    await compareModels(other, reference, text, windows),
  ];
  expect(await compareEach([quantized, other], reference, text, windows)).toEqual(alone);
  expect(alone[0]).not.toEqual(alone[1]);
  await other.dispose();
});

test("of a model with itself is nothing", async () => {
  const found = await compareModels(reference, reference, text);
  expect(found.divergence.largest).toBeLessThan(1e-12);
  expect(found.topAgreement).toBe(1);
});

test("models of other vocabularies, NaN and what is no model are errors", async () => {
  const small = join(folder, "small");
  await writeTinyCheckpoint(small, { config: { vocab_size: 256 } });
  const other = await load(null, small);
  await expect(compareModels(quantized, other, [1, 2, 3])).rejects.toThrow(
    /reference: expected a vocabulary of \d+ tokens but found 256/,
  );
  await other.dispose();
  await expect(compareModels(quantized, {} as LanguageModel, text)).rejects.toThrow("reference: expected");
  await expect(compareModels(quantized, reference, [1])).rejects.toThrow("at least 2 tokens");
});
