/** Probabilities of a prompt's tokens: they add up to the perplexity, whatever the program gives logits of. */
import { beforeAll, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCompiled } from "../api/load-compiled.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import type { Model } from "../checkpoint/model.ts";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";
import { evaluatePerplexity } from "./evaluate.ts";
import { promptLogProbabilities } from "./prompt-log-probabilities.ts";

const folder = await temporaryFolder();
let model: Model;
beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  model = await loadCheckpoint(folder);
});

it.each([
  { target: "lowbit", maxSeqLen: 7 },
  { target: "executorch", logits: "all", maxSeqLen: 7 },
  { target: "executorch", logits: "last", maxSeqLen: 7 },
] as const)("of a program with %j", async (options) => {
  const llm = await loadCompiled(model, options);
  const ids = llm.tokenizer.encode("The quick brown fox jumps over it.");
  const found = await promptLogProbabilities(llm, ids, { top: 3 });
  const { natsPerToken } = await evaluatePerplexity(llm, ids, { window: 64 });
  expect(found.map(({ id }) => id)).toEqual(ids.slice(1));
  const sum = found.reduce((total, { logprob }) => total + logprob, 0);
  expect(-sum / found.length).toBeCloseTo(natsPerToken, 4);
  for (const { top } of found) expect(top).toHaveLength(3);
  expect(await promptLogProbabilities(llm, ids.slice(0, 1))).toEqual([]);
  await expect(promptLogProbabilities(llm, [])).rejects.toThrow(InvalidArgumentError);
  await expect(promptLogProbabilities(llm, new Array(65).fill(1))).rejects.toThrow(ContextLengthError);
});
