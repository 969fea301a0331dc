/** Qwen3.5's layer of multi-token prediction on all backends, beside what transformers' layers make of the same weights. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { loadCheckpoint, loadCompiled } from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { scalarCpu } from "../src/kernels/cpu.ts";
import { hasNative } from "../src/kernels/native/rows.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { exactHost } from "./support/exact-rows.ts";

const golden = join(import.meta.dirname, "../src/model/multi-token-golden");
const { ids, drafts, last_logits, draft_logits } = JSON.parse(await readFile(join(golden, "golden.json"), "utf8"));
const cpus: Cpu[] = [
  scalarCpu,
  { name: "WebAssembly", features: new Set(wasmFeatures()) },
  ...(hasNative() ? [exactHost()] : []),
];

it.each(cpus.map((cpu) => [cpu.name, cpu] as const))("%s drafts as transformers' layers do", async (_, cpu) => {
  const model = await loadCheckpoint(golden);
  const llm = await loadCompiled(model, { cpu, kvCache: "f32" });
  await model.close();
  const decoder = llm.createDecoder();
  const close = (found: Float32Array | null, expected: readonly number[]) => {
    expect(found?.length).toBe(expected.length);
    for (const [i, value] of expected.entries()) expect(found![i]).toBeCloseTo(value, 4);
  };
  // In parts, so that the state before each has to be kept.
  await decoder.prefill(ids.slice(0, 7));
  await decoder.step(ids[7]);
  await decoder.allLogits(ids.slice(8, 11));
  close(await decoder.prefill(ids.slice(11)), last_logits);
  for (const at of [1, 2, 3]) close(await decoder.draft!(drafts.slice(0, at)), draft_logits[at - 1]);
  // What was drafted is no part of the text.
  expect(decoder.position).toBe(ids.length);
  close(await decoder.draft!(drafts.slice(0, 1)), draft_logits[0]);
  await decoder.step(drafts[0]);
  decoder.rewind(0);
  close(await decoder.prefill(ids), last_logits);
  await llm.dispose();
});
