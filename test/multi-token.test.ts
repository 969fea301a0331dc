/** Qwen3.5's layer of multi-token prediction and an assistant of Gemma 4, on all backends, beside what transformers makes of the same weights. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { loadCheckpoint, loadCompiled } from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { scalarCpu } from "../src/kernels/cpu.ts";
import { hasNative } from "../src/kernels/native/rows.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { exactHost } from "./support/exact-rows.ts";

const folder = join(import.meta.dirname, "../src/model");
const kinds = {
  "Qwen3.5's own layer": { golden: "multi-token-golden", path: ".", draftHead: undefined, logits: "draft_logits" },
  "an assistant of Gemma 4": {
    ...{ golden: "assistant-golden", path: "model", draftHead: "assistant" },
    logits: "draft_logits",
  },
  "an assistant with clusters of tokens": {
    ...{ golden: "assistant-golden", path: "model", draftHead: "clustered" },
    logits: "clustered_logits",
  },
};
const cpus: Cpu[] = [
  scalarCpu,
  { name: "WebAssembly", features: new Set(wasmFeatures()) },
  ...(hasNative() ? [exactHost()] : []),
];

const cases = Object.entries(kinds).flatMap(([name, kind]) => cpus.map((cpu) => [name, cpu.name, kind, cpu] as const));

it.each(cases)("%s on %s drafts as transformers has it", async (_, __, { golden, path, draftHead, logits }, cpu) => {
  const own = join(folder, golden);
  const { ids, drafts, last_logits, [logits]: expected } = JSON.parse(await readFile(join(own, "golden.json"), "utf8"));
  const model = await loadCheckpoint(join(own, path), { draftHead: draftHead && join(own, draftHead) });
  expect(model.unreadTensors).toEqual([]);
  const llm = await loadCompiled(model, { cpu, kvCache: "f32" });
  await model.close();
  const decoder = llm.createDecoder();
  const close = (found: Float32Array | null, expected: readonly number[]) => {
    expect(found?.length).toBe(expected.length);
    for (const [i, value] of expected.entries()) expect(found![i]).toBeCloseTo(value, 3);
  };
  // In parts, so that the state before each has to be kept.
  await decoder.prefill(ids.slice(0, 7));
  await decoder.step(ids[7]);
  await decoder.allLogits(ids.slice(8, 11));
  close(await decoder.prefill(ids.slice(11)), last_logits);
  for (const at of [1, 2, 3]) close(await decoder.draft!(drafts.slice(0, at)), expected[at - 1]);
  // What was drafted is no part of the text.
  expect(decoder.position).toBe(ids.length);
  close(await decoder.draft!(drafts.slice(0, 1)), expected[0]);
  await decoder.step(drafts[0]);
  decoder.rewind(0);
  close(await decoder.prefill(ids), last_logits);
  await llm.dispose();
});
