/**
 * Assistants of Gemma 4 whose tokens lie in clusters, on all backends. What transformers makes of one without (`make.py`) says
 * what it makes of one with them: the same logits for tokens of the best clusters, one less than the least of these for others.
 */
import { cp, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import {
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  loadCompiled,
  quantize,
} from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { scalarCpu } from "../src/kernels/cpu.ts";
import { hasNative } from "../src/kernels/native/rows.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { toFloat32 } from "../src/tensor.ts";
import { exactHost } from "./support/exact-rows.ts";
import { temporaryFolder } from "./support/folders.ts";
import { addClusters, writeAssistantCheckpoint, writeHybridCheckpoint } from "./support/hybrid-checkpoint.ts";

const golden = join(import.meta.dirname, "../src/model/assistant-golden");
const { ids, drafts, draft_logits } = JSON.parse(await readFile(join(golden, "golden.json"), "utf8")) as {
  readonly ids: readonly number[];
  readonly drafts: readonly number[];
  readonly draft_logits: readonly (readonly number[])[];
};
const folder = await temporaryFolder();
const cpus: Cpu[] = [
  scalarCpu,
  { name: "WebAssembly", features: new Set(wasmFeatures()) },
  ...(hasNative() ? [exactHost()] : []),
];

/** The x with A x = b for A [rows, size], by least squares: (A^T A) x = A^T b, by elimination. */
function solved(a: Float32Array, b: readonly number[], size: number): number[] {
  const at = (row: number, column: number) => a[row * size + column]!;
  const sum = (of: (row: number) => number) => b.reduce((total, _, row) => total + of(row), 0);
  const system = Array.from({ length: size }, (_, i) => [
    ...Array.from({ length: size }, (_, j) => sum((row) => at(row, i) * at(row, j))),
    sum((row) => at(row, i) * b[row]!),
  ]);
  for (let i = 0; i < size; i++)
    for (let other = 0; other < size; other++) {
      if (other === i) continue;
      const factor = system[other]![i]! / system[i]![i]!;
      for (let j = i; j <= size; j++) system[other]![j]! -= factor * system[i]![j]!;
    }
  return system.map((row, i) => row[size]! / row[i]!);
}

/** Logits as transformers' Gemma4AssistantMaskedEmbedder has them, from those of all tokens and the products of centroids. */
function masked(logits: readonly number[], order: readonly number[], scores: readonly number[], topK: number) {
  const best = [...scores.keys()].sort((a, b) => scores[b]! - scores[a]!).slice(0, topK);
  const size = order.length / scores.length;
  const chosen = best.flatMap((cluster) => order.slice(cluster * size, (cluster + 1) * size));
  const least = Math.min(...chosen.map((id) => logits[id]!));
  return logits.map((logit, id) => (chosen.includes(id) ? logit : least - 1));
}

const bestOf = (logits: ArrayLike<number>) => Array.from(logits).indexOf(Math.max(...Array.from(logits)));

const clustersOf = (count: number, topK: number) => ({ num_centroids: count, centroid_intermediate_top_k: topK });

it.each(cpus.map((cpu) => [cpu.name, cpu] as const))("%s drafts as transformers does", async (name, cpu) => {
  for (const [count, topK] of [
    [8, 3],
    [48, 1],
    [3, 3],
    [24, 11],
  ] as const) {
    const assistant = join(folder, `${name} ${count}`);
    await cp(join(golden, "assistant"), assistant, { recursive: true });
    const tensors = await addClusters(assistant, clustersOf(count, topK));
    const [head, centroids] = ["model.embed_tokens.weight", "masked_embedding.centroids.weight"].map((of) =>
      toFloat32(tensors.get(of)!),
    ) as [Float32Array, Float32Array];
    const order = Array.from(tensors.get("masked_embedding.token_ordering")!.data, Number);
    const model = await loadCheckpoint(join(golden, "model"), { draftHead: assistant });
    expect(model.unreadTensors).toEqual([]);
    const llm = await loadCompiled(model, { cpu, kvCache: "f32" });
    await model.close();
    const decoder = llm.createDecoder();
    await decoder.prefill(ids);
    for (const [i, logits] of draft_logits.entries()) {
      const size = head.length / logits.length;
      const hidden = solved(head, logits, size);
      const score = (cluster: number) =>
        hidden.reduce((sum, value, j) => sum + value * centroids[cluster * size + j]!, 0);
      const scores = Array.from({ length: count }, (_, cluster) => score(cluster));
      const expected = masked(logits, order, scores, topK);
      const found = (await decoder.draft!(drafts.slice(0, i + 1)))!;
      expect(found.length).toBe(expected.length);
      for (const [id, value] of expected.entries()) expect(found[id], `token ${id}`).toBeCloseTo(value, 3);
      expect(bestOf(found)).toBe(bestOf(expected));
    }
    await llm.dispose();
  }
});

const ways = {
  "4 bits": int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32, algorithm: "affine" }),
  "3 bits by a codebook": int8DynamicActivationIntxWeight({
    bits: 3,
    groupSize: 32,
    mappingType: "codebook",
    algorithm: "mse",
  }),
  "8 bits, weights only": intxWeightOnly({ bits: 8, groupSize: 32 }),
};

it.each(Object.keys(ways) as (keyof typeof ways)[])("%s: logits are those of the whole head", async (way) => {
  const [target, whole, clustered] = ["gemma4", "whole", "clustered"].map((name) => join(folder, way, name)) as [
    string,
    string,
    string,
  ];
  await writeHybridCheckpoint(target, "gemma4");
  for (const path of [whole, clustered]) await writeAssistantCheckpoint(path);
  // 282 tokens.
  await addClusters(clustered, clustersOf(6, 2));
  for (const cpu of cpus) {
    const guesses: Float32Array[] = [];
    for (const draftHead of [whole, clustered]) {
      const model = await loadCheckpoint(target, { draftHead });
      quantize(model, [ways[way]]);
      const llm = await loadCompiled(model, { cpu });
      await model.close();
      const decoder = llm.createDecoder();
      await decoder.prefill([5, 100, 20, 7]);
      guesses.push((await decoder.draft!([250]))!.slice());
      await llm.dispose();
    }
    const [all, some] = guesses as [Float32Array, Float32Array];
    const least = Math.min(...some);
    const chosen = [...some.keys()].filter((id) => some[id] !== least);
    expect(chosen).toHaveLength(94);
    for (const id of chosen) expect(some[id]).toBeCloseTo(all[id]!, 4);
    expect(least).toBeCloseTo(Math.min(...chosen.map((id) => some[id]!)) - 1, 4);
  }
});
